//! Watches the leases of a blackboard and takes away those that ran out: agents that crashed, tasks
//! and reviews of theirs.
//!
//! Every supervisor does this, and every watcher, each by its own observation; whoever comes first
//! takes the lease away under the board's lock, the others find it gone. Time is that of a clock
//! that counts suspended time ([`Clock::boottime`]); the wall clock is only looked at to notice that
//! it was set. An agent whose supervisor is dead is ended before its lease is taken away, so that
//! nobody works in a worktree that is another one's by then.

use std::path::Path;

use serde_json::json;

use super::supervise::end_orphan;
use crate::board::{self, Board, Leased};
use crate::env::{Clock, Monotonic};
use crate::event_log::Recorder;
use crate::proto::Machine as _;
use crate::proto::lease::{Effect, Event, GapDetector, LeaseWatch, Record};
use crate::{Error, Result};

/// The observer of one board's leases.
#[derive(Debug)]
pub struct BoardLeases {
    board: Board,
    actor: String,
    watch: LeaseWatch<Leased>,
    gaps: GapDetector,
}

impl BoardLeases {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(board: Board, actor: impl Into<String>, clock: &dyn Clock) -> Self {
        let watch = LeaseWatch::new(clock.boottime());
        Self { board, actor: actor.into(), watch, gaps: GapDetector::default() }
    }

    /// When [`BoardLeases::look`] is due, by [`Clock::boottime`]; `None` while nobody holds anything.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.watch.poll_timeout()
    }

    /// Looks at all leases, takes away those that ran out, and removes the beats of registrations that
    /// are over. Call it at least every 30 s. Returns what was taken away.
    ///
    /// # Errors
    /// The board cannot be read, or not be changed.
    pub fn look(&mut self, clock: &dyn Clock, recorder: &dyn Recorder) -> Result<Vec<Leased>> {
        let began = clock.boottime();
        if let Some(gap) = self.gaps.look(clock.monotonic(), began, clock.wall()) {
            self.watch.handle(began, Event::ClockGap(gap));
        }
        let state = self.board.read()?;
        let directory = directory(&self.board);
        let events = board::scan(&state, directory)?;
        // After they were read: a lease that begins while this observer stands still must not look
        // older than it is.
        let now = clock.boottime();
        for event in events {
            self.watch.handle(now, event);
        }
        board::sweep_beats(&state, directory)?;
        let mut taken = Vec::new();
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                Effect::Look => {}
                Effect::Expire { key, sequence } => {
                    if self.expire(&key, sequence, recorder)? {
                        taken.push(key);
                    }
                }
                Effect::Record(Record::ClockGap(gap)) => {
                    let data = json!({ "gap": format!("{gap:?}") });
                    recorder.record("lease.clock_gap", &self.actor, data);
                }
                Effect::Record(Record::MassExpiry { late, of }) => {
                    let data = json!({ "late": late, "of": of });
                    recorder.record("lease.mass_expiry", &self.actor, data);
                }
            }
        }
        Ok(taken)
    }

    /// Takes one away, unless somebody has or its holder has shown up.
    fn expire(&self, key: &Leased, sequence: u64, recorder: &dyn Recorder) -> Result<bool> {
        if let Leased::Agent { by, epoch } = key {
            match end_orphan(directory(&self.board), by, *epoch) {
                // Its supervisor lives, and ends its agent itself when it is told that it is fenced.
                Ok(_) | Err(Error::Locked { .. }) => {}
                Err(error) => {
                    let data = json!({ "agent": by, "error": error.to_string() });
                    recorder.record("supervise.failed", &self.actor, data);
                }
            }
        }
        let mut locked = self.board.lock()?;
        match locked.expire(key, sequence) {
            Ok(()) => locked.commit().map(|_| true),
            Err(Error::Fenced { .. } | Error::NotAllowed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Where a board lies.
pub(super) fn directory(board: &Board) -> &Path {
    board.path().parent().unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::board::{BoardOptions, NewAgent};
    use crate::event_log::NullRecorder;
    use crate::message::{Name, Timestamp};

    /// A clock behind whose next reading something else happens, as when its reader stands still.
    #[derive(Default)]
    struct Slow {
        now: Mutex<Duration>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl Slow {
        fn pass(&self, millis: u64) {
            *self.now.lock().unwrap() += Duration::from_millis(millis);
        }
    }

    impl Clock for Slow {
        fn monotonic(&self) -> Monotonic {
            Monotonic::ZERO + *self.now.lock().unwrap()
        }
        fn wall(&self) -> Timestamp {
            let read = Timestamp::from_unix_millis(0).plus(*self.now.lock().unwrap());
            if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
                meanwhile();
                self.pass(3_000);
            }
            read
        }
    }

    #[test]
    fn a_lease_that_begins_while_its_observer_stands_still_is_not_older_than_it_is() {
        let home = tempfile::tempdir().unwrap();
        let board = Board::create(home.path(), BoardOptions::new("test")).unwrap();
        let text = board.read_text().unwrap();
        let short = text.replace("lease_duration: 300", "lease_duration: 2");
        std::fs::write(board.path(), short).unwrap();
        let clock = Slow::default();
        let mut leases = BoardLeases::new(board.clone(), "observer", &clock);
        let joins = move || {
            let mut locked = board.lock().unwrap();
            locked.register(&NewAgent::new(Name::new("ann").unwrap(), "coder")).unwrap();
            locked.commit().unwrap();
        };
        *clock.meanwhile.lock().unwrap() = Some(Box::new(joins));
        let mut look = || leases.look(&clock, &NullRecorder).unwrap().len();
        assert_eq!(look(), 0);
        clock.pass(100);
        assert_eq!(look(), 0, "it is here for a tenth of a second");
        clock.pass(2_000);
        assert_eq!(look(), 1, "it has never beaten");
    }
}
