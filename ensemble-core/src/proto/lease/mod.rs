//! Judges by observation whether another process's lease has expired (seed 001's leases, without
//! trusting any wall clock).
//!
//! ```text
//! a lease    event                                     -> state     effects
//! absent     Seen                                      -> Running   (silent for 0 s)
//! Running    Seen, another sequence                    -> Running   (silent for 0 s)
//! Running    ScanDone, silent for its duration         -> Expired   Expire
//! Expired    Seen, another sequence                    -> Running   (renewed, or held by another)
//! Expired    ScanDone, still there a heartbeat later   -> Expired   Expire            (again)
//! any        Gone; ScanDone without having seen it     -> absent
//!
//! observer   event / time                              -> state     effects
//! Judging    ClockGap                                  -> Held      Record ClockGap
//! Judging    ScanDone, late, a silent lease ends soon  -> Held      Record LateLook
//! Held       ClockGap; ScanDone, the same              -> Held      (starts again)
//! Held       ScanDone, HOLD is over                    -> Judging   Expire all that are due
//! Held       ScanDone, a lease is past its overtime    -> Held      Expire that one
//! any        a lease falls due, or no look for a minute -> same      Look
//! ```
//!
//! A live holder changes a sequence number; timestamps are not compared. An observer may declare a lease expired only
//! under one condition: it has itself looked twice, a full duration apart, and seen the same number. The observer's
//! own absence proves nothing: time without a look counts for at most [`LOOK_GAP_MAX`], and not past the look that it
//! had asked for. So an observer that was stopped, starved or suspended asks for an [`Effect::Look`] instead of judging.
//!
//! What stopped the observer may have stopped the holders, too: a suspend, a container that was paused, a server that
//! was away. So after a clock gap, or a look that came more than [`LOOK_INTERVAL`] late, all holders get two
//! heartbeats to renew. A lease's *overtime*, its own duration but at most [`OVERTIME_MAX`], limits the sum of these
//! delays: a clock that jumps every minute cannot keep dead holders' leases alive. How many holders are silent says
//! nothing. A host that dies with all its agents loses all their leases at once.
//!
//! *Silence* is the input. *A crash* of the observer loses its observations; a [`LeaseSnapshot`] lets the next process of
//! the same boot continue. *A crash* between Expire and its execution is repaired by asking again. So the executor
//! must compare key and sequence (and increment the epoch) under its lock. A dead holder is detected within the
//! duration plus 85 s of running time, if the observer looks every [`LOOK_INTERVAL`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;

mod gap;
mod snapshot;
#[cfg(test)]
mod tests;

pub use gap::{CLOCK_GAP_MIN, ClockGap, GapDetector};
pub use snapshot::{LeaseObservation, LeaseSnapshot};

/// Interval at which a holder changes its sequence number.
pub const HEARTBEAT: Duration = Duration::from_secs(60);
/// How long expiry is on hold after a clock gap or a late look: two heartbeats.
pub const HOLD: Duration = Duration::from_secs(120);
/// Most time that all holds together can add to a silent lease's duration.
pub const OVERTIME_MAX: Duration = Duration::from_secs(55);
/// Interval at which an observer should look by itself.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Most that a time without a look counts.
pub const LOOK_GAP_MAX: Duration = Duration::from_secs(60);
/// Interval at which an unanswered [`Effect::Look`] is repeated.
pub const LOOK_REPEAT: Duration = Duration::from_secs(5);

