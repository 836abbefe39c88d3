//! The world: clocks, workers and the disk.

use ensemble_core::message::Timestamp;
use ensemble_core::proto::lease::HEARTBEAT;
use ensemble_core::sim::SimClock;

use super::files::Files;
use super::leases::Watching;
use super::requests::Asked;
use super::team::Pair;
use super::work::{Cell, Steps};

use super::*;

const CELLS: usize = 8;
/// Longest delay of the loop.
const TICK: Duration = Duration::from_secs(10);

/// Key of a lease: `t` a task, `r` its review, `s` a step; its index; its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) char, pub(super) usize, pub(super) u64);

/// A worker. Its memory may be out of date.
pub(super) struct Worker {
    pub(super) name: Name,
    pub(super) is_alive: bool,
    pub(super) stopped_until: Option<Monotonic>,
    next_beat: Monotonic,
    pub(super) task: Option<(usize, u64)>,
    pub(super) review: Option<(usize, u64, String)>,
    pub(super) step: Option<(usize, u64)>,
}

impl Worker {
    pub(super) fn runs(&self, now: Monotonic) -> bool {
        self.is_alive && self.stopped_until.is_none_or(|until| now >= until)
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let task = self.task.map(|(at, epoch)| Key('t', at, epoch));
        let review = self.review.as_ref().map(|(at, epoch, _)| Key('r', *at, *epoch));
        let step = self.step.map(|(at, epoch)| Key('s', at, epoch));
        [task, review, step].into_iter().flatten()
    }
}

/// The sign of life of one lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    pub(super) sequence: u64,
    pub(super) at: Monotonic,
    pub(super) worker: usize,
}

pub(super) struct World {
    pub(super) clock: SimClock,
    pub(super) rng: SimRng,
    pub(super) rows: Rows,
    pub(super) workers: Vec<Worker>,
    pub(super) cells: Vec<Cell>,
    pub(super) steps: Vec<Steps>,
    pub(super) beats: BTreeMap<Key, Beat>,
    pub(super) epoch: u64,
    pub(super) watching: Watching,
    pub(super) requests: Vec<Asked>,
    pub(super) files: Files,
    pub(super) pairs: Vec<Pair>,
}

impl World {
    pub(super) fn new(workers: usize) -> Self {
        let name = |number| Name::new(format!("worker-{number}")).expect("a name");
        let worker = |number| Worker {
            name: name(number),
            is_alive: true,
            stopped_until: None,
            next_beat: Monotonic::ZERO,
            task: None,
            review: None,
            step: None,
        };
        Self {
            clock: SimClock::new(Timestamp::from_unix_millis(1_768_469_400_000)),
            rng: SimRng::new(0),
            rows: Rows::default(),
            workers: (0..workers).map(worker).collect(),
            cells: (0..CELLS).map(|_| Cell::new()).collect(),
            steps: (0..CELLS).map(|_| Steps::new()).collect(),
            beats: BTreeMap::new(),
            epoch: 0,
            watching: Watching::new(Monotonic::ZERO),
            requests: Vec::new(),
            files: Files::new(),
            pairs: (0..workers).map(|number| Pair::new(name(number))).collect(),
        }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    pub(super) fn draw_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Lets time pass with everything that is due in it, then applies an operation.
    pub(super) fn happen(&mut self, op: Op) -> Result<(), String> {
        let until = self.now() + op.after;
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            self.clock.advance_to(due);
            self.let_due_happen()?;
            self.check()?;
        }
        self.clock.advance_to(until);
        // The random choices belong to the operation: a run with fewer operations makes the same
        // choices.
        self.rng = SimRng::new(op.dice);
        self.act(op)?;
        self.settle_down()?;
        self.check()
    }

