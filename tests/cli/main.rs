//! The command as users run it: real processes, real files, an empty environment.

mod addresses;
mod admission;
mod agent_texts;
mod api;
mod assign;
mod bad_parts;
mod bed;
mod board;
mod broker;
mod browser;
mod codes;
mod codex_server;
mod contract;
mod conversation;
mod dead_ends;
mod demo;
mod dispatch;
mod door;
mod doors;
mod edges;
mod ends;
#[cfg(feature = "otlp")]
mod export;
#[path = "../support/git.rs"]
mod git;
mod guides;
mod help;
mod hooks;
mod hooks_installed;
mod hostile_config;
#[path = "../support/http.rs"]
mod http_server;
mod ladders;
mod landed;
mod left_boards;
mod lint;
mod live;
#[cfg(feature = "mcp")]
mod mcp;
mod mcp_client;
#[cfg(feature = "nats")]
#[path = "../support/nats/server.rs"]
mod nats_server;
mod picture;
mod planning;
#[cfg(all(feature = "nats", feature = "postgres"))]
#[path = "../support/postgres.rs"]
mod postgres_support;
mod reading;
mod recalls;
mod reference;
mod replay;
mod reports;
mod requests;
#[cfg(feature = "nats")]
mod senders;
mod servers;
#[cfg(feature = "nats")]
mod servers_access;
#[cfg(feature = "nats")]
mod servers_board;
#[cfg(feature = "nats")]
mod servers_credentials;
#[cfg(feature = "nats")]
mod servers_failures;
#[cfg(feature = "nats")]
mod servers_ladders;
#[cfg(feature = "nats")]
mod servers_remote;
#[cfg(feature = "nats")]
mod servers_reports;
#[cfg(feature = "nats")]
mod servers_requests;
#[cfg(all(feature = "nats", feature = "postgres"))]
mod servers_steps;
mod session_page;
mod shell;
mod sources;
mod step;
mod step_driven;
mod strays;
mod supervise;

mod taken_over;
mod takeover;
mod team;
#[path = "../support/tmux.rs"]
mod tmux_support;
mod trusted_config;
mod usage;
mod waiting;
mod worktrees;
mod wrapped;
mod wrapped_codex;