const _: () = assert!(HOLD.as_secs() == 2 * HEARTBEAT.as_secs());
const _: () = assert!(OVERTIME_MAX.as_secs() + LOOK_INTERVAL.as_secs() <= 85);
const _: () = assert!(OVERTIME_MAX.as_secs() < HOLD.as_secs());
const _: () = assert!(2 * LOOK_INTERVAL.as_secs() <= LOOK_GAP_MAX.as_secs());
const _: () = assert!(LOOK_REPEAT.as_secs() < LOOK_INTERVAL.as_secs());

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    Seen {
        key: K,
        /// The holder's sequence number.
        sequence: u64,
        /// How long the lease lasts without a change of that number.
        duration: Duration,
    },
    /// A lease was released.
    Gone { key: K },
    /// The machine slept, or its wall clock was set; see [`GapDetector`].
    ClockGap(ClockGap),
    /// All leases have been seen; those not seen since the last scan are gone.
    ScanDone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// Scan all leases and report them, ending with [`Event::ScanDone`].
    Look,
    /// Expire the lease if, under the lock, it still has this sequence number.
    Expire {
        key: K,
        /// The sequence number that it had all the time.
        sequence: u64,
    },
    Record(LeaseRecord),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LeaseRecord {
    /// Expiry is on hold for [`HOLD`]. Further gaps during the hold are not recorded.
    ClockGap(ClockGap),
    /// The observer itself was stopped, and expiry is on hold for [`HOLD`].
    LateLook {
        /// How long after the look that was due, in seconds.
        seconds: u64,
    },
}

/// Time during which the observer was looking.
type WatchedTime = Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Judging,
    Held { until: WatchedTime },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseLife {
    /// Known from a snapshot, not seen yet.
    Restored,
    Running,
    Expired {
        asked: WatchedTime,
    },
}

#[derive(Clone, Copy, Debug)]
struct WatchedLease {
    sequence: u64,
    duration: Duration,
    /// When the sequence number was first seen.
    changed: WatchedTime,
    seen: WatchedTime,
    in_scan: bool,
    life: LeaseLife,
}

impl WatchedLease {
    fn silent(&self) -> Duration {
        self.seen.saturating_sub(self.changed)
    }

    /// When the lease may be expired if it does not change.
    fn deadline(&self, state: State) -> Option<WatchedTime> {
        let due = self.changed.saturating_add(self.duration);
        match (self.life, state) {
            (LeaseLife::Restored, State::Judging | State::Held { .. }) => None,
            (LeaseLife::Running, State::Judging) => Some(due),
            (LeaseLife::Running, State::Held { until }) => {
                let overtime = OVERTIME_MAX.min(self.duration);
                Some(due.max(until.min(due.saturating_add(overtime))))
            }
            (LeaseLife::Expired { asked }, State::Judging | State::Held { .. }) => {
                Some(asked + HEARTBEAT)
            }
        }
    }

    /// Whether it was silent for a while, and ends before `until` if it stays so.
    fn ends_before(&self, until: WatchedTime) -> bool {
        !self.silent().is_zero()
            && self.life == LeaseLife::Running
            && self.deadline(State::Judging).is_some_and(|at| at < until)
    }
}

#[derive(Clone, Debug)]
pub struct LeaseWatch<K> {
    state: State,
    leases: BTreeMap<K, WatchedLease>,
    watched: WatchedTime,
    looked_at: Monotonic,
    /// Time from the last look to the one that it asked for.
    planned: WatchedTime,
    look_asked_at: Option<Monotonic>,
    /// How late the first look of a process is that continues from a snapshot.
    resumed_late: Option<Duration>,
    effects: VecDeque<Effect<K>>,
}

impl<K: Ord + Clone> LeaseWatch<K> {
    /// An observer without observations.
    pub const fn new(now: Monotonic) -> Self {
        Self {
            state: State::Judging,
            leases: BTreeMap::new(),
            watched: Duration::ZERO,
            looked_at: now,
            planned: LOOK_GAP_MAX,
            look_asked_at: None,
            resumed_late: None,
            effects: VecDeque::new(),
        }
    }

    /// How long a lease has had the same sequence number; `None` for an unknown lease.
    pub fn silent_for(&self, key: &K) -> Option<Duration> {
        self.leases.get(key).map(WatchedLease::silent)
    }

