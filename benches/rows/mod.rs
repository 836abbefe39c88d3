//! The rows, one file each.

pub mod burst;
pub mod depth;
pub mod detect;
pub mod idle;
pub mod lint;
pub mod nudge;
pub mod peers;
pub mod queues;
pub mod scale;
pub mod shared;
pub mod start;
pub mod steps;
pub mod store;
pub mod subjects;
pub mod top;
pub mod waiting;
pub mod watchers;
pub mod watching;
