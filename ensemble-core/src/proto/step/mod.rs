//! One step of a subtask, from waiting to done (seed 003, "Queue States" and "Handling Failures").
//!
//! ```text
//! state        event / time                           -> state        effects
//! PENDING      Taken                                  -> IN_PROGRESS  Hand (attempt + 1, epoch + 1)
//! FAILED, fix  Taken                                  -> IN_PROGRESS  Hand, with the error
//! IN_PROGRESS  success, of its holder and epoch       -> COMPLETED    Free, Advance
//! IN_PROGRESS  failure, attempts are left             -> FAILED, fix  Free, RequestFix
//! IN_PROGRESS  failure, none is left                  -> FAILED, end  Free, Stop
//! IN_PROGRESS  blocked, with reasons                  -> BLOCKED      Free, Stop
//! IN_PROGRESS  blocked, without a reason              -> IN_PROGRESS  Refused
//! IN_PROGRESS  Beat, of its holder and epoch          -> IN_PROGRESS  Beaten
//! IN_PROGRESS  LeaseEnded, attempts are left          -> PENDING      Free, Advance
//! IN_PROGRESS  LeaseEnded, none is left               -> FAILED, end  Free, Stop
//! IN_PROGRESS  Retried (it is taken away)             -> PENDING      Free, Advance
//! BLOCKED      Unblocked                              -> PENDING      Advance   (attempts anew)
//! FAILED       Retried                                -> PENDING      Advance   (attempts anew)
//! PENDING      Skipped, Split                         -> COMPLETED    Advance
//! FAILED       Skipped, Split                         -> COMPLETED    Advance
//! BLOCKED      Skipped, Split                         -> COMPLETED    Advance
//! BLOCKED      every 10 minutes                       -> same         Remind
//! FAILED, end  every 10 minutes                       -> same         Remind
//! any          a report, a beat, an order that does not fit -> same   Refused (what is the case)
//! any          LeaseEnded of another epoch            -> same
//! ```
//!
//! The seed lets a failed step be "IN_PROGRESS or FAILED". Here it is FAILED, stays where it is in the
//! queue, and is the next to be taken: with the error, and by whoever is to fix it. *Epoch* counts how
//! often the step was handed out and never goes back; *attempt* counts the same since somebody last
//! said to begin anew, and is capped: a step that fails, or whose workers vanish, too often stops.
//! Who was handed the step and under which epoch is all that a report is judged by, so a worker that
//! was given up, or was never asked, changes nothing.
//!
//! *Silence* of the worker is not seen here: leases are judged by [`super::lease`], which says
//! [`Event::LeaseEnded`]. *Silence* of whoever is to intervene is answered by reminding.
//! *A crash* loses nothing: the state is stored as a whole, and [`Step::restore`] takes it up; only
//! the time until the next reminder begins anew.
//!
//! ```
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::message::Name;
//! use ensemble_core::proto::Machine;
//! use ensemble_core::proto::step::{Effect, Event, Report, Step};
//!
//! let (now, devon) = (Monotonic::ZERO, Name::new("Devon")?);
//! let mut step = Step::new(3);
//! step.handle(now, Event::Taken { by: devon.clone() });
//! assert_eq!(step.poll_effect(), Some(Effect::Hand { to: devon.clone(), attempt: 1, epoch: 1, error: None }));
//! let report = Report::Failure { error: "2 tests fail".to_owned() };
//! step.handle(now, Event::Reported { by: devon, epoch: Some(1), report });
//! assert_eq!(step.poll_effect(), Some(Effect::Free));
//! assert!(matches!(step.poll_effect(), Some(Effect::RequestFix { next_attempt: 2, .. })));
//! # Ok::<(), ensemble_core::message::NameError>(())
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Machine;
use crate::env::Monotonic;
use crate::message::Name;

mod order;
mod refusal;
#[cfg(test)]
mod tests;

pub use order::{OrderError, Phase, check_cycles};
pub use refusal::Refusal;

/// How often a step is handed out, unless its plan says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 3;
/// How often a step can be handed out at most before somebody must say to begin anew.
pub const ATTEMPTS_LIMIT: u32 = 99;
/// How often whoever is to intervene is reminded.
pub const REMIND_EVERY: Duration = Duration::from_secs(600);

const _: () = assert!(ATTEMPTS_DEFAULT <= ATTEMPTS_LIMIT);