    pub const fn is_on_hold(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    fn watched_until(&self, now: Monotonic) -> WatchedTime {
        let counted = match self.late_by(now) {
            Some(_) => self.planned,
            None => now.since(self.looked_at).min(LOOK_GAP_MAX),
        };
        self.watched + counted
    }

    /// How late a look is now, if the observer cannot have been running in between.
    fn late_by(&self, now: Monotonic) -> Option<Duration> {
        let late = now.since(self.looked_at).saturating_sub(self.planned);
        self.resumed_late.or_else(|| (late > LOOK_INTERVAL).then_some(late))
    }

    fn see(&mut self, now: Monotonic, key: K, sequence: u64, duration: Duration) {
        let seen = self.watched_until(now);
        let first = WatchedLease {
            sequence,
            duration,
            changed: seen,
            seen,
            in_scan: true,
            life: LeaseLife::Running,
        };
        let lease = self.leases.entry(key).or_insert(first);
        if lease.sequence != sequence {
            *lease = first;
        }
        lease.seen = seen;
        lease.duration = duration;
        lease.in_scan = true;
        if lease.life == LeaseLife::Restored {
            lease.life = LeaseLife::Running;
            if self.resumed_late.is_some() {
                lease.changed = lease.changed.max(seen.saturating_sub(duration));
            }
        }
    }

    fn scan_done(&mut self, now: Monotonic) {
        let late = self.late_by(now);
        self.watched = self.watched_until(now);
        self.looked_at = now;
        (self.look_asked_at, self.resumed_late) = (None, None);
        self.leases.retain(|_, lease| std::mem::take(&mut lease.in_scan));
        if matches!(self.state, State::Held { until } if self.watched >= until) {
            self.state = State::Judging;
        }
        let until = self.watched + HOLD;
        if let Some(late) = late
            && self.leases.values().any(|lease| lease.ends_before(until))
        {
            if self.state == State::Judging {
                let seconds = late.as_secs();
                self.effects.push_back(Effect::Record(LeaseRecord::LateLook { seconds }));
            }
            self.state = State::Held { until };
        }
        self.expire();
        self.planned = self.next_look_in().unwrap_or(LOOK_GAP_MAX);
    }

    /// Time from the last look to the next; `None` without a lease.
    fn next_look_in(&self) -> Option<Duration> {
        self.leases.first_key_value()?;
        let next = self.leases.values().filter_map(|lease| lease.deadline(self.state)).min();
        let wait = next.map_or(Duration::ZERO, |at| at.saturating_sub(self.watched));
        Some(wait.min(LOOK_GAP_MAX))
    }

    fn expire(&mut self) {
        for (key, lease) in &mut self.leases {
            if lease.deadline(self.state).is_some_and(|at| lease.seen >= at) {
                lease.life = LeaseLife::Expired { asked: lease.seen };
                let (key, sequence) = (key.clone(), lease.sequence);
                self.effects.push_back(Effect::Expire { key, sequence });
            }
        }
    }
}

impl<K: Ord + Clone> Machine for LeaseWatch<K> {
    type Event = Event<K>;
    type Effect = Effect<K>;

    fn handle(&mut self, now: Monotonic, event: Event<K>) {
        match (self.state, event) {
            (State::Judging | State::Held { .. }, Event::Seen { key, sequence, duration }) => {
                self.see(now, key, sequence, duration)
            }
            (State::Judging | State::Held { .. }, Event::Gone { key }) => {
                self.leases.remove(&key);
            }
            (state @ (State::Judging | State::Held { .. }), Event::ClockGap(gap)) => {
                if state == State::Judging {
                    self.effects.push_back(Effect::Record(LeaseRecord::ClockGap(gap)));
                }
                self.state = State::Held { until: self.watched_until(now) + HOLD };
            }
            (State::Judging | State::Held { .. }, Event::ScanDone) => self.scan_done(now),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.poll_timeout().is_some_and(|due| now >= due) {
            self.look_asked_at = Some(now);
            self.effects.push_back(Effect::Look);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect<K>> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        if let Some(asked) = self.look_asked_at.filter(|_| !self.leases.is_empty()) {
            return Some(asked + LOOK_REPEAT);
        }
        Some(self.looked_at + self.next_look_in()?)
    }
}
