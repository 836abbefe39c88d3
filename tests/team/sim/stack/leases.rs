//! The watcher's observation of leases: it scans, judges, and expires silent ones.

use std::collections::BTreeSet;

use ensemble_core::proto::lease::{
    ClockGap, Effect, Event, GapDetector, HOLD, LOOK_GAP_MAX, LOOK_INTERVAL, LeaseWatch,
    OVERTIME_MAX,
};

use super::world::tests::is_blind;

use super::*;

pub(super) const DURATION: Duration = Duration::from_secs(300);
/// Delay that the loop itself may add.
const SLACK: Duration = Duration::from_secs(15);
const BOOT: &str = "boot";

pub(super) struct Watching {
    machine: LeaseWatch<Key>,
    clocks: GapDetector,
    next_look: Monotonic,
    /// Start of the current observer, whose observations were not lost since.
    since: Monotonic,
    /// Until then its own refusal, or restart, delays it.
    delayed_until: Monotonic,
    /// When it was stopped together with all workers, the last time, and until when.
    frozen: (Monotonic, Monotonic),
    /// Leases that it has asked to expire and that still exist.
    asked: BTreeSet<Key>,
}

impl Watching {
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            machine: LeaseWatch::new(now),
            clocks: GapDetector::default(),
            next_look: now,
            since: now,
            delayed_until: now,
            frozen: (Monotonic::ZERO, Monotonic::ZERO),
            asked: BTreeSet::new(),
        }
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let own = self.machine.poll_timeout();
        let next = own.map_or(self.next_look, |own| own.min(self.next_look));
        Some(next.max(self.frozen.1))
    }

    fn life(&self, key: &Key) -> &'static str {
        match (self.machine.silent_for(key), self.asked.contains(key)) {
            (None, _) => "absent",
            (Some(_), true) => "Expired",
            (Some(_), false) => "Running",
        }
    }
}

impl World {
    pub(super) fn watch_leases(&mut self) -> Result<(), String> {
        if self.is_frozen() {
            return Ok(());
        }
        let (now, boot, wall) = (self.now(), self.clock.boottime(), self.clock.wall());
        if let Some(gap) = self.watching.clocks.compare_clocks(now, boot, wall) {
            self.gap(gap)?;
        }
        if self.watching.machine.poll_timeout().is_some_and(|due| now >= due) {
            self.watching.machine.handle_timeout(now);
            let effects = drain(&mut self.watching.machine);
            self.rows.note("lease", ("", "Time", ""), &printed(&effects))?;
            if effects.contains(&Effect::Look) {
                self.watching.next_look = now;
            }
        }
        if now >= self.watching.next_look {
            self.watching.next_look = now + LOOK_INTERVAL;
            self.look()?;
        }
        Ok(())
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.now() < self.watching.frozen.1
    }

    /// Stops the observer and all workers, as of a container that is paused. The workers need a while to renew.
    pub(super) fn freeze(&mut self) {
        if self.is_frozen() || self.watching.machine.is_on_hold() {
            return;
        }
        let now = self.now();
        let least = LOOK_GAP_MAX + LOOK_INTERVAL + SLACK;
        let thawed = now + least + self.rng.time_below(Duration::from_secs(3_600));
        self.watching.frozen = (now, thawed);
        // Time in which it does not look says nothing about a holder.
        self.watching.since = thawed;
        for worker in 0..self.workers.len() {
            let renews = thawed + self.rng.time_below(OVERTIME_MAX);
            let stopped = &mut self.workers[worker].stopped_until;
            *stopped = Some(stopped.map_or(renews, |until| until.max(renews)));
        }
    }

    fn gap(&mut self, gap: ClockGap) -> Result<(), String> {
        let before = state_of(&self.watching.machine);
        self.watching.machine.handle(self.clock.monotonic(), Event::ClockGap(gap));
        let effects = drain(&mut self.watching.machine);
        let after = state_of(&self.watching.machine);
        self.rows.note("lease", (&before, "ClockGap", &after), &printed(&effects))
    }

    fn held(&self) -> Vec<Key> {
        let cells = self.cells.iter().enumerate().filter_map(|(at, cell)| cell.key(at));
        let steps = self.steps.iter().enumerate().filter_map(|(at, step)| step.key(at));
        cells.chain(steps).collect()
    }

