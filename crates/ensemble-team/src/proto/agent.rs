//! The state of an agent, as its entry on the blackboard shows it (seed 001's siblings).
//!
//! ```text
//! state      event      -> state      effects
//! STARTING   Ready      -> IDLE
//! IDLE       Work       -> WORKING
//! IDLE       Review     -> REVIEWING
//! WORKING    Wait       -> WAITING              (for its task's review)
//! WORKING    Finish     -> IDLE
//! WORKING    HandOff    -> HANDOFF
//! REVIEWING  Finish     -> IDLE
//! REVIEWING  HandOff    -> HANDOFF
//! WAITING    Work       -> WORKING
//! WAITING    Finish     -> IDLE
//! HANDOFF    Work       -> WORKING              (a fresh agent under the same registration)
//! HANDOFF    Review     -> REVIEWING            (the same)
//! HANDOFF    Exit       -> gone       Forget
//! any other  Exit       -> gone       Forget    (a crash, or the end of its work)
//! any        another    -> same       Refused
//! ```
//!
//! *A crash* is an Exit that the agent's supervisor or the observer of its lease reports. The
//! machines of its tasks release what it held. *Out of order*: refused, nothing changes.
//!
//! ```
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::proto::Machine;
//! use ensemble_team::proto::agent::{Agent, Event, State};
//!
//! let mut agent = Agent::new(State::Starting);
//! agent.handle(Monotonic::ZERO, Event::Ready);
//! agent.handle(Monotonic::ZERO, Event::Work);
//! assert_eq!(agent.state(), State::Working);
//! ```

use std::collections::VecDeque;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;

/// State of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Its supervisor has registered it.
    Starting,
    /// The agent has no work.
    Idle,
    /// It works on a task.
    Working,
    /// The agent reviews a task.
    Reviewing,
    /// Its task is under review.
    Waiting,
    /// It writes hand-over notes for a fresh agent.
    Handoff,
    /// The agent's entry was removed.
    Gone,
}

/// An event of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent runs.
    Ready,
    /// It got a task, or its rejected task back.
    Work,
    /// The agent got a review.
    Review,
    /// It has submitted its task.
    Wait,
    /// It no longer holds anything.
    Finish,
    /// The agent's context is full.
    HandOff,
    /// The agent has ended.
    Exit,
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Remove the agent's entry.
    Forget,
    /// The event was refused; nothing changed.
    Refused {
        /// The current state.
        state: State,
    },
}

/// The machine of one agent; see the module's table.
#[derive(Clone, Debug)]
pub struct Agent {
    state: State,
    effects: VecDeque<Effect>,
}

impl Agent {
    /// An agent in the board's state.
    #[must_use]
    pub const fn new(state: State) -> Self {
        Self { state, effects: VecDeque::new() }
    }

    /// The current state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }
}

impl Machine for Agent {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, _now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::Starting, Event::Ready) => State::Idle,
            (State::Idle | State::Waiting | State::Handoff, Event::Work) => State::Working,
            (State::Idle | State::Handoff, Event::Review) => State::Reviewing,
            (State::Working, Event::Wait) => State::Waiting,
            (State::Working | State::Reviewing | State::Waiting, Event::Finish) => State::Idle,
            (State::Working | State::Reviewing, Event::HandOff) => State::Handoff,
            (
                State::Starting
                | State::Idle
                | State::Working
                | State::Reviewing
                | State::Waiting
                | State::Handoff,
                Event::Exit,
            ) => {
                self.effects.push_back(Effect::Forget);
                State::Gone
            }
            (
                state @ State::Starting,
                Event::Work | Event::Review | Event::Wait | Event::Finish | Event::HandOff,
            )
            | (state @ State::Idle, Event::Ready | Event::Wait | Event::Finish | Event::HandOff)
            | (state @ State::Working, Event::Ready | Event::Work | Event::Review)
            | (
                state @ State::Reviewing,
                Event::Ready | Event::Work | Event::Review | Event::Wait,
            )
            | (
                state @ State::Waiting,
                Event::Ready | Event::Review | Event::Wait | Event::HandOff,
            )
            | (
                state @ State::Handoff,
                Event::Ready | Event::Wait | Event::Finish | Event::HandOff,
            )
            | (
                state @ State::Gone,
                Event::Ready
                | Event::Work
                | Event::Review
                | Event::Wait
                | Event::Finish
                | Event::HandOff
                | Event::Exit,
            ) => {
                self.effects.push_back(Effect::Refused { state });
                state
            }
        };
    }

    fn handle_timeout(&mut self, _now: Monotonic) {}

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::proto::testing::{drain, pairs};

    #[test]
    fn every_pair_of_state_and_event() {
        let states = [
            ("starting", State::Starting),
            ("idle", State::Idle),
            ("working", State::Working),
            ("reviewing", State::Reviewing),
            ("waiting", State::Waiting),
            ("handoff", State::Handoff),
            ("gone", State::Gone),
        ];
        let events = [
            ("Ready", Event::Ready),
            ("Work", Event::Work),
            ("Review", Event::Review),
            ("Wait", Event::Wait),
            ("Finish", Event::Finish),
            ("HandOff", Event::HandOff),
            ("Exit", Event::Exit),
        ];
        let table = pairs(&states, &events, |state, event| {
            let mut agent = Agent::new(*state);
            agent.handle(Monotonic::ZERO, *event);
            match drain(&mut agent)[..] {
                [Effect::Refused { state: refused }] => {
                    assert_eq!((refused, agent.state()), (*state, *state));
                    "!".to_owned()
                }
                [Effect::Forget] | [] => format!("{:?}", agent.state()).to_lowercase(),
                ref other => panic!("{other:?}"),
            }
        });
        let expected = "
         starting  idle       working  reviewing  waiting  handoff    gone
Ready    idle      !          !        !          !        !          !
Work     !         working    !        !          working  working    !
Review   !         reviewing  !        !          !        reviewing  !
Wait     !         !          waiting  !          !        !          !
Finish   !         !          idle     idle       idle     !          !
HandOff  !         !          handoff  handoff    !        !          !
Exit     gone      gone       gone     gone       gone     gone       !
";
        assert_eq!(table, expected);
    }
}
