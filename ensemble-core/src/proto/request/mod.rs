//! A question with an id, one addressee and one answer (seed 004: one machine for shutdown, plan
//! approval and future kinds).
//!
//! ```text
//! state     event / time                             -> state     effects
//! New       Opened                                   -> Pending   Announce
//! Pending   Decide, by its addressee                 -> Pending   Close
//! Pending   Decide, by any other agent               -> Pending   Refused
//! Pending   Cancel, by its requester                 -> Pending   Close
//! Pending   Cancel, by another agent                 -> Pending   Refused
//! Pending   remind_every, repeatedly                 -> Pending   Remind
//! Pending   deadline; again after 10 s               -> Pending   Close (expired)
//! Pending   Standing                                 -> Closed    Closed
//! Pending   Absent, of a kind that can be forced     -> Pending   Close (expired)
//! New       Standing                                 -> Closed    Closed  (out of order)
//! New       Decide, Cancel                           -> New       Refused (unknown)
//! Closed    Decide, Cancel                           -> Closed    Refused (who, what, when)
//! Closed    Opened, Standing, Absent                 -> Closed
//! ```
//!
//! The machine is independent of the request's content. The decider is fixed when the request is made: its addressee,
//! and never its requester. Several processes may decide at once, so one file that is created with no-replace fixes
//! the decision. A valid decision is only a proposal ([`Effect::Close`]). The content of the file, the process's own
//! or another's, comes back as [`Event::Standing`] and is final. Expiry and cancellation go the same way, so a
//! request cannot be both expired and approved.
//!
//! *Silence* of the addressee ends with the deadline; the [`RequestKind`] defines its meaning. *A
//! crash* before the file exists leaves the request pending; after that it is decided. After a
//! restart the machine receives `Opened` and, if the file exists, `Standing`. Announcing twice is
//! harmless because the message has the request's id.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Machine;
use crate::env::Monotonic;
use crate::message::{Name, Timestamp};

mod kind;
mod refusal;
#[cfg(test)]
mod tests;
mod tracker;

pub use kind::{
    AtExpiry, PERMISSION, PLAN_APPROVAL, PLAN_DEADLINE, PLAN_REMIND_EVERY, RequestKind, SHUTDOWN,
    SHUTDOWN_DEADLINE, SHUTDOWN_REMIND_EVERY,
};
pub use refusal::DecisionRefusal;
pub use tracker::{Correlated, RequestTracker};

/// Interval at which an expiry with unknown outcome is proposed again.
pub const CLOSE_REPEAT: Duration = Duration::from_secs(10);

const _: () = assert!(CLOSE_REPEAT.as_secs() < SHUTDOWN_REMIND_EVERY.as_secs());

/// Outcome of a request; [`PendingRequest`](crate::PendingRequest) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The addressee approved.
    Approved,
    /// The addressee rejected.
    Rejected,
    /// The addressee did not answer in time.
    Expired,
    /// The requester cancelled it.
    Cancelled,
}

/// The single, final answer to a [`PendingRequest`](crate::PendingRequest); the content of its decision file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The outcome.
    pub outcome: Outcome,
    /// The decider; for an expiry, the addressee.
    pub by: Name,
    /// Time of the decision, by the decider's wall clock.
    pub at: Timestamp,
    /// The decider's comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Decision {
    #[must_use]
    pub const fn new(outcome: Outcome, by: Name, at: Timestamp) -> Self {
        Self { outcome, by, at, comment: String::new() }
    }

    #[must_use]
    pub fn with_comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = comment.into();
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request exists.
    Opened { age: Duration },
    /// An agent wants to approve or reject it. The agent's identity was checked before.
    Decide(Decision),
    /// An agent wants to cancel it.
    Cancel(Decision),
    /// The content of the decision file.
    Standing(Decision),
    /// The addressee has ended, so no answer will come; the comment states the evidence. If the
    /// deadline would force the action, it is forced at once.
    Absent(Decision),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send the request to its addressee, under its own id.
    Announce,
    Remind {
        /// Number of the reminder, starting at 1.
        nth: u32,
    },
    /// Create the decision file unless it exists, and report its content.
    Close(Decision),
    /// The request is decided: notify the requester, wake the worker, carry out the kind's action. Exactly once.
    Closed(Decision),
    /// Send the refusal to the agent that tried, and log it.
    Refused(DecisionRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    New,
    Pending { close_at: Monotonic, remind_at: Option<Monotonic>, reminded: u32 },
    Closed(Decision),
}

#[derive(Clone, Debug)]
pub struct Request {
    id: String,
    kind: RequestKind,
    from: Name,
    to: Name,
    created_at: Timestamp,
    state: State,
    effects: VecDeque<Effect>,
}