    fn look(&mut self) -> Result<(), String> {
        let now = self.now();
        if is_blind() {
            return Ok(());
        }
        let held = self.held();
        for key in &held {
            let Some(beat) = self.beats.get(key).copied() else { continue };
            let (before, was) = (self.watching.life(key), self.watching.machine.silent_for(key));
            let event = Event::Seen { key: *key, sequence: beat.sequence, duration: DURATION };
            self.watching.machine.handle(now, event);
            let silent = self.watching.machine.silent_for(key);
            let is_renewed =
                silent == Some(Duration::ZERO) && was.is_some_and(|was| was > Duration::ZERO);
            if is_renewed {
                self.watching.asked.remove(key);
            }
            let after =
                if before == "Running" && is_renewed { "renewed" } else { self.watching.life(key) };
            self.rows.note("lease", (before, "Seen", after), &[])?;
        }
        let known: Vec<Key> = self.beats.keys().copied().collect();
        for key in known.into_iter().filter(|key| !held.contains(key)) {
            let before = self.watching.life(&key);
            self.watching.machine.handle(now, Event::Gone { key });
            self.beats.remove(&key);
            self.watching.asked.remove(&key);
            if before != "absent" {
                self.rows.note("lease", (before, "Gone", "absent"), &[])?;
            }
        }
        let before = state_of(&self.watching.machine);
        self.watching.machine.handle(now, Event::ScanDone);
        let effects = drain(&mut self.watching.machine);
        let after = state_of(&self.watching.machine);
        self.rows.note("lease", (&before, "ScanDone", &after), &printed(&effects))?;
        effects.into_iter().try_for_each(|effect| self.expire(effect))
    }

    fn expire(&mut self, effect: Effect<Key>) -> Result<(), String> {
        let Effect::Expire { key, sequence } = effect else { return Ok(()) };
        let before = self.watching.life(&key);
        self.watching.asked.insert(key);
        self.rows.note("lease", (before, "ScanDone", "Expired"), &[])?;
        // The expiry may come too late, be killed, or wait for a lock: the observer asks again.
        if self.rng.percent(15) {
            self.watching.delayed_until =
                self.now() + ensemble_core::proto::lease::HEARTBEAT + LOOK_INTERVAL;
            return Ok(());
        }
        let Some(beat) = self.beats.get(&key).copied().filter(|beat| beat.sequence == sequence)
        else {
            return Ok(());
        };
        let silent = self.now().since(beat.at);
        let (frozen, thawed) = self.watching.frozen;
        let was_running = beat.at <= frozen && frozen.since(beat.at) < DURATION;
        if was_running && self.now().since(frozen) < thawed.since(frozen) + OVERTIME_MAX {
            return Err(format!("{key:?} was taken away just after all were stopped"));
        }
        let holder = &self.workers[beat.worker];
        if holder.runs(self.now()) && silent < DURATION {
            return Err(format!("{key:?} of {} was taken away after {silent:?}", holder.name));
        }
        if silent < DURATION {
            return Err(format!("{key:?} was taken away after {silent:?} only"));
        }
        match key {
            Key('s', at, epoch) => self.step_lease_ended(at, epoch),
            Key(_, at, epoch) => self.task_lease_ended(at, epoch),
        }
    }

    /// The watcher dies and restarts, with or without its saved observations.
    pub(super) fn watcher_restarts(&mut self) {
        let now = self.now();
        let snapshot = self.watching.machine.snapshot(now, BOOT);
        if self.rng.percent(60) {
            self.watching.machine = LeaseWatch::restore(now, BOOT, snapshot);
            self.watching.clocks = GapDetector::default();
        } else {
            self.watching = Watching::new(now);
        }
        self.watching.asked.clear();
        // The next watcher asks again for pending expiries.
        self.watching.delayed_until = now + HOLD;
        self.requests_restart();
        self.files.restart(now);
    }

    /// Checks that a dead holder is detected in time.
    pub(super) fn check_leases(&self) -> Result<(), String> {
        let now = self.now();
        for key in self.held() {
            let Some(beat) = self.beats.get(&key) else {
                return Err(format!("{key:?} is held without a sign of life"));
            };
            let known = beat.at.max(self.watching.since);
            let limit = DURATION + OVERTIME_MAX + LOOK_INTERVAL + SLACK;
            let due = (known + limit).max(self.watching.delayed_until + LOOK_INTERVAL + SLACK);
            if now > due {
                return Err(format!("{key:?} is dead since {:?}", now.since(beat.at)));
            }
        }
        Ok(())
    }
}
