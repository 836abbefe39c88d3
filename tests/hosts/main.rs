//! Mail, requests and a blackboard on NATS servers, for a team on several hosts: the contract of a queue, and what
//! happens when servers, links and clients fail.

#[path = "../support/children.rs"]
mod children;
mod conformance;
#[path = "../support/nats/mod.rs"]
mod nats_support;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/mod.rs"]
mod support;

mod access;
mod failures;
mod ladders;
mod moving;
mod network;
mod requests;
mod room;
mod shared_board;
mod transports;