    fn act(&mut self, op: Op) -> Result<(), String> {
        let now = self.now();
        match op.what {
            What::Task => return self.work_on_task(op.worker),
            What::Plan => return self.plan(),
            What::Step => return self.work_on_step(op.worker),
            What::Order => return self.order(),
            What::Ask => self.ask(op.worker),
            What::Say => return self.say(op.worker),
            What::Team => return self.team(op.worker),
            What::Assign => self.assign(op.worker),
            What::Crash => self.crash(op.worker),
            What::CrashAll => (0..self.workers.len()).for_each(|worker| self.crash(worker)),
            What::Restart => {
                let worker = &mut self.workers[op.worker];
                (worker.is_alive, worker.next_beat) = (true, now);
            }
            What::Stop => {
                let stopped = self.rng.time_below(Duration::from_secs(900));
                self.workers[op.worker].stopped_until = Some(now + stopped);
            }
            What::WatcherCrash if self.is_frozen() => {}
            What::WatcherCrash => self.watcher_restarts(),
            What::Suspend => {
                let most = *self.rng.pick(&[10, 600, 40_000]).expect("some");
                let slept = self.rng.time_below(Duration::from_secs(most));
                self.clock.suspend(slept);
            }
            What::Freeze => self.freeze(),
            What::Jump => {
                let wall = self.clock.wall().unix_millis();
                let by = i64::try_from(self.rng.below(14_400_000)).unwrap_or(0) - 7_200_000;
                self.clock.set_wall(Timestamp::from_unix_millis(wall + by));
            }
            What::Drop => self.files.land(now, self.rng.percent(10)),
            What::Source => return self.source(),
        }
        Ok(())
    }

    /// The worker forgets everything; its leases stay.
    fn crash(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        worker.is_alive = false;
        (worker.task, worker.review, worker.step) = (None, None, None);
    }

    fn next_due(&self) -> Option<Monotonic> {
        let now = self.now();
        let beat = self.workers.iter().filter(|worker| worker.is_alive).map(|worker| {
            worker.stopped_until.map_or(worker.next_beat, |until| worker.next_beat.max(until))
        });
        let own = [self.watching.next_due(), self.files.next_due()].into_iter().flatten();
        let requests = self.requests.iter().filter_map(Asked::next_due);
        let steps = self.steps.iter().filter_map(Steps::next_due);
        let pairs = self.pairs.iter().filter_map(Pair::next_due);
        let next = beat.chain(own).chain(requests).chain(steps).chain(pairs).min()?;
        Some(next.max(now).min(now + TICK))
    }

    fn let_due_happen(&mut self) -> Result<(), String> {
        self.beat();
        self.settle_down()
    }

    /// Wakes every machine that is due, until none is due.
    fn settle_down(&mut self) -> Result<(), String> {
        self.beat();
        self.watch_leases()?;
        self.wake_requests()?;
        self.wake_files()?;
        self.wake_steps()?;
        self.wake_pairs()
    }

    fn beat(&mut self) {
        let now = self.now();
        for number in 0..self.workers.len() {
            let worker = &mut self.workers[number];
            if !worker.runs(now) || now < worker.next_beat {
                continue;
            }
            worker.stopped_until = None;
            worker.next_beat = now + HEARTBEAT;
            for key in worker.keys().collect::<Vec<_>>() {
                self.sign(key, number);
            }
        }
    }

    /// Gives a sign of life; the first one comes with the lease.
    pub(super) fn sign(&mut self, key: Key, worker: usize) {
        let at = self.now();
        let sequence = self.beats.get(&key).map_or(0, |beat| beat.sequence + 1);
        self.beats.insert(key, Beat { sequence, at, worker });
    }

    fn check(&self) -> Result<(), String> {
        self.check_leases()?;
        self.check_requests()?;
        self.files.check(self.now())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        static BLIND: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs with a deliberate defect: observers do not scan.
    pub(in crate::sim::stack) fn with_blind_watcher(act: impl FnOnce()) {
        BLIND.set(true);
        act();
        BLIND.set(false);
    }

    pub(in crate::sim::stack) fn is_blind() -> bool {
        BLIND.get()
    }
}