impl Request {
    pub fn new(
        id: impl Into<String>,
        kind: RequestKind,
        from: Name,
        to: Name,
        created_at: Timestamp,
    ) -> Self {
        let (state, effects) = (State::New, VecDeque::new());
        Self { id: id.into(), kind, from, to, created_at, state, effects }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub const fn kind(&self) -> &RequestKind {
        &self.kind
    }

    pub const fn from(&self) -> &Name {
        &self.from
    }

    /// The addressee, which may decide it.
    pub const fn to(&self) -> &Name {
        &self.to
    }

    /// The decision; `None` while the request is pending.
    pub const fn decision(&self) -> Option<&Decision> {
        match &self.state {
            State::New | State::Pending { .. } => None,
            State::Closed(decision) => Some(decision),
        }
    }

    /// Whether this decision may be proposed now; the check of [`Event::Decide`].
    pub fn check(&self, decision: &Decision) -> Result<(), DecisionRefusal> {
        let (id, by) = (self.id.clone(), decision.by.clone());
        if let Some(standing) = self.decision() {
            return Err(DecisionRefusal::Decided { id, decision: standing.clone() });
        }
        match decision.outcome {
            Outcome::Approved | Outcome::Rejected if by == self.from => {
                Err(DecisionRefusal::OwnRequest { id, by })
            }
            Outcome::Approved | Outcome::Rejected if by != self.to => {
                Err(DecisionRefusal::NotAddressee { id, to: self.to.clone(), by })
            }
            Outcome::Cancelled if by != self.from => {
                Err(DecisionRefusal::NotRequester { id, from: self.from.clone(), by })
            }
            Outcome::Approved | Outcome::Rejected | Outcome::Cancelled => Ok(()),
            // Only time expires a request.
            Outcome::Expired => Err(DecisionRefusal::NotAddressee { id, to: self.to.clone(), by }),
        }
    }

    fn propose(&mut self, decision: Decision) {
        self.effects.push_back(match self.check(&decision) {
            Ok(()) => Effect::Close(decision),
            Err(refusal) => Effect::Refused(refusal),
        });
    }

    fn open(&mut self, now: Monotonic, age: Duration) -> State {
        self.effects.push_back(Effect::Announce);
        let close_at = now + self.kind.deadline.saturating_sub(age);
        // Reminders keep their times and numbers after a restart.
        let every = self.kind.remind_every.as_millis();
        let reminded = age.as_millis().checked_div(every).unwrap_or(0);
        let next = Duration::from_millis(
            u64::try_from((reminded + 1).saturating_mul(every)).unwrap_or(u64::MAX),
        );
        let next = now + next.saturating_sub(age);
        let remind_at = Some(next).filter(|at| every > 0 && *at < close_at);
        let reminded = u32::try_from(reminded).unwrap_or(u32::MAX);
        State::Pending { close_at, remind_at, reminded }
    }

    fn close(&mut self, decision: Decision) -> State {
        self.effects.push_back(Effect::Closed(decision.clone()));
        State::Closed(decision)
    }

    fn expiry(&self) -> Decision {
        let at = self.created_at.plus(self.kind.deadline);
        Decision::new(Outcome::Expired, self.to.clone(), at)
    }
}

impl Machine for Request {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        let state = std::mem::replace(&mut self.state, State::New);
        self.state = match (state, event) {
            (State::New, Event::Opened { age }) => self.open(now, age),
            (State::New, Event::Decide(_) | Event::Cancel(_)) => {
                let id = self.id.clone();
                self.effects.push_back(Effect::Refused(DecisionRefusal::Unknown { id }));
                State::New
            }
            (State::New | State::Pending { .. }, Event::Standing(decision)) => self.close(decision),
            (state @ State::Pending { .. }, Event::Decide(decision)) => {
                self.propose(decision);
                state
            }
            (state @ State::Pending { .. }, Event::Cancel(decision)) => {
                self.propose(Decision { outcome: Outcome::Cancelled, ..decision });
                state
            }
            (state @ State::Pending { .. }, Event::Absent(decision)) => {
                if self.kind.at_expiry == AtExpiry::Force {
                    let (outcome, by) = (Outcome::Expired, self.to.clone());
                    self.effects.push_back(Effect::Close(Decision { outcome, by, ..decision }));
                }
                state
            }
            (state @ State::New, Event::Absent(_))
            | (state @ State::Pending { .. }, Event::Opened { .. }) => state,
            (State::Closed(decision), Event::Decide(_) | Event::Cancel(_)) => {
                let (id, standing) = (self.id.clone(), decision.clone());
                let refusal = DecisionRefusal::Decided { id, decision: standing };
                self.effects.push_back(Effect::Refused(refusal));
                State::Closed(decision)
            }
            (
                state @ State::Closed(_),
                Event::Opened { .. } | Event::Standing(_) | Event::Absent(_),
            ) => state,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        let State::Pending { close_at, remind_at, reminded } = &mut self.state else { return };
        if now >= *close_at {
            (*close_at, *remind_at) = (now + CLOSE_REPEAT, None);
            self.effects.push_back(Effect::Close(self.expiry()));
        } else if remind_at.is_some_and(|at| now >= at) {
            *remind_at = Some(now + self.kind.remind_every).filter(|at| *at < *close_at);
            *reminded += 1;
            self.effects.push_back(Effect::Remind { nth: *reminded });
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match &self.state {
            State::Pending { close_at, remind_at, .. } => Some(remind_at.unwrap_or(*close_at)),
            State::New | State::Closed(_) => None,
        }
    }
}
