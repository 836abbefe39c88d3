//! Mail in a directory: queues, documents and the event log, in one process and in many, which are killed and stopped.

#[path = "../support/children.rs"]
mod children;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod document;
mod embedding;
mod event_log;
mod handle;
mod many_at_once;
mod race;
mod requests_killed;
mod shared_syncs;
mod shell_worker;
mod spool;
mod syscalls;
mod vectors;
