//! When a usage limit ends, from the agent's own words: pure functions of a text, the wall clock
//! and the zones.
//!
//! | form | examples |
//! |---|---|
//! | a stretch of time | `2 hours 5 minutes`, `in 59s`, `1h 30m`, `less than a minute` |
//! | a time of day | `3pm`, `3:45 pm`, `15:00`, `tomorrow at 9am` |
//! | a date | `Jan 3rd, 2026 5:12 PM`, `Oct 9 at 3pm`, `Monday 10am`, `Aug 20` (its beginning) |
//! | a stamp | `2026-01-03T17:12:00Z`, `2026-01-03 17:12`, seconds or milliseconds since 1970 |
//!
//! A zone may follow: `(Europe/Berlin)`, `UTC`, `+02:00`. Without one the local zone is meant. Any other text is not
//! an instant: other abbreviations (`EST` is three zones), other languages, a line that was cut off. A time without a
//! date is the nearest one, half a day around now. A date without a year is in the nearest year, so an old message is
//! known to be old. A stretch of time counts from when it was first seen; at the next look the caller passes the
//! earlier result ([`UsageLimit`]).

use std::sync::OnceLock;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{ToSpan, Zoned};

use ensemble_core::message::Timestamp;

#[cfg(test)]
mod tests;

const TEXT_BYTES_MAX: usize = 200;
const STRETCH_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// For how long after it ends a message counts as the one that was seen before. The next one
/// may say `3pm` as well.
const REMEMBERED: Duration = Duration::from_secs(12 * 60 * 60);
/// No zone is further from UTC.
const OFFSET_HOURS_MAX: i32 = 14;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

#[derive(Clone, Debug)]
pub struct Zones {
    of_this_machine: bool,
    read: OnceLock<LoadedZones>,
}

/// The local zone, and those that have a name. A database lists all its zones when it is opened.
#[derive(Clone, Debug)]
struct LoadedZones {
    local: TimeZone,
    database: TimeZoneDatabase,
}

impl Zones {
    /// UTC for everything, and no zone has a name.
    pub fn utc() -> Self {
        Self { of_this_machine: false, read: OnceLock::new() }
    }

    /// This machine's zone (`TZ`, `/etc/localtime`; UTC if neither names one) and its database of zones
    /// (`/usr/share/zoneinfo`), read with the first text that needs them. For programs: the library itself reads no
    /// configuration of the machine.
    pub fn of_this_machine() -> Self {
        Self { of_this_machine: true, read: OnceLock::new() }
    }

    fn read(&self) -> &LoadedZones {
        self.read.get_or_init(|| match self.of_this_machine {
            false => LoadedZones { local: TimeZone::UTC, database: TimeZoneDatabase::none() },
            true => LoadedZones {
                local: TimeZone::try_system().unwrap_or(TimeZone::UTC),
                database: jiff::tz::db().clone(),
            },
        })
    }

