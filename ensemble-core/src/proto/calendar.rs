//! The calendar of a queue: what the wall clock is believed to say, and how long ago a stamp was made.
//!
//! ```text
//! the wall clock                               calendar          ages of stamps
//! goes on as the boot-time clock does          follows it        exact
//! jumps                                        goes on as before never grow by the jump
//! has stood by its new time for DOUBT          follows it        exact for stamps made since
//! jumps back to a time it had before           follows it        exact
//! the machine restarted, time went on          follows it        without the time it was off
//! the machine restarted, time went back        goes on as before without the time it was off
//! ```
//!
//! A wall clock that is not set moves on a *line*: wall time minus boot time stays the same. A jump begins
//! another line. Time that was seen to pass, by the boot-time clock, is *steady* time. Each line says
//! which steady time a stamp on it stands for. A stamp that several lines explain counts as made at the latest
//! of these times. A stamp that no line explains counts as made when it was first asked for. So
//! [`Calendar::age`] is never more than the true age, and what is removed by it was old.
//!
//! *A crash* loses nothing: the driver keeps the calendar in a file, and the next process continues.
//! Without the file all stamps count as made now, which removes nothing too early. *Silence* is not a jump: the
//! boot-time clock tells how long it lasted. A jump there and back between two looks leaves no line. Its stamps
//! are then explained by no line, or by one of which they claim to be older.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::env::Monotonic;
use crate::message::Timestamp;

/// How long the wall clock must stay on a new line before the calendar follows it.
pub const DOUBT: Duration = Duration::from_secs(10 * 60);
/// A wall clock that differs from a line by more, beside its drift, has left that line.
pub const JUMP_MIN: Duration = Duration::from_secs(2);
/// A clock may drift by one part in this many, which is far more than clocks and their correction do.
const DRIFT_PARTS: u64 = 1_000;
/// How many lines, and how many groups of unexplained stamps, are kept. The oldest are forgotten first, and
/// their stamps then count as made when they are asked for next.
const KEPT_MAX: usize = 64;
/// Unexplained stamps that differ by at most this, asked for at one look, share a group.
const GROUP_SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// How far a file's stamp may be behind the clock: file systems stamp by the kernel's last tick.
const STAMP_LAG: Duration = Duration::from_millis(20);
/// How much later than the last look a stamp may be that was made since.
const LOOK_LASTS: Duration = Duration::from_secs(10 * 60);
/// A calendar that only continued is written again after so much time.
const WRITE_INTERVAL: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    boot: String,
    boottime_ms: i64,
    wall_ms: i64,
}

impl ClockReading {
    pub fn new(boot: &str, boottime: Monotonic, wall: Timestamp) -> Self {
        let boottime_ms = i64::try_from(boottime.as_duration().as_millis()).unwrap_or(i64::MAX);
        Self { boot: boot.to_owned(), boottime_ms, wall_ms: wall.unix_millis() }
    }
}

/// Stamps that the wall clock made between two times when it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CalendarLine {
    number: u64,
    from_wall_ms: i64,
    from_steady_ms: i64,
    to_wall_ms: i64,
    to_steady_ms: i64,
}

impl CalendarLine {
    const fn begin(number: u64, wall_ms: i64, steady_ms: i64) -> Self {
        Self {
            number,
            from_wall_ms: wall_ms,
            from_steady_ms: steady_ms,
            to_wall_ms: wall_ms,
            to_steady_ms: steady_ms,
        }
    }

    /// The time of the wall clock on this line.
    const fn wall_at(&self, steady_ms: i64) -> i64 {
        self.to_wall_ms.saturating_add(steady_ms - self.to_steady_ms)
    }

    fn explains(&self, wall_ms: i64, steady_ms: i64) -> bool {
        let since_look = wall_ms.abs_diff(self.wall_at(steady_ms));
        let from = self.from_wall_ms.saturating_add(steady_ms - self.from_steady_ms);
        since_look <= drift(steady_ms - self.to_steady_ms)
            && wall_ms.abs_diff(from) <= drift(steady_ms - self.from_steady_ms)
    }

    /// The steady time of a stamp of this line.
    fn made(&self, stamp_ms: i64) -> Option<i64> {
        let is_on_it = (self.from_wall_ms..=self.to_wall_ms).contains(&stamp_ms);
        is_on_it.then(|| self.to_steady_ms - (self.to_wall_ms - stamp_ms))
    }
}

