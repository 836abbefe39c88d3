//! Watches the leases of a blackboard and ends those that have expired: of crashed agents and of their tasks and
//! reviews.
//!
//! Every supervisor and every watcher does this from its own observations. The first one ends the lease under the
//! board's lock, and the others find it gone. The clock includes suspended time ([`Clock::boottime`]); the wall clock
//! is read only to notice that it was set. If an agent's supervisor is dead, the agent is killed before its lease
//! ends, so that no two agents work in one worktree.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::supervise::{end_orphan, seated};
use crate::board::stamps::fold_due;
use crate::board::{self, Board, BoardLease, SignContent, State, is_fenced};
use crate::proto::beat::LEASE_DURATION;
use crate::proto::task::TaskHolder;
use crate::worktree::is_not_allowed;
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::leases::record_seen;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, GapDetector, LeaseWatch};
use ensemble_core::{Error, Result};

#[derive(Debug)]
pub struct BoardLeases {
    board: Board,
    actor: String,
    watch: LeaseWatch<BoardLease>,
    gaps: GapDetector,
    fold_at: Option<Monotonic>,
}

impl BoardLeases {
    pub fn new(board: Board, actor: impl Into<String>, clock: &dyn Clock) -> Self {
        let watch = LeaseWatch::new(clock.boottime());
        Self { board, actor: actor.into(), watch, gaps: GapDetector::default(), fold_at: None }
    }

    /// Whether the board exists and cannot be read.
    pub fn is_unreadable(&self) -> bool {
        self.board.read().is_err_and(|error| !board::is_missing(&error))
    }

