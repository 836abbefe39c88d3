//! The files of the log: their names and their order.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::durable::Dir;
use crate::message::Timestamp;

/// One file of the log. `session-YYYYMMDD-HHMMSS.ndjson` is the first of its session;
/// `session-YYYYMMDD-HHMMSS.<n>.ndjson` follow it. Segments compare in that order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Segment {
    /// `YYYYMMDD-HHMMSS`, UTC.
    stamp: String,
    /// 0 for the first segment of its session.
    part: u32,
}

impl Segment {
    /// The first segment of a session that begins now. It is later than `last`, even if the clock
    /// was set back or a session began in the same second. `None` at the end of time.
    pub(super) fn first_of_next_session(last: Option<&Self>, now: Timestamp) -> Option<Self> {
        let by_clock = Self { stamp: now.compact(), part: 0 };
        let free = match last {
            Some(last) if last.stamp >= by_clock.stamp => {
                let next = begin_of(&last.stamp)?.unix_millis() + 1_000;
                Self { stamp: Timestamp::from_unix_millis(next).compact(), part: 0 }
            }
            _ => by_clock,
        };
        last.is_none_or(|last| *last < free).then_some(free)
    }

    /// The next segment of the same session.
    pub(super) fn next_part(&self) -> Self {
        Self { stamp: self.stamp.clone(), part: self.part.saturating_add(1) }
    }

    /// Reads a file's name; `None` if it is not a segment.
    pub fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_prefix("session-")?.strip_suffix(".ndjson")?;
        let (stamp, part) = match stem.split_once('.') {
            None => (stem, 0),
            Some((stamp, digits)) => (stamp, digits.parse().ok()?),
        };
        begin_of(stamp)?;
        // Only one spelling is valid, so that no two names denote the same segment.
        let segment = Self { stamp: stamp.to_owned(), part };
        (segment.to_string() == file_name).then_some(segment)
    }

    pub fn session_stamp(&self) -> &str {
        &self.stamp
    }

    pub fn session_id(&self) -> String {
        format!("session-{}", self.stamp)
    }

    pub fn is_first(&self) -> bool {
        self.part == 0
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            0 => write!(f, "session-{}.ndjson", self.stamp),
            part => write!(f, "session-{}.{part}.ndjson", self.stamp),
        }
    }
}

impl TryFrom<String> for Segment {
    type Error = String;
    fn try_from(file_name: String) -> Result<Self, String> {
        Self::parse(&file_name).ok_or_else(|| format!("`{file_name}` is not a segment of a log"))
    }
}

impl From<Segment> for String {
    fn from(segment: Segment) -> Self {
        segment.to_string()
    }
}

fn begin_of(stamp: &str) -> Option<Timestamp> {
    // Signs, spaces and missing zeros are other spellings of a time.
    let is_shaped = |(i, b): (usize, u8)| if i == 8 { b == b'-' } else { b.is_ascii_digit() };
    let is_spelled = stamp.len() == 15 && stamp.bytes().enumerate().all(is_shaped);
    is_spelled.then(|| Timestamp::parse_compact(stamp)).flatten()
}

pub(super) fn list(dir: &Dir) -> Result<Vec<Segment>> {
    let mut segments = dir.list(Segment::parse)?;
    segments.sort_unstable();
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_and_ordered() {
        let names = [
            "session-20261121-225001.ndjson",
            "session-20261121-225001.1.ndjson",
            "session-20261121-225001.10.ndjson",
            "session-20261121-225002.ndjson",
        ];
        let segments: Vec<Segment> = names.iter().map(|n| Segment::parse(n).unwrap()).collect();
        assert!(segments.is_sorted());
        assert_eq!(segments.iter().map(Segment::to_string).collect::<Vec<_>>(), names);
        for wrong in [
            "log.lock",
            "session-20261121-225001.0.ndjson",
            "session-20261121-225001.01.ndjson",
            "session-20261121-225001.-1.ndjson",
            "session-20261321-225001.ndjson",
            "session-20261121-225001.ndjson.gz",
            "session-../../../../etc.ndjson",
            "session-.ndjson",
        ] {
            assert_eq!(Segment::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_next_session_is_later_for_every_clock() {
        let now: Timestamp = "2026-11-21T22:59:59.900Z".parse().unwrap();
        let first = Segment::first_of_next_session(None, now).unwrap();
        assert_eq!(first.to_string(), "session-20261121-225959.ndjson");
        let second = Segment::first_of_next_session(Some(&first.next_part()), now).unwrap();
        assert_eq!(second.to_string(), "session-20261121-230000.ndjson");
        let set_back = Timestamp::from_unix_millis(0);
        let third = Segment::first_of_next_session(Some(&second), set_back).unwrap();
        assert_eq!(third.to_string(), "session-20261121-230001.ndjson");
        let last = Segment::parse("session-99991231-235959.ndjson").unwrap();
        assert_eq!(Segment::first_of_next_session(Some(&last), now), None);
    }
}
