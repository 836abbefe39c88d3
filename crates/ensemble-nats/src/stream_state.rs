//! What one connection knows of a stream: its name, and whether it can be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch::Receiver;

#[derive(Clone, Debug)]
pub(super) struct StreamState {
    stream: String,
    pub(super) subject: String,
    /// Number of the connection at which the stream was open, starting at 1; 0 if unknown.
    pub(super) open_at: Arc<AtomicU64>,
    pub(super) was_absent: Arc<AtomicBool>,
    connections: Receiver<u64>,
}

impl StreamState {
    /// The unknown state of a stream with all subjects below `prefix`, which ends with a dot.
    pub(super) fn new(stream: String, prefix: &str, connections: Receiver<u64>) -> Self {
        let subject = format!("{prefix}probe");
        let (open_at, was_absent) = Default::default();
        Self { stream, subject, open_at, was_absent, connections }
    }

    pub(super) fn stream(&self) -> &str {
        &self.stream
    }

    pub(super) fn connection(&self) -> u64 {
        *self.connections.borrow() + 1
    }

    /// Forgets that the stream was open, so that the next call probes again.
    pub(super) fn shut(&self) {
        self.open_at.store(0, Ordering::Relaxed);
    }
}
