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
//! Judging    ScanDone, over half of >= 4 holders late  -> Paused    Record MassExpiry
//! Held       ScanDone, the same, one past OVERTIME_MAX -> Paused    Record MassExpiry
//! Held       ClockGap                                  -> Held      (starts again)
//! Held       ScanDone, HOLD is over                    -> Judging   Expire all that are due
//! Held       ScanDone, OVERTIME_MAX past its duration  -> Held      Expire that one
//! Paused     ClockGap                                  -> Paused    (no lease is judged anyway)
//! Paused     ScanDone, HOLD is over                    -> Judging   Expire all that are due
//! any        a lease falls due, or no look for a minute -> same      Look
//! ```
//!
//! A live holder changes a sequence number; timestamps are not compared. An observer may declare a lease expired only
//! under one condition: it has itself looked twice, a full duration apart, and seen the same number. The observer's
//! own absence proves nothing: time without a look counts for at most [`LOOK_GAP_MAX`]. So an observer that was
//! stopped, starved or suspended asks for an [`Effect::Look`] instead of judging.
//!
//! Two more doubts postpone a judgement. After a clock gap (a suspend, a jump of the wall clock) all holders get two
//! heartbeats to renew. [`OVERTIME_MAX`] limits the sum of all gaps, so a clock that jumps every minute cannot keep
//! dead holders' leases alive. If more than half of the holders seem to die within one heartbeat, a fault between them and
//! the observer is likelier. That is recorded, and waited out once, by any number of processes. One holder of many
//! leases is one holder.
//!
//! *Silence* is the input. *A crash* of the observer loses its observations; a [`LeaseSnapshot`] lets the next process of
//! the same boot continue. *A crash* between Expire and its execution is repaired by asking again. So the executor
//! must compare key and sequence (and increment the epoch) under its lock. A dead holder is detected within the
//! duration plus 85 s of running time, if the observer looks every [`LOOK_INTERVAL`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// How long expiry is on hold after a clock gap or a mass expiry: two heartbeats.
pub const HOLD: Duration = Duration::from_secs(120);
/// Most time that all clock gaps together can add to a silent lease's duration.
pub const OVERTIME_MAX: Duration = Duration::from_secs(55);
/// Interval at which an observer should look by itself.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Most that a time without a look counts.
pub const LOOK_GAP_MAX: Duration = Duration::from_secs(60);
/// Interval at which an unanswered [`Effect::Look`] is repeated.
pub const LOOK_REPEAT: Duration = Duration::from_secs(5);
/// Number of holders from which on a mass expiry is recognized.
pub const MASS_MIN: usize = 4;

const _: () = assert!(HOLD.as_secs() == 2 * HEARTBEAT.as_secs());
const _: () = assert!(OVERTIME_MAX.as_secs() + LOOK_INTERVAL.as_secs() <= 85);
const _: () = assert!(OVERTIME_MAX.as_secs() < HOLD.as_secs());
const _: () = assert!(2 * LOOK_INTERVAL.as_secs() <= LOOK_GAP_MAX.as_secs());
const _: () = assert!(LOOK_REPEAT.as_secs() < LOOK_INTERVAL.as_secs());

/// The identity of a lease. It names its holder, since a dead holder of many leases is one death.
pub trait LeaseKey: Ord + Clone {
    type Holder: Ord + ?Sized;

    fn holder(&self) -> &Self::Holder;
}

impl LeaseKey for &str {
    type Holder = str;

    fn holder(&self) -> &str {
        self
    }
}

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
    /// Write this to the event log.
    Record(LeaseRecord),
}

/// A record for the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LeaseRecord {
    /// Expiry is on hold for [`HOLD`]. Further gaps during the hold are not recorded.
    ClockGap(ClockGap),
    /// Too many holders are about to lose their leases together: expiry is paused for [`HOLD`].
    MassExpiry {
        /// Number of holders of late leases.
        late: usize,
        /// Number of all holders.
        of: usize,
    },
}

/// Time during which the observer was looking.
type WatchedTime = Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Judging,
    Held { until: WatchedTime },
    Paused { until: WatchedTime },
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

    /// Whether the lease will be due within one heartbeat (or a fifth of a short duration).
    fn is_late(&self) -> bool {
        let margin = HEARTBEAT.min(self.duration / 5);
        self.life == LeaseLife::Running && self.silent() + margin >= self.duration
    }

    /// When the lease may be expired if it does not change.
    fn deadline(&self, state: State) -> Option<WatchedTime> {
        let due = self.changed.saturating_add(self.duration);
        match (self.life, state) {
            (LeaseLife::Restored, State::Judging | State::Held { .. } | State::Paused { .. }) => {
                None
            }
            (LeaseLife::Running, State::Judging) => Some(due),
            (LeaseLife::Running, State::Held { until }) => {
                Some(due.max(until.min(due.saturating_add(OVERTIME_MAX))))
            }
            (LeaseLife::Running, State::Paused { until }) => Some(due.max(until)),
            (
                LeaseLife::Expired { asked },
                State::Judging | State::Held { .. } | State::Paused { .. },
            ) => Some(asked + HEARTBEAT),
        }
    }
}