/// Stamps that no line explains, and the steady time when they were first asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UnexplainedStamps {
    from_wall_ms: i64,
    to_wall_ms: i64,
    steady_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// The wall clock's time when the calendar began; distinguishes it from a later one.
    began_ms: i64,
    boot: String,
    boottime_ms: i64,
    steady_ms: i64,
    lines: Vec<CalendarLine>,
    unexplained: Vec<UnexplainedStamps>,
    /// Number of the line on which the wall clock is.
    current: u64,
    /// When it moved to that line, in steady time.
    current_since_ms: i64,
    /// Number of the line that the calendar follows.
    believed: u64,
    /// Whether it differs from what was written.
    #[serde(skip)]
    is_changed: bool,
    #[serde(skip)]
    written_ms: Option<i64>,
}

impl Calendar {
    /// A calendar that knows of no time before this reading, and believes it.
    pub fn begin(reading: &ClockReading) -> Self {
        // A file that is made right after this reading may have a stamp from before it.
        let lag_ms = millis(STAMP_LAG);
        let line = CalendarLine {
            from_wall_ms: reading.wall_ms.saturating_sub(lag_ms),
            from_steady_ms: -lag_ms,
            ..CalendarLine::begin(0, reading.wall_ms, 0)
        };
        Self {
            began_ms: reading.wall_ms,
            boot: reading.boot.clone(),
            boottime_ms: reading.boottime_ms,
            steady_ms: 0,
            lines: vec![line],
            unexplained: Vec::new(),
            current: 0,
            current_since_ms: 0,
            believed: 0,
            is_changed: true,
            written_ms: None,
        }
    }

    /// Takes a reading of the clocks. Says by how many milliseconds the wall clock has been set, if it was.
    pub fn read_clocks(&mut self, reading: &ClockReading) -> Option<i64> {
        let is_restart = !self.is_of_boot(reading);
        self.written_ms.get_or_insert(self.steady_ms);
        self.steady_ms = self.steady_at(reading);
        self.boottime_ms = reading.boottime_ms;
        if is_restart {
            (self.boot, self.is_changed) = (reading.boot.clone(), true);
        }
        let expected = self.line(self.current).wall_at(self.steady_ms);
        let went_on = is_restart
            && reading.wall_ms >= self.now().unix_millis().saturating_sub(millis(JUMP_MIN));
        let line = self.line_of(reading.wall_ms);
        let is_jump = line != self.current;
        if is_jump {
            (self.current, self.current_since_ms) = (line, self.steady_ms);
            self.is_changed = true;
        }
        let steady_ms = self.steady_ms;
        if let Some(line) = self.lines.iter_mut().find(|known| known.number == line) {
            line.to_wall_ms = line.to_wall_ms.max(reading.wall_ms);
            line.to_steady_ms = steady_ms;
        }
        let has_stood = steady_ms - self.current_since_ms >= millis(DOUBT);
        if self.believed != line && (went_on || has_stood) {
            (self.believed, self.is_changed) = (line, true);
        }
        (is_jump && !is_restart).then(|| reading.wall_ms.saturating_sub(expected))
    }

    /// Whether the calendar follows the wall clock, as of the last look.
    pub const fn is_believed(&self) -> bool {
        self.current == self.believed
    }

