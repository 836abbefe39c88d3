//! The calendar of the queue, by which it removes and expires instead of by the wall clock.
//!
//! `calendar.json` holds what all processes know of the wall clock ([`Calendar`]). Each process looks at its
//! clocks when it needs the time and writes the file if it saw something new. Of two that write at once one
//! is lost. The other's stamps then count as younger than they are, never as older.

use std::sync::PoisonError;
use std::time::Duration;

use super::Spool;
use super::place::FrontFile;
use crate::durable::{Dir, Durability, FileStat};
use crate::env;
use crate::message::Timestamp;
use crate::proto::calendar::{Calendar, ClockReading};

pub(crate) const FILE: &str = "calendar.json";
/// The largest such file, in bytes: 64 lines and 64 groups of stamps take a third of it.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// # Time
impl Spool {
    /// The queue's calendar, after reading the clocks. A jump of the wall clock makes nothing older by
    /// [`Calendar::age`]. Begins a calendar if the queue has none that can be read.
    pub fn calendar(&self) -> Calendar {
        let reading = self.reading();
        let mut calendar = match (self.read_calendar(), self.known_calendar().clone()) {
            (Some(written), Some(known)) if known.is_newer(&written) => known,
            (Some(calendar), _) | (None, Some(calendar)) => calendar,
            (None, None) => Calendar::begin(&reading),
        };
        calendar.read_clocks(&reading);
        calendar
    }

    /// Keeps what a calendar has seen, for all processes of the queue. Where it cannot be written, for instance
    /// on a full disk, this process alone knows it.
    pub fn keep_calendar(&self, mut calendar: Calendar) {
        if calendar.is_due() {
            // Without the file, stamps count as younger than they are.
            let _ = self.write_calendar(&calendar);
            calendar.note_written();
        }
        *self.known_calendar() = Some(calendar);
    }

    pub fn age(&self, stamp: Timestamp) -> Duration {
        let mut calendar = self.calendar();
        let age = calendar.age(stamp);
        self.keep_calendar(calendar);
        age
    }

    pub fn now(&self) -> Timestamp {
        let reading = self.reading();
        if let Some(calendar) = self.known_calendar().as_mut() {
            calendar.read_clocks(&reading);
            if calendar.is_believed() && !calendar.is_due() {
                return calendar.now();
            }
        }
        let calendar = self.calendar();
        let now = calendar.now();
        self.keep_calendar(calendar);
        now
    }

    /// As [`Spool::now`], in milliseconds since the Unix epoch.
    pub(crate) fn now_millis(&self) -> u64 {
        u64::try_from(self.now().unix_millis()).unwrap_or(0)
    }

    /// Whether a message of `front/` can be received now. After the clock was set back, a message is also due
    /// once its delay has passed since the stamp of its file.
    pub(super) fn is_due(&self, front: &Dir, message: &FrontFile) -> bool {
        if message.not_before == 0 || message.not_before <= self.now_millis() {
            return true;
        }
        let mut known = self.known_calendar();
        let Some(calendar) = known.as_mut().filter(|calendar| calendar.was_set_back()) else {
            return false;
        };
        let Ok(Some(stat)) = front.stat(&message.file()) else { return false };
        let released = stat.changed_at();
        let released_ms = u128::try_from(released.unix_millis()).unwrap_or(0);
        let delay = u128::from(message.not_before).saturating_sub(released_ms);
        calendar.age(released).as_millis() >= delay
    }

    fn known_calendar(&self) -> std::sync::MutexGuard<'_, Option<Calendar>> {
        self.calendar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> ClockReading {
        let clock = &self.options.clock;
        let boot = self.options.boot.as_deref().unwrap_or_else(|| env::boot_id());
        ClockReading::new(boot, clock.boottime(), clock.wall())
    }

    fn read_calendar(&self) -> Option<Calendar> {
        let content = self.queue_dir().ok()?.read(FILE, FILE_BYTES_MAX).ok()??;
        serde_json::from_slice(&content).ok()
    }

    fn write_calendar(&self, calendar: &Calendar) -> crate::Result<()> {
        let queue = self.queue_dir()?;
        let tmp = queue.ensure_child("tmp", self.options.modes)?;
        let content = serde_json::to_vec(calendar).unwrap_or_default();
        queue.replace(FILE, &content, &tmp, self.options.modes, Durability::Process)
    }
}

/// The steady time when a file was made or moved, at the latest, whichever stamp says later.
pub(crate) fn made(calendar: &mut Calendar, stat: &FileStat) -> i64 {
    calendar.made(stat.changed_at()).max(calendar.made(stat.modified_at()))
}

/// Whether a file has neither been changed nor moved for longer than `age`, by a queue's calendar.
pub fn is_older(calendar: &mut Calendar, stat: &FileStat, age: Duration) -> bool {
    let made = made(calendar, stat);
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    calendar.steady().saturating_sub(made) > age_ms
}
