//! Real NATS servers for tests, and the conformance suite's queue on one.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

pub mod bed;
#[path = "servers.rs"]
mod servers;

pub use servers::*;