    fn named(&self, name: &str) -> Option<TimeZone> {
        if matches!(name, "utc" | "gmt" | "z") {
            return Some(TimeZone::UTC);
        }
        let name = name.strip_prefix("utc").or_else(|| name.strip_prefix("gmt")).unwrap_or(name);
        offset(name).map(TimeZone::fixed).or_else(|| self.read().database.get(name).ok())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageLimit {
    /// When it ends, in the agent's own words.
    pub text: String,
    pub until: Timestamp,
}

impl UsageLimit {
    /// Parses a limit message; returns `known` if the message is the same. `None` if the message does not say when
    /// the limit ends.
    pub fn read(text: &str, now: Timestamp, zones: &Zones, known: Option<&Self>) -> Option<Self> {
        let known = known.filter(|known| known.text == text && now < known.until.plus(REMEMBERED));
        known.cloned().or_else(|| {
            let until = reset_instant(text, now, zones)?;
            Some(Self { text: text.to_owned(), until })
        })
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }
}

/// The instant that a text means, read at `now`; `None` if it is of no form that is known.
pub fn reset_instant(text: &str, now: Timestamp, zones: &Zones) -> Option<Timestamp> {
    let text = text.trim();
    if text.len() > TEXT_BYTES_MAX || text.ends_with(',') {
        return None;
    }
    let text = text.trim_end_matches(['.', ';', '!']).trim_end();
    let lower = text.to_ascii_lowercase();
    epoch(&lower)
        .or_else(|| stretch(&lower).map(|left| now.plus(left)))
        .or_else(|| text.parse::<jiff::Timestamp>().ok().map(stamp))
        .or_else(|| calendar(&lower, now, zones))
}

fn stamp(instant: jiff::Timestamp) -> Timestamp {
    Timestamp::from_unix_millis(instant.as_millisecond())
}

fn epoch(text: &str) -> Option<Timestamp> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse::<i64>().ok().filter(|_| is_number)?;
    match text.len() {
        10 => Some(Timestamp::from_unix_millis(value * 1000)),
        13 => Some(Timestamp::from_unix_millis(value)),
        _ => None,
    }
}

/// `in 2 hours 5 minutes`: numbers with units, and nothing else.
fn stretch(text: &str) -> Option<Duration> {
    let text = text.strip_prefix("in ").unwrap_or(text).trim();
    if text == "less than a minute" {
        return Some(Duration::from_secs(60));
    }
    let (mut rest, mut whole) = (text, None::<Duration>);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let unit: u64 = match &rest[..letters] {
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => 60 * 60,
            "d" | "day" | "days" => 24 * 60 * 60,
            "w" | "week" | "weeks" => 7 * 24 * 60 * 60,
            _ => return None,
        };
        let part = Duration::from_secs(number.checked_mul(unit)?);
        whole = Some(whole.unwrap_or_default().checked_add(part)?);
        rest = rest[letters..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    whole.filter(|whole| *whole <= STRETCH_MAX)
}

#[derive(Default)]
struct DateParts {
    time: Option<Time>,
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    weekday: Option<Weekday>,
    /// In days from today.
    from_today: Option<i64>,
    zone: Option<TimeZone>,
}

fn calendar(text: &str, now: Timestamp, zones: &Zones) -> Option<Timestamp> {
    let parts = DateParts::read(text, zones)?;
    let zone = parts.zone.clone().unwrap_or_else(|| zones.read().local.clone());
    let now = jiff::Timestamp::from_millisecond(now.unix_millis()).ok()?;
    let here = now.to_zoned(zone.clone());
    let candidates = parts.candidates(&here)?;
    let instants = candidates.into_iter().filter_map(|at| at.to_zoned(zone.clone()).ok());
    let nearest = instants.min_by_key(|at| {
        at.timestamp().as_second().abs_diff(now.as_second() + parts.leaning_seconds())
    })?;
    Some(stamp(nearest.timestamp()))
}

impl DateParts {
    fn read(text: &str, zones: &Zones) -> Option<Self> {
        let mut parts = Self::default();
        let mut words: Vec<&str> = text
            .split(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | '(' | ')'))
            .filter(|word| !word.is_empty() && !matches!(*word, "at" | "on" | "the" | "t"))
            .collect();
        if words.len() > 8 {
            return None;
        }
        words.reverse();
        while let Some(word) = words.pop() {
            let half = words.last().copied().filter(|next| matches!(*next, "am" | "pm"));
            if let Some(time) = time_of_day(word, half) {
                put(&mut parts.time, time)?;
                if half.is_some() && !word.ends_with('m') {
                    words.pop();
                }
            } else {
                parts.parse_word(word, zones)?;
            }
        }
        (parts.time.is_some() || parts.month.is_some()).then_some(parts)
    }

    fn parse_word(&mut self, word: &str, zones: &Zones) -> Option<()> {
        if let Ok(date) = word.parse::<Date>() {
            put(&mut self.year, date.year())?;
            put(&mut self.month, date.month())?;
            return put(&mut self.day, date.day());
        }
        let number = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end));
        if let Ok(number) = number.unwrap_or(word).parse::<i16>() {
            return match number {
                1..=31 => put(&mut self.day, i8::try_from(number).ok()?),
                1970..=9000 => put(&mut self.year, number),
                _ => None,
            };
        }
        if let Some(days) = ["today", "tomorrow"].iter().position(|day| *day == word) {
            return put(&mut self.from_today, i64::try_from(days).ok()?);
        }
        let begins = |names: &[&str]| {
            let full = word.len() >= 3 && word.bytes().all(|b| b.is_ascii_lowercase());
            names.iter().position(|name| full && word.starts_with(name))
        };
        if let Some(month) = begins(&MONTHS) {
            return put(&mut self.month, i8::try_from(month + 1).ok()?);
        }
        if let Some(day) = begins(&WEEKDAYS) {
            let day = Weekday::from_monday_zero_offset(i8::try_from(day).ok()?).ok()?;
            return put(&mut self.weekday, day);
        }
        put(&mut self.zone, zones.named(word)?)
    }

    /// The times that may be meant; the nearest is.
    fn candidates(&self, here: &Zoned) -> Option<Vec<DateTime>> {
        let time = self.time.unwrap_or(Time::midnight());
        let today = here.date();
        let near = |days: std::ops::RangeInclusive<i64>| {
            days.filter_map(move |days| today.checked_add(days.days()).ok())
        };
        let dates: Vec<Date> = match *self {
            Self {
                year: Some(year), month: Some(month), day: Some(day), from_today: None, ..
            } => {
                vec![Date::new(year, month, day).ok()?]
            }
            Self { year: None, month: Some(month), day: Some(day), from_today: None, .. } => {
                let years = [today.year() - 1, today.year(), today.year() + 1];
                years.iter().filter_map(|year| Date::new(*year, month, day).ok()).collect()
            }
            Self {
                year: None,
                month: None,
                day: None,
                weekday: None,
                from_today: Some(days),
                ..
            } => near(days..=days).collect(),
            Self {
                year: None,
                month: None,
                day: None,
                weekday: Some(weekday),
                from_today: None,
                ..
            } => near(-7..=8).filter(|date| date.weekday() == weekday).collect(),
            Self {
                year: None, month: None, day: None, weekday: None, from_today: None, ..
            } => near(-1..=1).collect(),
            _ => return None,
        };
        Some(dates.into_iter().map(|date| date.to_datetime(time)).collect())
    }

    /// A weekday is sooner one of the coming week than of the past.
    fn leaning_seconds(&self) -> i64 {
        if self.weekday.is_some() && self.month.is_none() { 3 * 24 * 60 * 60 } else { 0 }
    }
}