    /// The calendar's time at the last look.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.line(self.believed).wall_at(self.steady_ms))
    }

    /// How long ago this stamp was made, at the least, at the last look.
    pub fn age(&mut self, stamp: Timestamp) -> Duration {
        let made = self.made(stamp);
        Duration::from_millis(u64::try_from(self.steady_ms - made).unwrap_or(0))
    }

    /// The steady time when this stamp was made, at the latest, in milliseconds.
    pub fn made(&mut self, stamp: Timestamp) -> i64 {
        let stamp_ms = stamp.unix_millis();
        let explained = self.lines.iter().filter_map(|line| line.made(stamp_ms));
        let groups = self
            .unexplained
            .iter()
            .filter(|group| (group.from_wall_ms..=group.to_wall_ms).contains(&stamp_ms));
        if let Some(latest) = explained.chain(groups.map(|group| group.steady_ms)).max() {
            return latest;
        }
        let looked_at = self.line(self.current).to_wall_ms;
        let end = looked_at.saturating_add(millis(LOOK_LASTS));
        if !(looked_at..=end).contains(&stamp_ms) {
            self.note_unexplained(stamp_ms);
        }
        self.steady_ms
    }

    /// The steady time of the last look, in milliseconds since the calendar began.
    pub const fn steady(&self) -> i64 {
        self.steady_ms
    }

    /// Whether this calendar has read the clocks more recently than that one.
    pub fn is_newer(&self, other: &Self) -> bool {
        self.began_ms == other.began_ms && self.steady_ms >= other.steady_ms
    }

    /// Identifies this calendar: one that begins again, since its file was lost, has another.
    pub const fn identity(&self) -> i64 {
        self.began_ms
    }

    /// Whether it is to be written: it has changed, or was written long ago.
    pub fn is_due(&self) -> bool {
        let written = self.written_ms.unwrap_or(self.steady_ms);
        self.is_changed || self.steady_ms - written >= millis(WRITE_INTERVAL)
    }

    pub const fn note_written(&mut self) {
        (self.is_changed, self.written_ms) = (false, Some(self.steady_ms));
    }

    /// Whether the wall clock has been set back: a line reaches beyond the time that is believed.
    pub fn was_set_back(&self) -> bool {
        let now = self.now().unix_millis().saturating_add(millis(JUMP_MIN));
        self.lines.iter().any(|line| line.to_wall_ms > now)
    }

    fn is_of_boot(&self, reading: &ClockReading) -> bool {
        self.boot == reading.boot && reading.boottime_ms >= self.boottime_ms
    }

    /// After a restart, only the time since then was seen to pass.
    fn steady_at(&self, reading: &ClockReading) -> i64 {
        let passed = if self.is_of_boot(reading) {
            reading.boottime_ms - self.boottime_ms
        } else if self.boot == reading.boot {
            0
        } else {
            reading.boottime_ms
        };
        self.steady_ms.saturating_add(passed)
    }

    /// A line that is kept; the newest if a file names one that is not.
    fn line(&self, number: u64) -> CalendarLine {
        let known =
            self.lines.iter().find(|line| line.number == number).or_else(|| self.lines.last());
        known.copied().unwrap_or_else(|| CalendarLine::begin(number, self.began_ms, 0))
    }

    /// The line that explains what the wall clock says; begins one if there is none.
    fn line_of(&mut self, wall_ms: i64) -> u64 {
        let at = self.steady_ms;
        let number = |line: &CalendarLine| line.explains(wall_ms, at).then_some(line.number);
        let current = number(&self.line(self.current));
        if let Some(known) = current.or_else(|| self.lines.iter().rev().find_map(number)) {
            return known;
        }
        let next = self.lines.iter().map(|line| line.number).max().map_or(0, |last| last + 1);
        if self.lines.len() >= KEPT_MAX {
            let kept = [self.current, self.believed];
            let old =
                self.lines.iter().enumerate().filter(|(_, line)| !kept.contains(&line.number));
            if let Some((index, _)) = old.min_by_key(|(_, line)| line.to_steady_ms) {
                self.lines.remove(index);
            }
        }
        self.lines.push(CalendarLine::begin(next, wall_ms, at));
        next
    }

    fn note_unexplained(&mut self, stamp_ms: i64) {
        self.is_changed = true;
        let (steady_ms, span) = (self.steady_ms, millis(GROUP_SPAN));
        let near = self.unexplained.iter_mut().find(|group| {
            group.steady_ms == steady_ms
                && (group.from_wall_ms.saturating_sub(span)..=group.to_wall_ms.saturating_add(span))
                    .contains(&stamp_ms)
        });
        if let Some(group) = near {
            group.from_wall_ms = group.from_wall_ms.min(stamp_ms);
            group.to_wall_ms = group.to_wall_ms.max(stamp_ms);
            return;
        }
        if self.unexplained.len() >= KEPT_MAX {
            self.unexplained.remove(0);
        }
        self.unexplained.push(UnexplainedStamps {
            from_wall_ms: stamp_ms,
            to_wall_ms: stamp_ms,
            steady_ms,
        });
    }
}

/// How far a clock may be off after this time without having been set.
fn drift(passed_ms: i64) -> u64 {
    passed_ms.unsigned_abs() / DRIFT_PARTS + JUMP_MIN.as_secs() * 1_000
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
