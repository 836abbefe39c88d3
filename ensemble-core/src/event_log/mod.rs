//! The event log, one line for each event: `.ensemble/logs/session-YYYYMMDD-HHMMSS.ndjson`.
//!
//! ```text
//! {"timestamp":"2026-11-21T22:50:01.123Z","session_id":"session-20261121-225001","seq":7,
//!  "type":"task_start","actor":"worker-1","data":{"task_id":"task-001"}}         (in one line)
//! ```
//!
//! Any number of processes write. A record is one `write(2)` at the end of the file under a lock
//! held for microseconds. So lines never mix, and [`Record::seq`] counts them without a gap in file
//! order. A line is at most [`LINE_BYTES_MAX`] long; data that does not fit is replaced by its
//! size, digest, keys and short members. A record that `try_record` acknowledged survives the death
//! of every process. After a power cut the last seconds may be missing.
//!
//! A session is one or more segments. The last ordered record of each segment but the newest is
//! `log.continued`, which names the next file. Every long-lived writer follows it.
//!
//! | trouble | what happens |
//! |---|---|
//! | a writer is killed inside a write | one torn line; the next write begins with a newline, readers count the torn line and continue |
//! | a writer is stopped inside the lock | after [`LOG_LOCK_PATIENCE`] others write without it: the record is `"unordered":true` and repeats the last number its writer knew of |
//! | the file or the directory is deleted | made again at the next record, `log.recreated` says so, numbers continue |
//! | the disk is full | [`EventLog::record`] counts a failure and lets its caller continue |
//!
//! ```
//! use ensemble_core::event_log::{EventLog, Recorder as _, read_all, types};
//! use serde_json::json;
//!
//! # let home = tempfile::tempdir()?;
//! # let logs = home.path().join(".ensemble/logs");
//! let log = EventLog::open(&logs)?;
//! log.record(types::TASK_START, "worker-1", json!({ "task_id": "task-001" }));
//! log.record("deploy.done", "worker-1", json!({ "host": "web-3" })); // a type of your own
//!
//! let kinds: Vec<String> = read_all(&logs)?.map(|record| record.kind.to_string()).collect();
//! assert_eq!(kinds, ["session_start", "task_start", "deploy.done"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

mod error;
mod follower;
mod last;
mod line;
mod lines;
mod mentions;
mod reader;
mod recent;
mod record;
mod segment;
mod setters;
mod story;
mod sweep;
mod tail;
pub mod types;
mod writer;

pub use error::LogError;
pub use follower::{Follower, LogPosition, POLL_RECORDS_MAX};
pub use last::{LastRecords, last};
pub use line::{ACTOR_BYTES_MAX, LINE_BYTES_MAX};
pub use reader::{BadLine, BadLines, LogRecords, read_all};
pub use recent::recent;
pub use record::{Record, RecordType, RecordTypeError, SEQ_MAX, TYPE_BYTES_MAX};
pub use segment::Segment;
pub use story::{ObjectStory, story};
pub use sweep::sweep;

use crate::{Error, Result};
use line::RecordBody;
use writer::LogWriter;

/// How long a record waits for the log's lock before it is written without it (default).
pub const LOG_LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Segment size at which the log continues in a new file (default).
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// The lock file beside the segments; processes lock it and never rename or remove it.
pub const LOCK_FILE_NAME: &str = "log.lock";
/// Actor of the log's own records.
pub const LOG_ACTOR: &str = "ensemble";

/// The destination of events. Recording never fails its caller.
///
/// ```
/// use std::sync::Arc;
/// use ensemble_core::event_log::{NullRecorder, Recorder, types};
///
/// let recorder: Arc<dyn Recorder> = Arc::new(NullRecorder);
/// recorder.record(types::WORKER_ASSIGN, "dispatch", serde_json::json!({ "worker_id": 1 }));
/// ```
pub trait Recorder: Send + Sync {
    /// Records that `actor` did something. `kind` is a constant of [`types`], or a type of the caller's own
    /// that is a [`RecordType`]; `data` is an object.
    fn record(&self, kind: &str, actor: &str, data: Value);

    /// Whether [`record`](Self::record) has an effect; if not, callers may skip building what it takes.
    fn is_recording(&self) -> bool {
        true
    }
}