/// Each part is said once.
fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// `3pm`, `3:45pm`, `3:45` with `pm` behind it, `15:00`, `15:00:30`.
fn time_of_day(word: &str, half_behind: Option<&str>) -> Option<Time> {
    let attached = ["am", "pm"].into_iter().find(|half| word.ends_with(half));
    let digits = attached.map_or(word, |half| &word[..word.len() - half.len()]);
    let numbers: Vec<i8> = digits
        .split(':')
        .map(|part| part.parse::<i8>().ok().filter(|_| (1..=2).contains(&part.len())))
        .collect::<Option<_>>()?;
    let half = attached.or(half_behind);
    let (hour, rest) = numbers.split_first()?;
    if rest.len() > 2 || (rest.is_empty() && half.is_none()) {
        return None;
    }
    let hour = match half {
        Some(_) if !(1..=12).contains(hour) => return None,
        Some("pm") => hour % 12 + 12,
        Some(_) => hour % 12,
        None => *hour,
    };
    let at = |index: usize| rest.get(index).copied().unwrap_or_default();
    Time::new(hour, at(0), at(1), 0).ok()
}

/// `+02:00`, `-0330`, `+2`.
fn offset(text: &str) -> Option<Offset> {
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i32, i32) = match digits.len() {
        1 | 2 => (digits.parse().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    (hours <= OFFSET_HOURS_MAX && minutes < 60).then_some(())?;
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}