    /// When [`BoardLeases::expire_leases`] is due, by [`Clock::boottime`]; `None` while no agent holds a
    /// lease.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.watch.poll_timeout().into_iter().chain(self.fold_at).min()
    }

    /// Checks all leases, ends those that have expired, and removes the beats of ended registrations. Shows in the
    /// file what was beaten, before a written lease passes. Call it at least every 30 s. Returns the leases that it
    /// ended.
    pub fn expire_leases(
        &mut self,
        clock: &dyn Clock,
        recorder: &dyn Recorder,
    ) -> Result<Vec<BoardLease>> {
        let state = self.board.read()?;
        let seen = self.board.scan(&state)?;
        // After they were read: a lease that begins while this observer pauses must not look older than it is. Read
        // the clock first: a change from now on is then noticed before any lease ends.
        let now = clock.boottime();
        if let Some(gap) = self.gaps.compare_clocks(clock.monotonic(), now, clock.wall()) {
            self.watch.handle(now, Event::ClockGap(gap));
        }
        for event in seen {
            self.watch.handle(now, event);
        }
        self.board.sweep_beats(&state)?;
        self.fold(&state, clock)?;
        let mut taken = Vec::new();
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                Effect::Look => {}
                Effect::Expire { key, sequence } => {
                    if self.expire(&key, sequence, recorder)? {
                        taken.push(key);
                    }
                }
                Effect::Record(seen) => record_seen(recorder, &self.actor, &seen),
            }
        }
        Ok(taken)
    }

    /// Shows beats in the board's file if a written lease would pass otherwise.
    fn fold(&mut self, state: &State, clock: &dyn Clock) -> Result<()> {
        let due = |state: &State| fold_due(state, directory(&self.board), clock.wall());
        let mut wait = due(state);
        if wait == Some(Duration::ZERO) {
            match self.board.fold_beats() {
                Ok(()) => wait = due(&self.board.read()?),
                // Another process writes, and folds with its write.
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        self.fold_at = wait.map(|wait| clock.boottime() + wait);
        Ok(())
    }

    /// Ends one lease, unless it is gone or its holder has beaten.
    fn expire(&self, key: &BoardLease, sequence: u64, recorder: &dyn Recorder) -> Result<bool> {
        if let BoardLease::Agent { by, epoch } = key {
            match end_orphan(directory(&self.board), by, *epoch) {
                // Its supervisor is alive, and kills its agent itself once it notices that it is fenced.
                Ok(_) | Err(Error::Locked { .. }) => {}
                Err(error) => {
                    let data = json!({ "agent": by, "error": error.to_string() });
                    recorder.record(types::SUPERVISE_FAILED, &self.actor, data);
                }
            }
        }
        let mut locked = self.board.lock()?;
        match locked.expire(key, sequence) {
            Ok(()) => locked.commit().map(|_| true),
            Err(error) if is_fenced(&error) || is_not_allowed(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupervisedAgent {
    pub holder: TaskHolder,
    /// The tasks that it works on and reviews, each as `task@epoch`.
    pub holds: Vec<String>,
    pub lease: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorSeat {
    None,
    /// It lives; `runs` says whether it has an agent running.
    Lives {
        runs: bool,
    },
    /// It has ended without leaving: it was killed, or the machine was.
    Dead,
}

impl BoardLeases {
    pub fn seat(&self, agent: &Name) -> Result<SupervisorSeat> {
        Ok(match seated(directory(&self.board), agent)? {
            None => SupervisorSeat::None,
            Some((record, true)) => SupervisorSeat::Lives { runs: record.agent.is_some() },
            Some((_, false)) => SupervisorSeat::Dead,
        })
    }

    pub fn agents(&self) -> Result<Vec<Name>> {
        Ok(self.board.read()?.agents.into_keys().collect())
    }

    /// The registration and the work of an agent; `None` if it is not registered or has a supervisor, which
    /// speaks for it.
    pub fn unsupervised(&self, by: &Name) -> Result<Option<UnsupervisedAgent>> {
        let state = self.board.read()?;
        let Some(agent) = state.agents.get(by) else { return Ok(None) };
        if self.seat(by)? != SupervisorSeat::None {
            return Ok(None);
        }
        let holds = board::leases(&state).into_iter().filter(|lease| lease.by() == by);
        let named = |lease| match lease {
            BoardLease::Claim { task, epoch, .. } | BoardLease::Review { task, epoch, .. } => {
                Some(format!("{task}@{epoch}"))
            }
            BoardLease::Agent { .. } => None,
        };
        let lease = state.config.lease_duration.map_or(LEASE_DURATION, Duration::from_secs);
        let holder = TaskHolder { by: by.clone(), epoch: agent.epoch.unwrap_or_default() };
        Ok(Some(UnsupervisedAgent { holder, holds: holds.filter_map(named).collect(), lease }))
    }

    pub fn sign_for(&self, agent: &UnsupervisedAgent) -> Result<()> {
        self.board.give_sign(&agent.holder, &SignContent::Alive, agent.lease).map(drop)
    }

    /// Ends the leases of an agent that is known to have exited. Those of an agent whose supervisor lives stay: it
    /// starts the agent again, or releases them itself.
    pub fn take_from(&mut self, by: &Name, recorder: &dyn Recorder) -> Result<Vec<BoardLease>> {
        if matches!(self.seat(by)?, SupervisorSeat::Lives { .. }) {
            return Ok(Vec::new());
        }
        let state = self.board.read()?;
        let mut taken = Vec::new();
        for event in self.board.scan(&state)? {
            let Event::Seen { key, sequence, .. } = event else { continue };
            // The end of a registration releases what was claimed under it.
            if key.by() == by && self.expire(&key, sequence, recorder)? {
                taken.push(key);
            }
        }
        Ok(taken)
    }
}

pub(super) fn directory(board: &Board) -> &Path {
    board.path().parent().unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::board::{BoardOptions, NewAgent, write_beat};
    use ensemble_core::durable::Durability;
    use ensemble_core::event_log::NullRecorder;
    use ensemble_core::message::Timestamp;
    use ensemble_core::sim::SimClock;

    const LEASE: Duration = Duration::from_secs(40);

    struct Slow<'a> {
        clock: &'a SimClock,
        meanwhile: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
    }

    impl Clock for Slow<'_> {
        fn monotonic(&self) -> Monotonic {
            self.clock.monotonic()
        }
        fn wall(&self) -> Timestamp {
            let now = self.clock.wall();
            let meanwhile = self.meanwhile.take();
            meanwhile.into_iter().for_each(|happens| happens());
            now
        }
    }

    /// A board, and its leases as a watcher of another process sees them.
    struct Bed {
        home: tempfile::TempDir,
        board: Board,
        clock: SimClock,
        leases: BoardLeases,
    }

    impl Bed {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let options = || BoardOptions::new("test").with_durability(Durability::Process);
            let board = Board::create(home.path(), options()).unwrap();
            let clock = SimClock::new(Timestamp::from_unix_millis(0));
            let observed = Board::find(home.path(), options()).unwrap();
            let leases = BoardLeases::new(observed, "watcher", &clock);
            Self { home, board, clock, leases }
        }
    }

    fn register(board: &Board, name: &str) -> TaskHolder {
        let mut locked = board.lock().unwrap();
        let holder = locked.register(&NewAgent::new(Name::new(name).unwrap(), "coder")).unwrap();
        locked.commit().unwrap();
        holder
    }

    #[test]
    fn an_agent_that_has_ended_is_released_at_once_and_others_keep_what_they_hold() {
        let mut bed = Bed::new();
        let (ended, other) = (register(&bed.board, "coder-1"), register(&bed.board, "coder-2"));
        let leases = &mut bed.leases;
        let taken = leases.take_from(&ended.by, &NullRecorder).unwrap();
        assert_eq!(taken, [BoardLease::Agent { by: ended.by.clone(), epoch: ended.epoch }]);
        assert_eq!(leases.agents().unwrap(), [other.by]);
        assert_eq!(leases.take_from(&ended.by, &NullRecorder).unwrap(), [], "once");
    }

    #[test]
    fn a_sign_for_a_working_agent_renews_its_lease() {
        let Bed { home: _home, board, clock, mut leases } = Bed::new();
        let holder = register(&board, "coder-1");
        let agent = leases.unsupervised(&holder.by).unwrap().unwrap();
        assert_eq!((&agent.holder, agent.holds.len()), (&holder, 0));
        assert_eq!(leases.unsupervised(&Name::new("coder-2").unwrap()).unwrap(), None);
        for _ in 0..4 {
            assert_eq!(leases.expire_leases(&clock, &NullRecorder).unwrap(), []);
            clock.advance(agent.lease / 2);
            leases.sign_for(&agent).unwrap();
        }
        assert_eq!(leases.expire_leases(&clock, &NullRecorder).unwrap(), []);
        for _ in 0..20 {
            clock.advance(Duration::from_secs(30));
            leases.expire_leases(&clock, &NullRecorder).unwrap();
        }
        assert_eq!(leases.agents().unwrap(), [], "without signs it ends");
    }

    #[test]
    fn an_agent_that_registers_while_an_observer_stands_still_has_its_whole_lease() {
        let Bed { home: _home, board, clock, mut leases } = Bed::new();
        let registered = |name: &str| -> TaskHolder {
            let holder = register(&board, name);
            write_beat(directory(&board), &holder, 1, LEASE).unwrap();
            holder
        };
        let first = registered("coder-1");
        let meanwhile = || {
            clock.advance(Duration::from_secs(30));
            registered("coder-2");
        };
        let slow = Slow { clock: &clock, meanwhile: RefCell::new(Some(Box::new(meanwhile))) };
        assert_eq!(leases.expire_leases(&slow, &NullRecorder).unwrap(), []);
        write_beat(directory(&board), &first, 2, LEASE).unwrap();
        clock.advance(Duration::from_secs(15));
        let taken = leases.expire_leases(&clock, &NullRecorder).unwrap();
        assert_eq!(taken, [], "the second has had 15 s of 40");
        clock.advance(LEASE + Duration::from_secs(1));
        assert_eq!(leases.expire_leases(&clock, &NullRecorder).unwrap().len(), 2, "they end");
    }
}
