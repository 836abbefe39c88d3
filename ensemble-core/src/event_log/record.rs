//! One line of the log: its type, its members, and the limits that keep a line one small write.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::line;
use crate::message::Timestamp;

/// The longest type, in bytes.
pub const TYPE_BYTES_MAX: usize = 64;

/// The namespaces of the records that Ensemble writes.
pub const OWN_NAMESPACES: [&str; 32] = [
    "ack",
    "agent",
    "alarm",
    "batch",
    "board",
    "bridge",
    "control",
    "file",
    "identity",
    "ladder",
    "lease",
    "log",
    "mailbox",
    "message",
    "nudge",
    "queue",
    "ready",
    "receipt",
    "report",
    "request",
    "review",
    "role",
    "shutdown",
    "step",
    "steps",
    "supervise",
    "task",
    "team",
    "watch",
    "worker",
    "worktree",
    "ensemble",
];

/// What a record is about: one of the eleven types of seed 002, or a namespaced `name.event` with
/// two or more parts of `a-z 0-9 _ -`, such as `message.stored`.
///
/// ```
/// use ensemble_core::event_log::RecordType;
/// assert_eq!(RecordType::new("task_start")?, RecordType::TASK_START);
/// assert!(RecordType::new("nudge.sent").is_ok());
/// assert!(RecordType::new("nudged").is_err());
/// # Ok::<(), ensemble_core::event_log::RecordTypeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RecordType(Cow<'static, str>);

/// A text that is not a type of record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a type of record: use one of seed 002's or `name.event` in a-z 0-9 _ -")]
pub struct RecordTypeError {
    text: String,
}

macro_rules! seed_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl RecordType {
            $($(#[$doc])* pub const $name: Self = Self(Cow::Borrowed($text));)*
            /// The eleven types of seed 002.
            pub const SEED: [Self; 11] = [$(Self::$name),*];
        }
    };
}

seed_types! {
    /// A task was begun.
    TASK_START = "task_start";
    /// A task was done.
    TASK_COMPLETE = "task_complete";
    /// A task could not be done.
    TASK_FAILED = "task_failed";
    /// A worker got a task.
    WORKER_ASSIGN = "worker_assign";
    /// A worker is free again.
    WORKER_RELEASE = "worker_release";
    /// A review was begun.
    REVIEW_START = "review_start";
    /// A review has its result.
    REVIEW_RESULT = "review_result";
    /// An unresponsive agent moved up the ladder.
    ESCALATION = "escalation";
    /// The same thing keeps happening.
    LOOP_DETECTED = "loop_detected";
    /// A session begins; the first record of its first segment.
    SESSION_START = "session_start";
    /// A session ends.
    SESSION_END = "session_end";
}

impl RecordType {
    /// The last ordered record of a segment; its `data.next` names the file where the log goes on.
    pub const LOG_CONTINUED: Self = Self(Cow::Borrowed("log.continued"));
    /// The segment's file had vanished and was made anew; earlier records may be missing.
    pub const LOG_RECREATED: Self = Self(Cow::Borrowed("log.recreated"));

    /// Checks a type.
    ///
    /// # Errors
    /// It is neither one of the seed's nor namespaced.
    pub fn new(text: impl Into<String>) -> Result<Self, RecordTypeError> {
        let text = text.into();
        if let Some(known) = Self::SEED.into_iter().find(|known| known.0 == text) {
            return Ok(known);
        }
        if is_namespaced(&text) {
            return Ok(Self(Cow::Owned(text)));
        }
        Err(RecordTypeError { text: text.escape_debug().take(TYPE_BYTES_MAX).collect() })
    }

