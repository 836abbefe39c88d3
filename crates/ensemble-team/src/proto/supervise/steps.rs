//! The machine's steps, one function for each event; each covers all states.

use std::time::Duration;

use super::pace::{CLAIM_TRIES_MAX, FAREWELLS_MAX, Loops};
use super::vocabulary::{Anomaly, Effect, Ending, Exit, Lost, Reason};
use super::{After, Again, State, Supervise};
use ensemble_core::env::Monotonic;

impl Supervise {
    pub(super) fn ask(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(super) fn register(&mut self) -> State {
        self.ask(Effect::Register);
        State::Registering
    }

    /// Looks for work, unless a shutdown request waits: then there will be none.
    pub(super) fn look(&mut self, tries: u32) -> State {
        if self.is_asked {
            return self.agree();
        }
        self.ask(Effect::Look);
        State::Looking { tries }
    }

    pub(super) fn check(&mut self) -> State {
        self.ask(Effect::Check);
        State::Checking
    }

    pub(super) fn look_or_check(&mut self, holds: bool) -> State {
        match holds {
            true => self.check(),
            false => self.look(0),
        }
    }

    pub(super) fn leave(&mut self, reason: Reason) -> State {
        self.ask(Effect::Unregister);
        State::Leaving { reason }
    }

    pub(super) fn terminate(&mut self, after: After) -> State {
        self.ask(Effect::Terminate);
        State::Stopping { after }
    }

    pub(super) fn end(&mut self, reason: Reason) -> State {
        self.ask(Effect::Ended(reason));
        State::Ended
    }

    pub(super) fn retry(&self, now: Monotonic, again: Again) -> State {
        State::Retrying { until: now + self.pace.restart, again }
    }

    pub(super) const fn lost(lost: Lost) -> After {
        match lost {
            Lost::Work | Lost::Claim => After::Look,
            Lost::Registration | Lost::Lease => After::Register,
        }
    }

    pub(super) fn go_on(&mut self, after: After) -> State {
        match after {
            After::Leave(reason) => self.leave(reason),
            After::Look => self.look(0),
            After::HandOver => self.hand_over(),
            After::Register => self.register(),
        }
    }

    /// There is no work.
    pub(super) fn idle(&mut self, now: Monotonic) -> State {
        if self.is_asked {
            return self.agree();
        }
        let since = *self.idle_since.get_or_insert(now);
        let mut until = now + self.pace.poll;
        if let Some(patience) = self.pace.patience {
            let end = since + patience;
            if now >= end {
                return self.leave(Reason::NoWork);
            }
            until = until.min(end);
        }
        State::Idle { until, tries: 0 }
    }

    /// An agent has ended by itself.
    pub(super) fn exited(&mut self, now: Monotonic, exit: Exit) -> State {
        match self.state {
            State::Running => {}
            state @ (State::New
            | State::Registering
            | State::Looking { .. }
            | State::Idle { .. }
            | State::Checking
            | State::Gated { .. }
            | State::Spawning
            | State::Delayed { .. }
            | State::Retrying { .. }
            | State::Stopping { .. }
            | State::HandingOver
            | State::Agreeing
            | State::Leaving { .. }
            | State::Ended) => return state,
        }
        if exit.progress || !exit.holds && exit.ending == Ending::Done && !exit.drafts {
            self.loops = Loops::default();
        }
        let delay = match (exit.ending, exit.holds) {
            (Ending::Done, false) if exit.drafts => {
                if !exit.progress {
                    self.loops.spun();
                }
                self.pace.drafts
            }
            (Ending::Done, false) => return self.look(0),
            (Ending::Done, true) => {
                let count = self.loops.spun();
                self.ask(Effect::Note(Anomaly::Unfinished { count }));
                self.pace.restart
            }
            (Ending::HandOver, holds) => {
                let count = self.loops.spun();
                if holds && !exit.notes {
                    self.ask(Effect::Note(Anomaly::NoNotes { count }));
                }
                self.pace.hand_over
            }
            (ending @ (Ending::Failed(_) | Ending::Killed(_)), _) => {
                let anomaly = self.loops.crashed(ending);
                self.ask(Effect::Note(anomaly));
                self.pace.restart
            }
        };
        self.fresh(now, delay, exit.holds)
    }

    /// Starts a fresh agent after a delay, unless a limit was reached.
    pub(super) fn fresh(&mut self, now: Monotonic, delay: Duration, holds: bool) -> State {
        match self.loops.trouble(&self.pace) {
            None => State::Delayed { until: now + delay, holds },
            Some(trouble) if holds && self.pace.can_block => {
                self.loops = Loops::default();
                self.ask(Effect::Block(trouble));
                State::Delayed { until: now + self.pace.restart, holds: false }
            }
            Some(_) => self.leave(Reason::GaveUp),
        }
    }

    /// The agent has done nothing until its lease ran out.
    fn hung(&mut self, then: After) -> State {
        let anomaly = self.loops.hung();
        self.ask(Effect::Note(anomaly));
        match self.loops.trouble(&self.pace) {
            None => self.terminate(then),
            Some(trouble) if self.pace.can_block => {
                self.loops = Loops::default();
                self.ask(Effect::Block(trouble));
                self.terminate(then)
            }
            Some(_) => self.terminate(After::Leave(Reason::GaveUp)),
        }
    }

    /// Ends the supervisor from any state.
    pub(super) fn halt(&mut self, reason: Reason) -> State {
        match self.state {
            State::New => self.end(reason),
            State::Spawning | State::Running => self.terminate(After::Leave(reason)),
            State::Stopping { .. } => State::Stopping { after: After::Leave(reason) },
            State::Registering
            | State::Looking { .. }
            | State::Idle { .. }
            | State::Checking
            | State::Gated { .. }
            | State::Delayed { .. }
            | State::HandingOver
            | State::Agreeing
            | State::Retrying { .. } => self.leave(reason),
            late => late,
        }
    }

    /// A requested action has failed.
    pub(super) fn failed(&mut self, now: Monotonic) -> State {
        match self.state {
            State::Registering => self.retry(now, Again::Register),
            State::Looking { .. } => self.retry(now, Again::Look),
            // What failed has nothing to do with the agent: it is no trouble of the task.
            State::Checking | State::Spawning => self.retry(now, Again::Check),
            State::HandingOver => self.retry(now, Again::HandOver),
            State::Agreeing => self.retry(now, Again::Agree),
            State::Leaving { reason } => {
                self.farewells += 1;
                match self.farewells < FAREWELLS_MAX {
                    true => self.retry(now, Again::Unregister(reason)),
                    false => self.end(reason),
                }
            }
            late => late,
        }
    }

    pub(super) fn fenced(&mut self, lost: Lost) -> State {
        match (self.state, lost) {
            (State::Running, Lost::Lease | Lost::Claim) => self.hung(Self::lost(lost)),
            (State::Spawning | State::Running, lost) => self.terminate(Self::lost(lost)),
            (State::Leaving { reason }, Lost::Registration | Lost::Lease)
            | (
                State::Retrying { again: Again::Unregister(reason), .. },
                Lost::Registration | Lost::Lease,
            ) => self.end(reason),
            (
                State::Looking { .. }
                | State::Idle { .. }
                | State::Checking
                | State::Gated { .. }
                | State::Delayed { .. }
                | State::Retrying { again: Again::Look | Again::Check, .. },
                Lost::Registration | Lost::Lease,
            ) => self.register(),
            (
                State::Checking
                | State::Gated { holds: true, .. }
                | State::Delayed { holds: true, .. }
                | State::Retrying { again: Again::Check, .. },
                Lost::Work | Lost::Claim,
            ) => self.go_on(After::Look),
            (
                state @ (State::New
                | State::Registering
                | State::Stopping { .. }
                | State::HandingOver
                | State::Agreeing
                | State::Retrying {
                    again: Again::Register | Again::HandOver | Again::Agree,
                    ..
                }
                | State::Ended),
                Lost::Work | Lost::Claim | Lost::Registration | Lost::Lease,
            )
            | (
                state @ (State::Looking { .. }
                | State::Idle { .. }
                | State::Gated { holds: false, .. }
                | State::Delayed { holds: false, .. }
                | State::Retrying { again: Again::Look | Again::Unregister(_), .. }
                | State::Leaving { .. }),
                Lost::Work | Lost::Claim,
            ) => state,
        }
    }

    /// The supervisor starts.
    pub(super) fn started(&mut self) -> State {
        match self.state {
            State::New => self.register(),
            late => late,
        }
    }

    /// The agent is on the board.
    pub(super) fn registered(&mut self) -> State {
        match self.state {
            State::Registering => self.look(0),
            late => late,
        }
    }

    /// Another supervisor has the id.
    pub(super) fn refused(&mut self) -> State {
        match self.state {
            State::Registering => self.end(Reason::Refused),
            late => late,
        }
    }

    /// There is nothing to claim.
    pub(super) fn nothing(&mut self, now: Monotonic) -> State {
        match self.state {
            State::Looking { .. } => self.idle(now),
            late => late,
        }
    }

    /// Another agent claimed first.
    pub(super) fn contended(&mut self, now: Monotonic, wait: Duration) -> State {
        match self.state {
            State::Looking { tries } => match tries + 1 {
                tries if tries < CLAIM_TRIES_MAX => State::Idle { until: now + wait, tries },
                _ => self.idle(now),
            },
            late => late,
        }
    }

    /// The supervisor holds work.
    pub(super) fn claimed(&mut self, is_new: bool) -> State {
        match self.state {
            State::Looking { .. } => {
                self.idle_since = None;
                if is_new {
                    self.loops = Loops::default();
                }
                self.check()
            }
            late => late,
        }
    }

    /// No control file exists.
    pub(super) fn open(&mut self) -> State {
        match self.state {
            State::Checking => {
                self.ask(Effect::Spawn);
                State::Spawning
            }
            late => late,
        }
    }

    /// A control file exists.
    pub(super) fn closed(&mut self, now: Monotonic) -> State {
        match self.state {
            State::Looking { .. } => State::Gated { until: now + self.pace.gate, holds: false },
            State::Checking => State::Gated { until: now + self.pace.gate, holds: true },
            late => late,
        }
    }

    /// The board has changed.
    pub(super) fn woken(&mut self) -> State {
        match self.state {
            State::Idle { tries: 0, .. } => self.look(0),
            State::Gated { holds, .. } => self.look_or_check(holds),
            late => late,
        }
    }

    /// The agent runs.
    pub(super) fn spawned(&mut self) -> State {
        match self.state {
            State::Spawning => State::Running,
            late => late,
        }
    }

    /// The agent's program could not be started.
    pub(super) fn not_spawned(&mut self, now: Monotonic) -> State {
        match self.state {
            State::Spawning => {
                let anomaly = self.loops.not_started();
                self.ask(Effect::Note(anomaly));
                self.fresh(now, self.pace.restart, true)
            }
            late => late,
        }
    }

    /// No process of the agent is left.
    pub(super) fn terminated(&mut self) -> State {
        match self.state {
            State::Stopping { after } => self.go_on(after),
            late => late,
        }
    }

    /// The registration is gone.
    pub(super) fn left(&mut self) -> State {
        match self.state {
            State::Leaving { reason } => self.end(reason),
            late => late,
        }
    }
}