/// Where a step stands: the seed's five states, with what is known in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its turn.
    Pending,
    /// Somebody works on it.
    InProgress {
        /// Who.
        holder: Name,
    },
    /// It is done.
    Completed(Resolution),
    /// Its worker could not go on; somebody must intervene.
    Blocked {
        /// Why; never empty.
        reasons: Vec<String>,
    },
    /// It did not work.
    Failed {
        /// What went wrong.
        error: String,
        /// Whether a worker is to fix it, or somebody must intervene.
        fix: Fix,
    },
}

/// In which way a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// Its worker has reported success.
    Success,
    /// Somebody decided to do without it.
    Skipped,
    /// Smaller steps have taken its place.
    Split,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fix {
    /// A worker takes it up again, with the error.
    Due,
    /// It was tried too often.
    Exhausted,
}

/// What a worker says of its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is done.
    Success,
    /// It does not work.
    Failure {
        /// What went wrong.
        error: String,
    },
    /// It cannot go on.
    Blocked {
        /// Why; at least one.
        reasons: Vec<String>,
    },
}

/// What happens to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is its turn, and somebody takes it.
    Taken {
        /// Who.
        by: Name,
    },
    /// A worker reports. Whether it is who it says was checked before.
    Reported {
        /// Who.
        by: Name,
        /// Under which epoch; `None` from a worker that was not told.
        epoch: Option<u64>,
        /// What.
        report: Report,
    },
    /// A worker shows that it lives.
    Beat {
        /// Who.
        by: Name,
        /// Under which epoch; `None` from a worker that was not told.
        epoch: Option<u64>,
    },
    /// Its holder was silent for the whole of its lease.
    LeaseEnded {
        /// The epoch that has ended.
        epoch: u64,
    },
    /// What was in the way is gone.
    Unblocked,
    /// It is to be tried anew; whoever works on it is too late.
    Retried,
    /// It is not needed.
    Skipped,
    /// Smaller steps take its place.
    Split,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand it to a worker, with a lease and its files.
    Hand {
        /// To whom.
        to: Name,
        /// Which attempt, from 1.
        attempt: u32,
        /// Its fencing number, from 1.
        epoch: u64,
        /// What went wrong in the attempt before.
        error: Option<String>,
    },
    /// Nobody works on it any more: free its files.
    Free,
    /// The lease begins anew.
    Beaten,
    /// Ask for a fix.
    RequestFix {
        /// What went wrong.
        error: String,
        /// Which attempt that will be.
        next_attempt: u32,
    },
    /// Somebody must intervene: tell the orchestrator, and stop the queue or pass the step over.
    Stop {
        /// What is in the way.
        reasons: Vec<String>,
    },
    /// Tell the orchestrator again.
    Remind,
    /// The queue can go on.
    Advance,
    /// Nothing changed.
    Refused(Refusal),
}

/// The machine of one step; see the table at the top of this page.
#[derive(Clone, Debug)]
pub struct Step {
    state: State,
    attempt: u32,
    epoch: u64,
    attempts_max: u32,
    remind_at: Option<Monotonic>,
    effects: VecDeque<Effect>,
}

impl Step {
    /// A step that waits, and is handed out at most so often (1 to [`ATTEMPTS_LIMIT`]).
    #[must_use]
    pub fn new(attempts_max: u32) -> Self {
        Self::restore(State::Pending, 0, 0, attempts_max, Monotonic::ZERO)
    }

