//! Heartbeats, and an observer that judges only by its own observations.

use std::path::PathBuf;

use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, HEARTBEAT, LOOK_INTERVAL, LeaseWatch};
use ensemble_team::board::{scan, write_beat};
use ensemble_team::proto::beat::LEASE_DURATION;

use super::*;

/// One observer, and the time at which each agent was last alive.
pub(crate) struct Observer {
    watch: LeaseWatch<BoardLease>,
    looked: Monotonic,
    /// By name and registration: the sequence, and the time of its write.
    beats: BTreeMap<(Name, u64), (u64, Monotonic)>,
}

impl Default for Observer {
    fn default() -> Self {
        let watch = LeaseWatch::new(Monotonic::ZERO);
        Self { watch, looked: Monotonic::ZERO, beats: BTreeMap::new() }
    }
}

impl Sim {
    fn directory(&self) -> PathBuf {
        self.board.path().parent().unwrap().to_owned()
    }

    /// Every living agent that is not silent beats once a minute.
    pub(crate) fn beat(&mut self) {
        let directory = self.directory();
        for (_, actor) in &self.actors {
            let Some(registration) = actor.registration.as_ref() else { continue };
            let key = (registration.by.clone(), registration.epoch);
            let last = self.observer.beats.get(&key).copied();
            let is_due = last.is_none_or(|(_, at)| self.now >= at + HEARTBEAT);
            if is_due && self.now >= actor.silent_until {
                let sequence = last.map_or(0, |(sequence, _)| sequence) + 1;
                write_beat(&directory, registration, sequence, LEASE_DURATION).unwrap();
                self.observer.beats.insert(key, (sequence, self.now));
            }
        }
    }

    pub(crate) fn sequence_of(&self, lease: &BoardLease) -> u64 {
        let seen = scan(&self.before, &self.directory()).unwrap();
        let of = |event| match event {
            Event::Seen { key, sequence, .. } if key == *lease => Some(sequence),
            Event::Seen { .. } | Event::Gone { .. } | Event::ClockGap(_) | Event::ScanDone => None,
        };
        seen.into_iter().find_map(of).unwrap_or(0)
    }

    /// Checks all leases every half minute and ends those that have expired.
    pub(crate) fn observe(&mut self) {
        if self.now < self.observer.looked + LOOK_INTERVAL {
            return;
        }
        self.observer.looked = self.now;
        if self.dice.below(100) == 0 {
            // The observer dies, and the next one knows nothing.
            self.observer.watch = LeaseWatch::new(self.now);
        }
        for event in scan(&self.before, &self.directory()).unwrap() {
            self.observer.watch.handle(self.now, event);
        }
        while let Some(effect) = self.observer.watch.poll_effect() {
            match effect {
                Effect::Expire { key, sequence } => self.expire(&key, sequence),
                Effect::Look | Effect::Record(_) => {}
            }
        }
    }

    fn expire(&mut self, lease: &BoardLease, sequence: u64) {
        let registration = self.before.agents.get(lease.by()).and_then(|agent| agent.epoch);
        let what = format!("{lease:?} has run out");
        if self.change(what, |board| board.expire(lease, sequence)).is_none() {
            return;
        }
        self.expired += 1;
        // A registration that is as old as the lease has kept it by its beats.
        let Some(epoch) = registration.filter(|epoch| *epoch <= lease.epoch()) else { return };
        if let Some((_, at)) = self.observer.beats.get(&(lease.by().clone(), epoch)) {
            let silent: Duration = self.now.since(*at);
            assert!(silent >= LEASE_DURATION, "{lease:?} was silent for {silent:?} only");
        }
    }
}