impl<R: Recorder + ?Sized> Recorder for std::sync::Arc<R> {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        (**self).record(kind, actor, data);
    }

    fn is_recording(&self) -> bool {
        (**self).is_recording()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NullRecorder;

impl Recorder for NullRecorder {
    fn record(&self, _kind: &str, _actor: &str, _data: Value) {}

    fn is_recording(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub segment_bytes_max: u64,
    pub lock_patience: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes_max: SEGMENT_BYTES_DEFAULT, lock_patience: LOG_LOCK_PATIENCE }
    }
}

impl LogOptions {
    pub const fn with_segment_bytes_max(self, segment_bytes_max: u64) -> Self {
        Self { segment_bytes_max, ..self }
    }

    pub const fn with_lock_patience(self, lock_patience: Duration) -> Self {
        Self { lock_patience, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedRecord {
    pub session_id: String,
    pub seq: u64,
    /// Whether the lock was held, which is nearly always; see [`Record::unordered`].
    pub ordered: bool,
}

/// A log that this process and any number of others write; [`QueueOptions`](crate::QueueOptions) has an example.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    writer: Mutex<LogWriter>,
    failures: AtomicU64,
    last_failure: Mutex<Option<String>>,
}

impl EventLog {
    /// Joins the newest session of the log in this directory, or begins the first one. Makes the
    /// directory if needed. [`QueueOptions`](crate::QueueOptions) has an example.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_with(dir, LogOptions::default())
    }

    /// The number of records that could not be written, and the last error: [`Recorder::record`] returns none.
    #[must_use]
    pub fn failures(&self) -> (u64, Option<String>) {
        let last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.failures.load(Ordering::Relaxed), last)
    }

    /// The log's directory, for a [`Follower`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// After a panic while writing, the writer reads the end of the log again.
    fn writer(&self) -> MutexGuard<'_, LogWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl EventLog {
    pub fn open_with(dir: &Path, options: LogOptions) -> Result<Self> {
        let log = Self::deferred(dir, options);
        log.writer().join()?;
        Ok(log)
    }

    /// As [`EventLog::open_with`], but touches nothing before the first record and cannot fail. For
    /// programs whose work must continue without a log.
    #[must_use]
    pub fn deferred(dir: &Path, options: LogOptions) -> Self {
        Self {
            path: dir.to_owned(),
            writer: Mutex::new(LogWriter::new(dir, options)),
            failures: AtomicU64::new(0),
            last_failure: Mutex::new(None),
        }
    }

    /// Begins a new session as `actor`. The previous session ends with a pointer to it: every
    /// process that writes the log moves over at its next record.
    pub fn start_session(dir: &Path, actor: &str) -> Result<Self> {
        Self::start_session_with(dir, actor, LogOptions::default())
    }

    pub fn start_session_with(dir: &Path, actor: &str, options: LogOptions) -> Result<Self> {
        let log = Self::deferred(dir, options);
        log.writer().start_session(actor)?;
        Ok(log)
    }

    /// Records the end of the session. The session stays the newest, and takes late records, until
    /// another one begins.
    pub fn end_session(&self, actor: &str) -> Result<AppendedRecord> {
        self.try_record(RecordType::SESSION_END.as_str(), actor, json!({}))
    }

    /// Writes a record and returns its position. `data` that is not an object becomes the member
    /// `value` of one. An actor longer than [`ACTOR_BYTES_MAX`] is truncated.
    pub fn try_record(&self, kind: &str, actor: &str, data: Value) -> Result<AppendedRecord> {
        let body = self.make_body(kind, actor, data)?;
        let mut writer = self.writer();
        let (seq, ordered) = writer.append(&body)?;
        let session_id = writer.segment().map(Segment::session_id).unwrap_or_default();
        Ok(AppendedRecord { session_id, seq, ordered })
    }

    fn make_body(&self, kind: &str, actor: &str, data: Value) -> Result<RecordBody> {
        let kind = RecordType::new(kind)
            .map_err(|error| Error::malformed(&self.path, "type", error.to_string()))?;
        Ok(RecordBody::new(kind, actor, data))
    }

    /// `session-YYYYMMDD-HHMMSS`: the session of the last record; `None` before the first.
    #[must_use]
    pub fn session_id(&self) -> Option<String> {
        self.writer().segment().map(Segment::session_id)
    }

    /// The file of the last record; `None` before the first.
    #[must_use]
    pub fn segment_path(&self) -> Option<PathBuf> {
        self.writer().segment().map(|segment| self.path.join(segment.to_string()))
    }
}

impl Recorder for EventLog {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        let body = self.make_body(kind, actor, data);
        if let Err(error) = body.and_then(|body| self.writer().append(&body)) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(error.to_string());
        }
    }
}
