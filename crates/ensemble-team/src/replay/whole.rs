//! Checks by record numbers whether the log is complete.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use ensemble_core::event_log::{Record, RecordType, Segment, types};

/// Maximum number of reported gaps; the first ones are sufficient.
const GAPS_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "gap", rename_all = "lowercase")]
pub enum LogGap {
    /// Numbers of a session without a record: lines were removed or altered, or a segment is gone.
    Numbers {
        session: String,
        /// The first number that is missing.
        from: u64,
        to: u64,
    },
    /// A number that occurred before: lines were copied, or an older file was put in place.
    Again {
        session: String,
        seq: u64,
    },
    /// The log begins with a session that continues a missing one.
    Begin {
        session: String,
        /// The session that it continues.
        after: String,
    },
    /// A segment vanished while it was written.
    Recreated {
        session: String,
    },
    End {
        next: Segment,
    },
}

impl std::fmt::Display for LogGap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Numbers { session, from, to } if from == to => {
                write!(f, "{session} has no record {from}")
            }
            Self::Numbers { session, from, to } => {
                write!(f, "{session} has no records {from} to {to}")
            }
            Self::Again { session, seq } => write!(f, "{session} has record {seq} twice"),
            Self::Begin { session, after } => {
                write!(f, "the log begins with {session}, which continues {after}")
            }
            Self::Recreated { session } => {
                write!(f, "a file of {session} vanished while it was written")
            }
            Self::End { next } => write!(f, "the log continues in {next}, which is missing"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct RecordNumbers {
    last: BTreeMap<String, u64>,
    gaps: Vec<LogGap>,
    next: Option<Segment>,
}

impl RecordNumbers {
    pub(super) fn check_number(&mut self, record: &Record) {
        if record.unordered {
            return;
        }
        let session = record.session_id.clone();
        let is_first = self.last.is_empty();
        let last = self.last.entry(session.clone()).or_default();
        let gap = match record.seq {
            seq if seq <= *last => Some(LogGap::Again { session: session.clone(), seq }),
            seq if seq > *last + 1 => {
                Some(LogGap::Numbers { session: session.clone(), from: *last + 1, to: seq - 1 })
            }
            _ => None,
        };
        *last = record.seq.max(*last);
        self.gaps.extend(gap);
        let after = record.data.get("after").and_then(Value::as_str);
        match record.kind.as_str() {
            types::SESSION_START if is_first => {
                self.gaps
                    .extend(after.map(|after| LogGap::Begin { session, after: after.to_owned() }));
            }
            types::LOG_RECREATED => self.gaps.push(LogGap::Recreated { session }),
            _ => {}
        }
        let next = record.data.get("next").and_then(Value::as_str).and_then(Segment::parse);
        self.next = next.filter(|_| record.kind == RecordType::LOG_CONTINUED);
        self.gaps.truncate(GAPS_MAX);
    }

    /// The gaps. A next file named by the last record is a gap unless the file exists, which only a
    /// caller with the directory can check.
    pub(super) fn gaps(self) -> Vec<LogGap> {
        let end = self.next.map(|next| LogGap::End { next });
        self.gaps.into_iter().chain(end).collect()
    }
}
