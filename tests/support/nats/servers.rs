//! The servers and links, for tests with and without the conformance suite.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

mod cluster;
mod link;
mod server;

pub use cluster::Cluster;
pub use link::Link;
pub use server::*;
