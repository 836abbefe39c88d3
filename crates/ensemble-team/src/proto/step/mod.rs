//! One step of a subtask, from waiting to done (seed 003, "Queue States" and "Handling Failures").
//!
//! ```text
//! state        event / time                           -> state        effects
//! PENDING      Taken                                  -> IN_PROGRESS  Hand (attempt + 1, epoch + 1)
//! FAILED, fix  Taken                                  -> IN_PROGRESS  Hand, with the error
//! FAILED, wait FixDone                                -> FAILED, fix  Advance
//! IN_PROGRESS  success, of its holder and epoch       -> COMPLETED    Free, Advance
//! IN_PROGRESS  failure, attempts are left             -> FAILED, fix  Free, RequestFix
//! IN_PROGRESS  the same, of a step with a fixer       -> FAILED, wait Free, OrderFix
//! IN_PROGRESS  failure, none is left                  -> FAILED, end  Free, Stop
//! IN_PROGRESS  failure, without an error              -> IN_PROGRESS  Refused
//! IN_PROGRESS  blocked, with reasons                  -> BLOCKED      Free, Stop
//! IN_PROGRESS  blocked, without a reason              -> IN_PROGRESS  Refused
//! IN_PROGRESS  Beat, of its holder and epoch          -> IN_PROGRESS  Beaten
//! IN_PROGRESS  LeaseEnded, attempts are left          -> PENDING      Free, Advance
//! IN_PROGRESS  LeaseEnded, none is left               -> FAILED, end  Free, Stop
//! PENDING      a report of its last holder and epoch  -> as if IN_PROGRESS, without Free
//! FAILED, end  the same, after its lease ended        -> as if IN_PROGRESS, without Free
//! IN_PROGRESS  Retried (its holder loses it)          -> PENDING      Free, Advance
//! BLOCKED      Unblocked                              -> PENDING      Advance   (attempts reset)
//! FAILED       Retried                                -> PENDING      Advance   (attempts reset)
//! PENDING      Skipped, Split                         -> COMPLETED    Advance
//! FAILED       Skipped, Split                         -> COMPLETED    Advance
//! BLOCKED      Skipped, Split                         -> COMPLETED    Advance
//! BLOCKED      every 10 minutes                       -> same         Remind
//! FAILED, end  every 10 minutes                       -> same         Remind
//! any          a report, a beat, an order that does not fit -> same   Refused (with the reason)
//! any          LeaseEnded of another epoch            -> same
//! any other    FixDone                                -> same
//! ```
//!
//! The seed lets a failed step be "IN_PROGRESS or FAILED". Here it is FAILED, keeps its place in the queue, and is
//! taken next by its agent, with the error. If the step has a fixer, another step is done first, by the fixer: the
//! *fix step*. It is a step like any other, and this machine is only notified when it is done. *Epoch* counts all
//! hand-outs and never decreases. *Attempt* counts hand-outs since the last reset, and is limited: a step stops if it
//! fails, or loses its workers, too often. A report is judged only by the holder and the epoch of the hand-out. So a
//! worker that never had the step, or lost it to another one, changes nothing. A worker whose lease has expired may
//! still finish the step, as long as it was not handed out again: the work is done, and another worker would do it
//! twice.
//!
//! *Silence* of the worker is not seen here: [`ensemble_core::proto::lease`] judges leases and sends
//! [`Event::LeaseEnded`]. *Silence* of the person or orchestrator that must intervene is answered
//! by reminders. *A crash* loses nothing: the state is stored as a whole, and [`StepMachine::restore`]
//! loads it. Only the time until the next reminder starts again.

use std::collections::VecDeque;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine;

mod order;
mod refusal;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use order::{OrderError, TddPhase, check_cycles};
pub use refusal::StepRefusal;
pub use vocabulary::{Effect, Event, FixState, State, StepReport, StepResolution};

pub const ATTEMPTS_DEFAULT: u32 = 3;
/// Largest number of attempts that a plan may set.
pub const ATTEMPTS_LIMIT: u32 = 99;
/// Interval of reminders to intervene.
pub const REMIND_EVERY: Duration = Duration::from_secs(600);

const _: () = assert!(ATTEMPTS_DEFAULT <= ATTEMPTS_LIMIT);

