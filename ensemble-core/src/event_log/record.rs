//! One line of the log: its type, its members, and the limits that keep a line one small write.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{line, types};
use crate::message::Timestamp;

pub const TYPE_BYTES_MAX: usize = 64;

/// A namespace that is kept for Ensemble, besides those of [`types::TABLE`].
const RESERVED_NAMESPACE: &str = "ensemble";

/// Type of a record: one of eleven plain types, or a namespaced `name.event` with two or more parts
/// of `a-z 0-9 _ -`, such as `message.stored`.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a record type: use a plain type such as `task_start`, or `name.event` in a-z 0-9 _ -"
)]
pub struct RecordTypeError {
    text: String,
}

macro_rules! seed_types {
    ($($name:ident;)*) => {
        impl RecordType {
            $(pub const $name: Self = Self(Cow::Borrowed(types::$name));)*
            pub const SEED: [Self; 11] = [$(Self::$name),*];
        }
    };
}

seed_types! {
    TASK_START;
    TASK_COMPLETE;
    TASK_FAILED;
    WORKER_ASSIGN;
    WORKER_RELEASE;
    REVIEW_START;
    REVIEW_RESULT;
    ESCALATION;
    LOOP_DETECTED;
    SESSION_START;
    SESSION_END;
}

impl RecordType {
    /// The last ordered record of a segment; its `data.next` names the next file.
    pub const LOG_CONTINUED: Self = Self(Cow::Borrowed(types::LOG_CONTINUED));
    /// The segment's file had vanished and a writer recreated it; earlier records may be missing.
    pub const LOG_RECREATED: Self = Self(Cow::Borrowed(types::LOG_RECREATED));

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

    /// Whether only Ensemble itself may write this type: the types that begin and end a session, and every
    /// type in a namespace of [`types::TABLE`]. The state is rebuilt from some of these, and people judge
    /// the rest by them.
    ///
    /// ```
    /// # use ensemble_core::event_log::RecordType;
    /// assert!(RecordType::new("message.settled")?.is_reserved());
    /// assert!(!RecordType::TASK_COMPLETE.is_reserved());
    /// assert!(!RecordType::new("deploy.done")?.is_reserved());
    /// # Ok::<(), ensemble_core::event_log::RecordTypeError>(())
    /// ```
    pub fn is_reserved(&self) -> bool {
        let namespace = namespace_of(&self.0);
        let is_in_table = || types::TABLE.iter().any(|row| namespace_of(row.name) == namespace);
        [Self::SESSION_START, Self::SESSION_END].contains(self)
            || (namespace.is_some() && (namespace == Some(RESERVED_NAMESPACE) || is_in_table()))
    }

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
    pub fn matches(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(namespace) if namespace.ends_with('.') => self.0.starts_with(namespace),
            _ => self.0 == pattern,
        }
    }
}

/// The part of a namespaced type before its first dot.
fn namespace_of(kind: &str) -> Option<&str> {
    kind.split_once('.').map(|(namespace, _)| namespace)
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

/// The largest record number: exact in every JSON reader, and too large to reach by counting. A
/// line with a larger number is not a record, so that no line can exhaust the numbers.
pub const SEQ_MAX: u64 = (1 << 53) - 1;

fn countable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seq = u64::deserialize(deserializer)?;
    let too_large = || serde::de::Error::custom(format!("seq is above {SEQ_MAX}"));
    if seq <= SEQ_MAX { Ok(seq) } else { Err(too_large()) }
}

/// One event of the log, as a [`Follower`](crate::event_log::Follower) reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Time of writing.
    pub timestamp: Timestamp,
    /// The session, as `session-YYYYMMDD-HHMMSS`.
    pub session_id: String,
    /// Number within the session, from 1, without gaps, in file order. An
    /// [unordered](Record::unordered) record does not get a new number but repeats the last one its
    /// writer knew of. At most [`SEQ_MAX`].
    #[serde(deserialize_with = "countable")]
    pub seq: u64,
    /// The type.
    #[serde(rename = "type")]
    pub kind: RecordType,
    /// The actor.
    pub actor: String,
    /// Details of the event, by type.
    pub data: Map<String, Value>,
    /// Written without the log's lock, because its holder was stopped while it held the lock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
}

impl Record {
    /// Reads a line, without its newline. A [`Follower`](crate::event_log::Follower) does that for a whole log.
    ///
    /// The line is not JSON, a member is missing or has the wrong type of value.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// A line of the log, as a [`Follower`](crate::event_log::Follower) reads it, without a newline. Control characters and invisible
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
    fn types_are_plain_or_namespaced() {
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
