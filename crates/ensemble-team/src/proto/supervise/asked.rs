//! The machine's steps around a request for the shutdown of its agent.

use super::vocabulary::Effect;
use super::{NextAction, RetryAction, State, Supervise};

impl Supervise {
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
            | State::Retrying { again: RetryAction::Look, .. } => self.agree(),
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
            | State::Retrying { again: RetryAction::Check, .. } => {
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
            State::Agreeing | State::Retrying { again: RetryAction::Agree, .. } => {
                self.look_for_work(0)
            }
            late => late,
        }
    }
}