    /// Takes up a step as it was stored.
    #[must_use]
    pub fn restore(
        state: State,
        attempt: u32,
        epoch: u64,
        attempts_max: u32,
        now: Monotonic,
    ) -> Self {
        let attempts_max = attempts_max.clamp(1, ATTEMPTS_LIMIT);
        let effects = VecDeque::new();
        let mut step = Self { state, attempt, epoch, attempts_max, remind_at: None, effects };
        step.remind_from(now);
        step
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Which attempt it is in, or was in last; 0 before the first.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How often it was handed out so far.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    fn refuse(&mut self, refusal: Refusal) -> State {
        self.effects.push_back(Effect::Refused(refusal));
        self.state.clone()
    }

    fn refuse_here(&mut self) -> State {
        let refusal = Refusal::of(&self.state);
        self.refuse(refusal)
    }

    fn hand(&mut self, to: Name, error: Option<String>) -> State {
        self.attempt = self.attempt.saturating_add(1);
        self.epoch = self.epoch.saturating_add(1);
        let (attempt, epoch) = (self.attempt, self.epoch);
        self.effects.push_back(Effect::Hand { to: to.clone(), attempt, epoch, error });
        State::InProgress { holder: to }
    }

    /// Why this worker may not speak for the step, if so.
    fn objection(&self, holder: &Name, by: &Name, epoch: Option<u64>) -> Option<Refusal> {
        if holder != by {
            return Some(Refusal::HeldByAnother { holder: holder.clone() });
        }
        let current = self.epoch;
        match epoch {
            Some(epoch) if epoch != current => Some(Refusal::Outdated { epoch, current }),
            Some(_) | None => None,
        }
    }

    fn report(&mut self, report: Report) -> State {
        match report {
            Report::Success => {
                self.effects.extend([Effect::Free, Effect::Advance]);
                State::Completed(Resolution::Success)
            }
            Report::Failure { error } => self.fail(error),
            Report::Blocked { reasons } if reasons.is_empty() => self.refuse(Refusal::NoReasons),
            Report::Blocked { reasons } => {
                self.effects.extend([Effect::Free, Effect::Stop { reasons: reasons.clone() }]);
                State::Blocked { reasons }
            }
        }
    }

    fn fail(&mut self, error: String) -> State {
        self.effects.push_back(Effect::Free);
        if self.attempt < self.attempts_max {
            let next_attempt = self.attempt + 1;
            self.effects.push_back(Effect::RequestFix { error: error.clone(), next_attempt });
            return State::Failed { error, fix: Fix::Due };
        }
        self.exhaust(error)
    }

    fn exhaust(&mut self, error: String) -> State {
        self.effects.push_back(Effect::Stop { reasons: vec![error.clone()] });
        State::Failed { error, fix: Fix::Exhausted }
    }

    fn lease_ended(&mut self, holder: &Name) -> State {
        self.effects.push_back(Effect::Free);
        if self.attempt < self.attempts_max {
            self.effects.push_back(Effect::Advance);
            return State::Pending;
        }
        self.exhaust(format!("{holder} fell silent, and it was the last of the attempts"))
    }

    fn begin_anew(&mut self) -> State {
        self.attempt = 0;
        self.effects.push_back(Effect::Advance);
        State::Pending
    }

    fn resolve(&mut self, resolution: Resolution) -> State {
        self.effects.push_back(Effect::Advance);
        State::Completed(resolution)
    }

    /// What its holder, or somebody about its holder, says.
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
            Event::LeaseEnded { .. } => State::InProgress { holder },
            Event::Retried => {
                self.effects.push_back(Effect::Free);
                self.begin_anew()
            }
            Event::Taken { .. } | Event::Unblocked | Event::Skipped | Event::Split => {
                self.refuse(Refusal::HeldByAnother { holder })
            }
        }
    }

    fn remind_from(&mut self, now: Monotonic) {
        self.remind_at = match &self.state {
            State::Blocked { .. } | State::Failed { fix: Fix::Exhausted, .. } => {
                Some(now + REMIND_EVERY)
            }
            State::Pending
            | State::InProgress { .. }
            | State::Completed(_)
            | State::Failed { fix: Fix::Due, .. } => None,
        };
    }
}

impl Machine for Step {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        let next = match (self.state.clone(), event) {
            (State::Pending, Event::Taken { by }) => self.hand(by, None),
            (State::Failed { error, fix: Fix::Due }, Event::Taken { by }) => {
                self.hand(by, Some(error))
            }
            (State::InProgress { holder }, event) => self.while_held(holder, event),
            (State::Blocked { .. }, Event::Unblocked) | (State::Failed { .. }, Event::Retried) => {
                self.begin_anew()
            }
            (State::Pending | State::Blocked { .. } | State::Failed { .. }, Event::Skipped) => {
                self.resolve(Resolution::Skipped)
            }
            (State::Pending | State::Blocked { .. } | State::Failed { .. }, Event::Split) => {
                self.resolve(Resolution::Split)
            }
            // Nobody holds it, so no lease can end.
            (
                state @ (State::Pending
                | State::Completed(_)
                | State::Blocked { .. }
                | State::Failed { .. }),
                Event::LeaseEnded { .. },
            ) => state,
            (
                State::Pending | State::Completed(_) | State::Blocked { .. } | State::Failed { .. },
                Event::Reported { .. } | Event::Beat { .. },
            )
            | (
                State::Completed(_)
                | State::Blocked { .. }
                | State::Failed { fix: Fix::Exhausted, .. },
                Event::Taken { .. },
            )
            | (State::Pending | State::Completed(_) | State::Failed { .. }, Event::Unblocked)
            | (State::Pending | State::Completed(_) | State::Blocked { .. }, Event::Retried)
            | (State::Completed(_), Event::Skipped | Event::Split) => self.refuse_here(),
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
