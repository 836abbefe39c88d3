//! Whole teams, driven through the command, under kills, stops and cuts; README.md describes the tests.

#[path = "../support/children.rs"]
mod children;
#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/git.rs"]
mod git;
#[cfg(feature = "nats")]
#[path = "../support/nats/servers.rs"]
mod nats_support;
#[cfg(feature = "nats")]
#[path = "../support/postgres.rs"]
mod postgres_support;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/wall_clock.rs"]
mod wall_clock;

mod clients;
#[cfg(feature = "fuzzing")]
mod fuzz_regressions;
#[cfg(feature = "nats")]
mod hosts;
mod supervisors;
#[cfg(feature = "mcp")]
mod whole;
