//! Wall-clock stamps for people: UTC, milliseconds, always 24 characters.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Datelike as _, NaiveDateTime, Timelike as _};
use serde::{Deserialize, Serialize};

/// The first and the last millisecond of the years 0 to 9999: earlier and later stamps are written as one of these.
const FIRST_MILLIS: i64 = -62_167_219_200_000;
const LAST_MILLIS: i64 = 253_402_300_799_999;
const COMPACT: &str = "%Y%m%d-%H%M%S";

/// A point in time in calendar form. Printed with a fixed width, so that stamps sort as text:
/// `2026-11-21T22:50:01.123Z`.
///
/// ```
/// use ensemble_core::message::Timestamp;
/// let stamp: Timestamp = "2026-11-21T22:50:01Z".parse()?;
/// assert_eq!(stamp.to_string(), "2026-11-21T22:50:01.000Z");
/// let later = Timestamp::from_unix_millis(stamp.unix_millis() + 1_500);
/// assert_eq!(later.since(stamp).as_millis(), 1_500);
/// # Ok::<(), ensemble_core::message::TimestampError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time: write it as 2026-11-21T22:50:01.123Z, with its offset")]
pub struct TimestampError {
    text: String,
}

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn date_time(self) -> NaiveDateTime {
        let millis = self.0.clamp(FIRST_MILLIS, LAST_MILLIS);
        DateTime::from_timestamp_millis(millis).unwrap_or_default().naive_utc()
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Timestamp {
    /// The system's wall clock.
    #[must_use]
    pub fn now() -> Self {
        // By the C library and not by the kernel's page of clocks: what sets another time for one program
        // (faketime, a test) does it there.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    /// The stamp this much `later`.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(later.as_millis()).unwrap_or(i64::MAX)))
    }

    /// `20261121-225001`, as in the names of log files.
    #[must_use]
    pub fn compact(self) -> String {
        self.date_time().format(COMPACT).to_string()
    }

    /// Reads what [`Timestamp::compact`] wrote.
    pub(crate) fn parse_compact(text: &str) -> Option<Self> {
        let parsed = NaiveDateTime::parse_from_str(text, COMPACT).ok()?;
        Some(Self(parsed.and_utc().timestamp_millis()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.date_time();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        // Formatted by hand: each message has a stamp, and the formatting machinery takes ten times
        // as long.
        let mut put = |places: std::ops::Range<usize>, mut value: u32| {
            for digit in text[places].iter_mut().rev() {
                *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        };
        put(0..4, t.year().unsigned_abs());
        put(5..7, t.month());
        put(8..10, t.day());
        put(11..13, t.hour());
        put(14..16, t.minute());
        put(17..19, t.second());
        put(20..23, t.nanosecond() / 1_000_000 % 1_000);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl std::str::FromStr for Timestamp {
    type Err = TimestampError;
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let parsed = DateTime::parse_from_rfc3339(text).map_err(|_| {
            let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            TimestampError { text: text.chars().take(40).map(shown).collect() }
        })?;
        Ok(Self(parsed.timestamp_millis()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampError;
    fn try_from(text: String) -> Result<Self, TimestampError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(stamp: Timestamp) -> Self {
        stamp.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_is_fixed_and_round_trips() {
        for millis in [0, 1, 999, 1_763_765_401_120, 253_402_300_799_999] {
            let stamp = Timestamp::from_unix_millis(millis);
            assert_eq!(stamp.to_string().len(), 24);
            assert_eq!(stamp.to_string().parse::<Timestamp>().unwrap(), stamp);
        }
        let far = [i64::MIN, i64::MAX].map(|it| Timestamp::from_unix_millis(it).to_string());
        assert_eq!(far, ["0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"]);
        for odd in ["01", "01,5Z", "01Z[UTC]", "Z", "01+2Z", "61Z", "01\u{e9}"] {
            assert!(format!("2026-11-21T22:50:{odd}").parse::<Timestamp>().is_err(), "{odd}");
        }
        let offset = "2026-11-22T00:50:01.000+02:00".parse::<Timestamp>().unwrap();
        assert_eq!(offset.to_string(), "2026-11-21T22:50:01.000Z");
        assert_eq!(
            "2026-11-21T22:50:01Z".parse::<Timestamp>().unwrap().compact(),
            "20261121-225001"
        );
    }
}