    /// Whether only Ensemble itself may write this type: the types that begin and end a session, and all
    /// in [`OWN_NAMESPACES`]. The state is rebuilt from some of these, and people judge the rest by them.
    ///
    /// ```
    /// # use ensemble_core::event_log::RecordType;
    /// assert!(RecordType::new("message.settled")?.is_reserved());
    /// assert!(!RecordType::TASK_COMPLETE.is_reserved());
    /// assert!(!RecordType::new("deploy.done")?.is_reserved());
    /// # Ok::<(), ensemble_core::event_log::RecordTypeError>(())
    /// ```
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        let namespace = self.0.split_once('.').map(|(namespace, _)| namespace);
        [Self::SESSION_START, Self::SESSION_END].contains(self)
            || namespace.is_some_and(|namespace| OWN_NAMESPACES.contains(&namespace))
    }

    /// The type as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the type `pattern`, or in the namespace `pattern` of the form `name.*`.
    ///
    /// ```
    /// # use ensemble_core::event_log::RecordType;
    /// assert!(RecordType::new("nudge.sent")?.matches("nudge.*"));
    /// assert!(!RecordType::ESCALATION.matches("nudge.*"));
    /// # Ok::<(), ensemble_core::event_log::RecordTypeError>(())
    /// ```
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(namespace) if namespace.ends_with('.') => self.0.starts_with(namespace),
            _ => self.0 == pattern,
        }
    }
}

fn is_namespaced(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    text.len() <= TYPE_BYTES_MAX && text.contains('.') && text.split('.').all(is_part)
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RecordType {
    type Error = RecordTypeError;
    fn try_from(text: String) -> Result<Self, RecordTypeError> {
        Self::new(text)
    }
}

impl From<RecordType> for String {
    fn from(kind: RecordType) -> Self {
        kind.0.into_owned()
    }
}

/// The largest number of a record: what every reader of JSON takes exactly, and more than can ever be
/// counted to. A line that names a larger one is no record, so that nobody can use the numbers up.
pub const SEQ_MAX: u64 = (1 << 53) - 1;

fn countable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seq = u64::deserialize(deserializer)?;
    let too_large = || serde::de::Error::custom(format!("seq is above {SEQ_MAX}"));
    if seq <= SEQ_MAX { Ok(seq) } else { Err(too_large()) }
}

/// One thing that happened, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// When it was written.
    pub timestamp: Timestamp,
    /// `session-YYYYMMDD-HHMMSS`: which session it belongs to.
    pub session_id: String,
    /// Its number within the session, from 1, without gaps, in the order of the file. An
    /// [unordered](Record::unordered) record has no number of its own and repeats the last one its
    /// writer knew of. At most [`SEQ_MAX`].
    #[serde(deserialize_with = "countable")]
    pub seq: u64,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: RecordType,
    /// Who did it.
    pub actor: String,
    /// What happened, by type.
    pub data: Map<String, Value>,
    /// Written without the log's lock, because whoever held it was stopped inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
}

impl Record {
    /// Reads a line, without its newline.
    ///
    /// # Errors
    /// It is not JSON, a member is missing or has the wrong kind of value.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// The record as a line of the log, without a newline. Control characters and invisible
    /// characters that could deceive a terminal are escaped.
    #[must_use]
    pub fn to_line(&self) -> String {
        line::render(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_the_seeds_or_namespaced() {
        for known in RecordType::SEED {
            assert_eq!(RecordType::new(known.as_str()), Ok(known));
        }
        for good in ["a.b", "message.stored", "log.continued", "a1.b_c.d-e"] {
            assert!(RecordType::new(good).is_ok(), "{good}");
        }
        let long = format!("a.{}", "b".repeat(TYPE_BYTES_MAX));
        for bad in
            ["", ".", "a.", ".a", "a..b", "task_started", "A.b", "a.1", "a. b", "a.\n", &long]
        {
            assert!(RecordType::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_record_round_trips() {
        let text = r#"{"timestamp":"2026-11-21T22:50:01.123Z","session_id":"session-20261121-225001","seq":7,"type":"task_start","actor":"worker-1","data":{"task_id":"task-001"}}"#;
        assert_eq!(Record::parse(text.as_bytes()).unwrap().to_line(), text);
    }
}
