//! The sidecar: sees a file land in the queue within microseconds, routes it, and wakes the right
//! agent in its pane.
#![forbid(unsafe_code)]

pub mod doorbell;
pub mod project;
