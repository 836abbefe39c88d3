//! Passes an observation on to the next process of the same boot.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{LOOK_GAP_MAX, LOOK_INTERVAL, LeaseLife, LeaseWatch, State, WatchedLease};
use crate::env::{Monotonic, millis};

/// The observations of an observer. They are valid only on their host and in their boot, because
/// the monotonic clock restarts with each boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSnapshot<K> {
    pub boot_id: String,
    /// When it was taken, in milliseconds of the monotonic clock.
    pub taken_at_ms: u64,
    /// How much longer expiry is on hold, in milliseconds.
    pub hold_ms: u64,
    /// How long after that the next look was due, in milliseconds.
    #[serde(default = "look_gap_max")]
    pub next_look_ms: u64,
    pub leases: Vec<LeaseObservation<K>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseObservation<K> {
    pub key: K,
    /// Its sequence number when it was last seen.
    pub sequence: u64,
    /// Age of that number when the snapshot was taken, in milliseconds.
    pub age_ms: u64,
}

impl<K: Ord + Clone> LeaseWatch<K> {
    pub fn snapshot(&self, now: Monotonic, boot_id: &str) -> LeaseSnapshot<K> {
        let watched = self.watched_until(now);
        let hold = match self.state {
            State::Judging => Duration::ZERO,
            State::Held { until } => until.saturating_sub(watched),
        };
        let observe = |(key, lease): (&K, &WatchedLease)| LeaseObservation {
            key: key.clone(),
            sequence: lease.sequence,
            age_ms: millis(watched.saturating_sub(lease.changed)),
        };
        LeaseSnapshot {
            boot_id: boot_id.to_owned(),
            taken_at_ms: millis(now.as_duration()),
            hold_ms: millis(hold),
            next_look_ms: millis(self.planned),
            leases: self.leases.iter().map(observe).collect(),
        }
    }

    /// Continues from a snapshot of the same boot; starts again with one of another boot.
    ///
    /// A number that is unchanged was unchanged in between, since holders never repeat one. So the
    /// time between the two processes counts, unlike time in which a single process did not look. But if none looked
    /// when a look was due, holders may have been stopped as well: a lease that ran out in that time gets its overtime,
    /// once.
    pub fn restore(now: Monotonic, boot_id: &str, snapshot: LeaseSnapshot<K>) -> Self {
        let taken_at = Monotonic::from_duration(Duration::from_millis(snapshot.taken_at_ms));
        let mut watch = Self::new(now);
        if snapshot.boot_id != boot_id || taken_at > now {
            return watch;
        }
        let between = now.since(taken_at);
        let ages = snapshot.leases.iter().map(|lease| Duration::from_millis(lease.age_ms));
        watch.watched = between.saturating_add(ages.max().unwrap_or_default());
        let hold = Duration::from_millis(snapshot.hold_ms).saturating_sub(between);
        if !hold.is_zero() {
            watch.state = State::Held { until: watch.watched.saturating_add(hold) };
        }
        let late = between.saturating_sub(Duration::from_millis(snapshot.next_look_ms));
        if snapshot.hold_ms == 0 && late > LOOK_INTERVAL {
            (watch.resumed_late, watch.planned) = (Some(late), Duration::ZERO);
        }
        for LeaseObservation { key, sequence, age_ms } in snapshot.leases {
            let age = between.saturating_add(Duration::from_millis(age_ms));
            let changed = watch.watched.saturating_sub(age);
            let (duration, life) = (Duration::MAX, LeaseLife::Restored);
            let lease =
                WatchedLease { sequence, duration, changed, seen: changed, in_scan: false, life };
            watch.leases.insert(key, lease);
        }
        watch
    }
}

fn look_gap_max() -> u64 {
    millis(LOOK_GAP_MAX)
}
