//! The watcher's status, for `ensemble status`: `.ensemble/watch.json`.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::durable::{self, Durability};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use serde_json::Value;

/// The watcher's name in the event log.
pub const ACTOR: &str = "watcher";
/// The least time between two writes.
const WRITE_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The status is written at least so often, as a sign of life.
const WRITE_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The status file.
pub(crate) struct Status {
    path: PathBuf,
    written_at: Option<Monotonic>,
    changed: bool,
    /// Why files are found by polling alone.
    degraded: Option<String>,
}

impl Status {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, written_at: None, changed: true, degraded: None }
    }

    /// When it should be written.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        let interval = if self.changed { WRITE_INTERVAL_MIN } else { WRITE_INTERVAL_MAX };
        Some(self.written_at.map_or(Monotonic::ZERO, |at| at + interval))
    }

    pub(crate) fn is_due(&self, now: Monotonic) -> bool {
        self.next_due().is_some_and(|at| now >= at)
    }

    /// Files are found by polling alone, and why; or by events again.
    pub(crate) fn degraded(&mut self, why: Option<String>) {
        self.degraded = why;
        self.changed = true;
    }

    /// The status is out of date, if `changed`.
    pub(crate) const fn changed_if(&mut self, changed: bool) {
        self.changed |= changed;
    }

    pub(crate) fn write_now(&mut self, now: Monotonic, mut status: Value) {
        self.written_at = Some(now);
        self.changed = false;
        status["degraded"] = self.degraded.as_deref().into();
        status["pid"] = std::process::id().into();
        status["written_at"] = SystemClock.wall().to_string().into();
        let text = format!("{status}\n");
        if let Err(error) =
            durable::write_document(&self.path, text.as_bytes(), Durability::Process)
        {
            tracing::warn!(%error, "cannot write the status");
        }
    }
}