#[derive(Clone, Debug)]
pub struct StepMachine {
    state: State,
    attempt: u32,
    epoch: u64,
    attempts_max: u32,
    has_fixer: bool,
    /// The worker of the last hand-out, if it has not reported and the lease has ended.
    last_holder: Option<Name>,
    remind_at: Option<Monotonic>,
    effects: VecDeque<Effect>,
}

impl StepMachine {
    /// A waiting step with this limit of attempts (1 to [`ATTEMPTS_LIMIT`]).
    pub fn new(attempts_max: u32) -> Self {
        Self::restore(State::Pending, 0, 0, attempts_max, Monotonic::ZERO)
    }

    pub fn restore(
        state: State,
        attempt: u32,
        epoch: u64,
        attempts_max: u32,
        now: Monotonic,
    ) -> Self {
        let attempts_max = attempts_max.clamp(1, ATTEMPTS_LIMIT);
        let effects = VecDeque::new();
        let mut step = Self {
            state,
            attempt,
            epoch,
            attempts_max,
            has_fixer: false,
            last_holder: None,
            remind_at: None,
            effects,
        };
        step.remind_from(now);
        step
    }

    /// Sets whether another agent fixes what makes this step fail.
    pub const fn with_fixer(mut self, has_fixer: bool) -> Self {
        self.has_fixer = has_fixer;
        self
    }

    /// Sets the worker of the last hand-out, whose lease ended before it reported.
    pub fn with_last_holder(mut self, last_holder: Option<Name>) -> Self {
        self.last_holder = last_holder;
        self
    }

    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Number of the current or last attempt; 0 before the first.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Number of hand-outs so far.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    fn refuse(&mut self, refusal: StepRefusal) -> State {
        self.effects.push_back(Effect::Refused(refusal));
        self.state.clone()
    }

    fn refuse_here(&mut self) -> State {
        let refusal = StepRefusal::of(&self.state);
        self.refuse(refusal)
    }

    fn hand(&mut self, to: Name, error: Option<String>) -> State {
        self.attempt = self.attempt.saturating_add(1);
        self.epoch = self.epoch.saturating_add(1);
        self.last_holder = None;
        let (attempt, epoch) = (self.attempt, self.epoch);
        self.effects.push_back(Effect::Hand { to: to.clone(), attempt, epoch, error });
        State::InProgress { holder: to }
    }

    /// Why this worker may not report on the step, if so.
    fn objection(&self, holder: &Name, by: &Name, epoch: Option<u64>) -> Option<StepRefusal> {
        if holder != by {
            return Some(StepRefusal::HeldByAnother { holder: holder.clone() });
        }
        let current = self.epoch;
        match epoch {
            Some(epoch) if epoch != current => Some(StepRefusal::Outdated { epoch, current }),
            Some(_) | None => None,
        }
    }

    /// Handles a report while no worker holds the step: it counts if it comes from the last holder.
    fn while_lost(&mut self, by: &Name, epoch: Option<u64>, report: StepReport) -> State {
        match &self.last_holder {
            Some(last) if self.objection(last, by, epoch).is_none() => {
                let next = self.report(report);
                if !matches!(self.effects.back(), Some(Effect::Refused(_))) {
                    self.last_holder = None;
                    // The end of its lease has freed the step.
                    self.effects.retain(|effect| *effect != Effect::Free);
                }
                next
            }
            Some(_) | None => self.refuse_here(),
        }
    }

    fn report(&mut self, report: StepReport) -> State {
        match report {
            StepReport::Success => {
                self.effects.extend([Effect::Free, Effect::Advance]);
                State::Completed(StepResolution::Success)
            }
            StepReport::Failure { error } if error.trim().is_empty() => {
                self.refuse(StepRefusal::NoError)
            }
            StepReport::Failure { error } => self.fail(error),
            StepReport::Blocked { reasons } if reasons.is_empty() => {
                self.refuse(StepRefusal::NoReasons)
            }
            StepReport::Blocked { reasons } => {
                self.effects.extend([Effect::Free, Effect::Stop { reasons: reasons.clone() }]);
                State::Blocked { reasons }
            }
        }
    }

    fn fail(&mut self, error: String) -> State {
        self.effects.push_back(Effect::Free);
        if self.attempt < self.attempts_max {
            let (next_attempt, copy) = (self.attempt + 1, error.clone());
            let (effect, fix) = match self.has_fixer {
                true => (Effect::OrderFix { error: copy, next_attempt }, FixState::Ordered),
                false => (Effect::RequestFix { error: copy, next_attempt }, FixState::Due),
            };
            self.effects.push_back(effect);
            return State::Failed { error, fix };
        }
        self.exhaust(error)
    }

