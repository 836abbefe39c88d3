//! Real NATS servers for tests, and the conformance suite's queue on one.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

pub mod bed;
mod cluster;
mod link;
mod server;

pub use cluster::Cluster;
pub use link::Link;
pub use server::*;
