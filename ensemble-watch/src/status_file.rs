//! Writes the watcher's status, `.ensemble/watch.json`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::durable::{self, Durability, read_file};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_project::status::{BEAT, STATUS_BYTES_MAX, WRITE_INTERVAL_MAX};
use serde_json::{Value, json};

const WRITE_INTERVAL_MIN: Duration = Duration::from_millis(250);

fn beat(now: Monotonic) -> Value {
    json!({ "pid": std::process::id(), "at_ms": now.as_duration().as_millis() as u64 })
}

/// Notes in the status of the last watcher that this process begins: it may hang before it writes a status.
pub(crate) fn note_start(path: &Path, now: Monotonic) {
    let content = read_file(path, STATUS_BYTES_MAX).ok().flatten().unwrap_or_default();
    let mut status = serde_json::from_slice(&content).unwrap_or_else(|_| json!({}));
    if !status.is_object() {
        status = json!({});
    }
    status[BEAT] = beat(now);
    write(path, &status);
}

fn write(path: &Path, status: &Value) {
    let text = format!("{status}\n");
    if let Err(error) = durable::write_document(path, text.as_bytes(), Durability::Process) {
        tracing::warn!(%error, "cannot write the status");
    }
}

pub(crate) struct StatusFile {
    path: PathBuf,
    written_at: Option<Monotonic>,
    changed: bool,
    degraded: Option<String>,
}

impl StatusFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, written_at: None, changed: true, degraded: None }
    }

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

    pub(crate) const fn changed_if(&mut self, changed: bool) {
        self.changed |= changed;
    }

    pub(crate) fn write_now(&mut self, now: Monotonic, mut status: Value) {
        self.written_at = Some(now);
        self.changed = false;
        status["degraded"] = self.degraded.as_deref().into();
        status["pid"] = std::process::id().into();
        status["written_at"] = SystemClock.wall().to_string().into();
        status[BEAT] = beat(now);
        write(&self.path, &status);
    }
}