    fn exhaust(&mut self, error: String) -> State {
        self.effects.push_back(Effect::Stop { reasons: vec![error.clone()] });
        State::Failed { error, fix: FixState::Exhausted }
    }

    fn lease_ended(&mut self, holder: &Name) -> State {
        self.last_holder = Some(holder.clone());
        self.effects.push_back(Effect::Free);
        if self.attempt < self.attempts_max {
            self.effects.push_back(Effect::Advance);
            return State::Pending;
        }
        self.exhaust(format!("{holder} gave no sign of life in the last attempt"))
    }

    fn begin_anew(&mut self) -> State {
        self.attempt = 0;
        self.effects.push_back(Effect::Advance);
        State::Pending
    }

    fn resolve(&mut self, resolution: StepResolution) -> State {
        self.effects.push_back(Effect::Advance);
        State::Completed(resolution)
    }

    fn while_held(&mut self, holder: Name, event: Event) -> State {
        match event {
            Event::Reported { by, epoch, report } => match self.objection(&holder, &by, epoch) {
                Some(refusal) => self.refuse(refusal),
                None => self.report(report),
            },
            Event::Beat { by, epoch } => match self.objection(&holder, &by, epoch) {
                Some(refusal) => self.refuse(refusal),
                None => {
                    self.effects.push_back(Effect::Beaten);
                    State::InProgress { holder }
                }
            },
            Event::LeaseEnded { epoch } if epoch == self.epoch => self.lease_ended(&holder),
            Event::LeaseEnded { .. } | Event::FixDone => State::InProgress { holder },
            Event::Retried => {
                self.effects.push_back(Effect::Free);
                self.begin_anew()
            }
            Event::Taken { .. } | Event::Unblocked | Event::Skipped | Event::Split => {
                self.refuse(StepRefusal::HeldByAnother { holder })
            }
        }
    }

    fn remind_from(&mut self, now: Monotonic) {
        self.remind_at = match &self.state {
            State::Blocked { .. } | State::Failed { fix: FixState::Exhausted, .. } => {
                Some(now + REMIND_EVERY)
            }
            State::Pending
            | State::InProgress { .. }
            | State::Completed(_)
            | State::Failed { fix: FixState::Due | FixState::Ordered, .. } => None,
        };
    }
}

impl Machine for StepMachine {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        let next = match (self.state.clone(), event) {
            (State::Pending, Event::Taken { by }) => self.hand(by, None),
            (State::Failed { error, fix: FixState::Due }, Event::Taken { by }) => {
                self.hand(by, Some(error))
            }
            (State::InProgress { holder }, event) => self.while_held(holder, event),
            (State::Blocked { .. }, Event::Unblocked) | (State::Failed { .. }, Event::Retried) => {
                self.begin_anew()
            }
            (State::Pending | State::Blocked { .. } | State::Failed { .. }, Event::Skipped) => {
                self.resolve(StepResolution::Skipped)
            }
            (State::Pending | State::Blocked { .. } | State::Failed { .. }, Event::Split) => {
                self.resolve(StepResolution::Split)
            }
            (State::Failed { error, fix: FixState::Ordered }, Event::FixDone) => {
                self.effects.push_back(Effect::Advance);
                State::Failed { error, fix: FixState::Due }
            }
            (
                State::Pending | State::Failed { fix: FixState::Exhausted, .. },
                Event::Reported { by, epoch, report },
            ) => self.while_lost(&by, epoch, report),
            // The step has no holder, so no lease can end. It waits for no fix step.
            (state, Event::LeaseEnded { .. } | Event::FixDone) => state,
            (
                _,
                Event::Taken { .. }
                | Event::Reported { .. }
                | Event::Beat { .. }
                | Event::Unblocked
                | Event::Retried
                | Event::Skipped
                | Event::Split,
            ) => self.refuse_here(),
        };
        if next != self.state {
            self.state = next;
            self.remind_from(now);
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.remind_at.is_some_and(|at| now >= at) {
            self.effects.push_back(Effect::Remind);
            self.remind_at = Some(now + REMIND_EVERY);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        self.remind_at
    }
}
