//! The machine's steps. Those for events that can come in any state cover all states.

use std::time::Duration;

use super::pace::{DRAFT_POLL, FAREWELLS_MAX, FailureCounts};
use super::vocabulary::{
    AgentExit, Effect, EndReason, ProgramEnding, SuperviseAnomaly, SupervisorLoss,
};
use super::{NextAction, State, Supervise};
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
    pub(super) fn look_for_work(&mut self, tries: u32) -> State {
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
            false => self.look_for_work(0),
        }
    }

    pub(super) fn leave(&mut self, reason: EndReason) -> State {
        self.ask(Effect::Unregister);
        State::Leaving { reason }
    }

    pub(super) fn terminate(&mut self, after: NextAction) -> State {
        self.ask(Effect::Terminate);
        State::Stopping { after }
    }

    pub(super) fn end(&mut self, reason: EndReason) -> State {
        self.ask(Effect::Ended(reason));
        State::Ended
    }

    pub(super) fn retry(&self, now: Monotonic, again: NextAction) -> State {
        State::Retrying { until: now + self.pace.restart, again }
    }

    pub(super) const fn lost(lost: SupervisorLoss) -> NextAction {
        match lost {
            SupervisorLoss::Work | SupervisorLoss::Claim => NextAction::Look,
            SupervisorLoss::Registration | SupervisorLoss::Lease => NextAction::Register,
        }
    }

    pub(super) fn go_on(&mut self, after: NextAction) -> State {
        match after {
            NextAction::Register => self.register(),
            NextAction::Look => self.look_for_work(0),
            NextAction::Check => self.check(),
            NextAction::HandOver => self.hand_over(),
            NextAction::Agree => self.agree(),
            NextAction::Leave(reason) => self.leave(reason),
        }
    }

    pub(super) fn idle(&mut self, now: Monotonic) -> State {
        if self.is_asked {
            return self.agree();
        }
        let since = *self.idle_since.get_or_insert(now);
        let mut until = now + self.pace.poll;
        if let Some(patience) = self.pace.patience {
            let end = since + patience;
            if now >= end {
                return self.leave(EndReason::NoWork);
            }
            until = until.min(end);
        }
        State::Idle { until, tries: 0 }
    }

    pub(super) fn exited(&mut self, now: Monotonic, exit: AgentExit) -> State {
        if exit.progress || !exit.holds && exit.ending == ProgramEnding::Done && !exit.drafts {
            self.loops = FailureCounts::default();
        }
        let delay = match (exit.ending, exit.holds) {
            (ProgramEnding::Done, false) if exit.drafts => {
                if !exit.progress {
                    self.loops.spun();
                }
                DRAFT_POLL
            }
            (ProgramEnding::Done, false) => return self.look_for_work(0),
            (ProgramEnding::Done, true) => {
                let count = self.loops.spun();
                self.ask(Effect::Note(SuperviseAnomaly::Unfinished { count }));
                self.pace.restart
            }
            (ProgramEnding::HandOver, holds) => {
                let count = self.loops.spun();
                if holds && !exit.notes {
                    self.ask(Effect::Note(SuperviseAnomaly::NoNotes { count }));
                }
                self.pace.hand_over
            }
            (ending @ (ProgramEnding::Failed(_) | ProgramEnding::Killed(_)), _) => {
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
                self.loops = FailureCounts::default();
                self.ask(Effect::Block(trouble));
                State::Delayed { until: now + self.pace.restart, holds: false }
            }
            Some(_) => self.leave(EndReason::GaveUp),
        }
    }

    /// The agent has done nothing until its lease ran out.
    fn hung(&mut self, then: NextAction) -> State {
        let anomaly = self.loops.hung();
        self.ask(Effect::Note(anomaly));
        if let Some(trouble) = self.loops.trouble(&self.pace) {
            if !self.pace.can_block {
                return self.terminate(NextAction::Leave(EndReason::GaveUp));
            }
            self.loops = FailureCounts::default();
            self.ask(Effect::Block(trouble));
        }
        self.terminate(then)
    }

    pub(super) fn halt(&mut self, reason: EndReason) -> State {
        match self.state {
            State::New => self.end(reason),
            State::Spawning | State::Running => self.terminate(NextAction::Leave(reason)),
            State::Stopping { .. } => State::Stopping { after: NextAction::Leave(reason) },
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

    pub(super) fn failed(&mut self, now: Monotonic) -> State {
        match self.state {
            State::Registering => self.retry(now, NextAction::Register),
            State::Looking { .. } => self.retry(now, NextAction::Look),
            // The failure has nothing to do with the agent: it is not a problem of the task.
            State::Checking | State::Spawning => self.retry(now, NextAction::Check),
            State::HandingOver => self.retry(now, NextAction::HandOver),
            State::Agreeing => self.retry(now, NextAction::Agree),
            State::Leaving { reason } => {
                self.farewells += 1;
                match self.farewells < FAREWELLS_MAX {
                    true => self.retry(now, NextAction::Leave(reason)),
                    false => self.end(reason),
                }
            }
            late => late,
        }
    }

    pub(super) fn fenced(&mut self, lost: SupervisorLoss) -> State {
        match (self.state, lost) {
            (State::Running, SupervisorLoss::Lease | SupervisorLoss::Claim) => {
                self.hung(Self::lost(lost))
            }
            (State::Spawning | State::Running, lost) => self.terminate(Self::lost(lost)),
            (
                State::Leaving { reason }
                | State::Retrying { again: NextAction::Leave(reason), .. },
                SupervisorLoss::Registration | SupervisorLoss::Lease,
            ) => self.end(reason),
            (
                State::Looking { .. }
                | State::Idle { .. }
                | State::Checking
                | State::Gated { .. }
                | State::Delayed { .. }
                | State::Retrying { again: NextAction::Look | NextAction::Check, .. },
                SupervisorLoss::Registration | SupervisorLoss::Lease,
            ) => self.register(),
            (
                State::Checking
                | State::Gated { holds: true, .. }
                | State::Delayed { holds: true, .. }
                | State::Retrying { again: NextAction::Check, .. },
                SupervisorLoss::Work | SupervisorLoss::Claim,
            ) => self.go_on(NextAction::Look),
            (
                late,
                SupervisorLoss::Work
                | SupervisorLoss::Claim
                | SupervisorLoss::Registration
                | SupervisorLoss::Lease,
            ) => late,
        }
    }

    pub(super) fn claimed(&mut self, is_new: bool) -> State {
        self.idle_since = None;
        if is_new {
            self.loops = FailureCounts::default();
        }
        self.check()
    }

    pub(super) fn closed(&self, now: Monotonic, holds: bool) -> State {
        State::Gated { until: now + self.pace.gate, holds }
    }

    pub(super) fn spawn(&mut self) -> State {
        self.ask(Effect::Spawn);
        State::Spawning
    }

    pub(super) fn not_spawned(&mut self, now: Monotonic) -> State {
        let anomaly = self.loops.not_started();
        self.ask(Effect::Note(anomaly));
        self.fresh(now, self.pace.restart, true)
    }

    pub(super) fn agree(&mut self) -> State {
        self.ask(Effect::Agree);
        State::Agreeing
    }

    pub(super) fn hand_over(&mut self) -> State {
        self.ask(Effect::HandOver);
        State::HandingOver
    }

    /// A request waits: without work the supervisor agrees at once.
    pub(super) fn asked(&mut self) -> State {
        self.is_asked = true;
        match self.state {
            State::Idle { .. }
            | State::Gated { holds: false, .. }
            | State::Delayed { holds: false, .. }
            | State::Retrying { again: NextAction::Look, .. } => self.agree(),
            late => late,
        }
    }

    /// The deadline of the request is near: the work is handed over.
    pub(super) fn pressed(&mut self) -> State {
        match self.state {
            State::Spawning | State::Running => {
                self.is_asked = true;
                self.terminate(NextAction::HandOver)
            }
            State::Checking
            | State::Gated { holds: true, .. }
            | State::Delayed { holds: true, .. }
            | State::Retrying { again: NextAction::Check, .. } => {
                self.is_asked = true;
                self.hand_over()
            }
            _ => self.asked(),
        }
    }

    /// No request waits any more.
    pub(super) fn withdrawn(&mut self) -> State {
        self.is_asked = false;
        match self.state {
            State::Agreeing | State::Retrying { again: NextAction::Agree, .. } => {
                self.look_for_work(0)
            }
            late => late,
        }
    }
}
