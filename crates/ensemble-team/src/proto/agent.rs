//! The state of an agent, as its entry on the blackboard shows it (seed 001's siblings).
//!
//! ```text
//! state      event      -> state
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
//! HANDOFF    Exit       -> gone
//! any other  Exit       -> gone                 (a crash, or the end of its work)
//! any        another    -> Refused
//! ```
//!
//! *A crash* is an Exit that the agent's supervisor or the observer of its lease reports. The
//! machines of its tasks release what it held. *Out of order*: refused, nothing changes.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Its supervisor has registered it.
    Starting,
    Idle,
    Working,
    Reviewing,
    /// Its task is under review.
    Waiting,
    /// It writes hand-over notes for a fresh agent.
    Handoff,
    /// The agent's entry was removed.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Ready,
    /// It got a task, or its rejected task back.
    Work,
    Review,
    /// It has submitted its task.
    Wait,
    /// It no longer holds anything.
    Finish,
    HandOff,
    Exit,
}

/// The state does not allow the event; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentRefusal;

/// The state of an agent after an event; see the module's table. The entry of an agent that is
/// [`State::Gone`] is removed.
pub const fn next(state: State, event: Event) -> Result<State, AgentRefusal> {
    match (state, event) {
        (State::Starting, Event::Ready) => Ok(State::Idle),
        (State::Idle | State::Waiting | State::Handoff, Event::Work) => Ok(State::Working),
        (State::Idle | State::Handoff, Event::Review) => Ok(State::Reviewing),
        (State::Working, Event::Wait) => Ok(State::Waiting),
        (State::Working | State::Reviewing | State::Waiting, Event::Finish) => Ok(State::Idle),
        (State::Working | State::Reviewing, Event::HandOff) => Ok(State::Handoff),
        (State::Gone, Event::Exit)
        | (
            _,
            Event::Ready
            | Event::Work
            | Event::Review
            | Event::Wait
            | Event::Finish
            | Event::HandOff,
        ) => Err(AgentRefusal),
        (_, Event::Exit) => Ok(State::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::variant_pairs;

    #[test]
    fn every_pair_of_state_and_event() {
        use Event::{Exit, Finish, HandOff, Ready, Review, Wait, Work};
        use State::{Gone, Handoff, Idle, Reviewing, Starting, Waiting, Working};
        let states = [Starting, Idle, Working, Reviewing, Waiting, Handoff, Gone];
        let events = [Ready, Work, Review, Wait, Finish, HandOff, Exit];
        let table = variant_pairs(&states, &events, |state, event| match next(state, event) {
            Ok(next) => format!("{next:?}"),
            Err(AgentRefusal) => "!".to_owned(),
        });
        let expected = "
         Starting  Idle       Working  Reviewing  Waiting  Handoff    Gone
Ready    Idle      !          !        !          !        !          !
Work     !         Working    !        !          Working  Working    !
Review   !         Reviewing  !        !          !        Reviewing  !
Wait     !         !          Waiting  !          !        !          !
Finish   !         !          Idle     Idle       Idle     !          !
HandOff  !         !          Handoff  Handoff    !        !          !
Exit     Gone      Gone       Gone     Gone       Gone     Gone       !
";
        assert_eq!(table, expected);
    }
}