/// The machine of one observer; see the module's table.
#[derive(Clone, Debug)]
pub struct LeaseWatch<K> {
    state: State,
    leases: BTreeMap<K, WatchedLease>,
    watched: WatchedTime,
    looked_at: Monotonic,
    look_asked_at: Option<Monotonic>,
    effects: VecDeque<Effect<K>>,
}

impl<K: LeaseKey> LeaseWatch<K> {
    /// An observer without observations.
    pub const fn new(now: Monotonic) -> Self {
        Self {
            state: State::Judging,
            leases: BTreeMap::new(),
            watched: Duration::ZERO,
            looked_at: now,
            look_asked_at: None,
            effects: VecDeque::new(),
        }
    }

    /// How long a lease has had the same sequence number; `None` for an unknown lease.
    pub fn silent_for(&self, key: &K) -> Option<Duration> {
        self.leases.get(key).map(WatchedLease::silent)
    }

    /// Whether expiry is on hold or paused.
    pub const fn is_on_hold(&self) -> bool {
        match self.state {
            State::Judging => false,
            State::Held { .. } | State::Paused { .. } => true,
        }
    }

    fn watched_until(&self, now: Monotonic) -> WatchedTime {
        self.watched + now.since(self.looked_at).min(LOOK_GAP_MAX)
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
        }
    }

    fn scan_done(&mut self, now: Monotonic) -> State {
        self.watched = self.watched_until(now);
        self.looked_at = now;
        self.look_asked_at = None;
        self.leases.retain(|_, lease| std::mem::take(&mut lease.in_scan));
        match self.state {
            State::Paused { until } if self.watched >= until => {
                self.expire(State::Judging);
                State::Judging
            }
            State::Held { until } if self.watched >= until => self.judge(State::Judging),
            State::Judging | State::Held { .. } => self.judge(self.state),
            State::Paused { .. } => {
                self.expire(self.state);
                self.state
            }
        }
    }

    fn judge(&mut self, state: State) -> State {
        let is_due = |lease: &WatchedLease| {
            lease.life == LeaseLife::Running
                && lease.deadline(state).is_some_and(|at| lease.seen >= at)
        };
        if !self.leases.values().any(is_due) {
            self.expire(state);
            return state;
        }
        let of = self.count_holders(|lease| lease.life == LeaseLife::Running);
        let late = self.count_holders(WatchedLease::is_late);
        if of >= MASS_MIN && 2 * late > of {
            self.effects.push_back(Effect::Record(LeaseRecord::MassExpiry { late, of }));
            return State::Paused { until: self.watched + HOLD };
        }
        self.expire(state);
        state
    }

    fn count_holders(&self, is_counted: impl Fn(&WatchedLease) -> bool) -> usize {
        let counted = self.leases.iter().filter(|(_, lease)| is_counted(lease));
        counted.map(|(key, _)| key.holder()).collect::<BTreeSet<_>>().len()
    }

    fn expire(&mut self, state: State) {
        for (key, lease) in &mut self.leases {
            if lease.deadline(state).is_some_and(|at| lease.seen >= at) {
                lease.life = LeaseLife::Expired { asked: lease.seen };
                let (key, sequence) = (key.clone(), lease.sequence);
                self.effects.push_back(Effect::Expire { key, sequence });
            }
        }
    }
}

impl<K: LeaseKey> Machine for LeaseWatch<K> {
    type Event = Event<K>;
    type Effect = Effect<K>;

    fn handle(&mut self, now: Monotonic, event: Event<K>) {
        self.state = match (self.state, event) {
            (
                State::Judging | State::Held { .. } | State::Paused { .. },
                Event::Seen { key, sequence, duration },
            ) => {
                self.see(now, key, sequence, duration);
                self.state
            }
            (State::Judging | State::Held { .. } | State::Paused { .. }, Event::Gone { key }) => {
                self.leases.remove(&key);
                self.state
            }
            (State::Judging, Event::ClockGap(gap)) => {
                self.effects.push_back(Effect::Record(LeaseRecord::ClockGap(gap)));
                State::Held { until: self.watched_until(now) + HOLD }
            }
            (State::Held { .. }, Event::ClockGap(_)) => {
                State::Held { until: self.watched_until(now) + HOLD }
            }
            (State::Paused { until }, Event::ClockGap(_)) => State::Paused { until },
            (State::Judging | State::Held { .. } | State::Paused { .. }, Event::ScanDone) => {
                self.scan_done(now)
            }
        };
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
        if self.leases.is_empty() {
            return None;
        }
        if let Some(asked) = self.look_asked_at {
            return Some(asked + LOOK_REPEAT);
        }
        let next = self.leases.values().filter_map(|lease| lease.deadline(self.state)).min();
        let wait = next.map_or(Duration::ZERO, |at| at.saturating_sub(self.watched));
        Some(self.looked_at + wait.min(LOOK_GAP_MAX))
    }
}
