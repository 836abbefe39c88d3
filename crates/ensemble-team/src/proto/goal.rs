//! The goal and its sprints (seed 001 and its siblings).
//!
//! ```text
//! goal          event       -> goal
//! PLANNING      Begin       -> IN_PROGRESS
//! PLANNING      Abort       -> ABORTED
//! IN_PROGRESS   Complete    -> COMPLETED
//! IN_PROGRESS   Abort       -> ABORTED
//! any           another     -> Refused
//!
//! sprint        event       -> sprint
//! IN_PROGRESS   Checkpoint  -> CHECKPOINT
//! IN_PROGRESS   Complete    -> COMPLETED
//! IN_PROGRESS   Abort       -> ABORTED
//! CHECKPOINT    Resume      -> IN_PROGRESS
//! CHECKPOINT    Abort       -> ABORTED
//! any           another     -> Refused
//! ```
//!
//! At a checkpoint no agent gets work until a person resumes. COMPLETED and ABORTED are final. *Out
//! of order*: refused, nothing changes.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GoalState {
    Planning,
    InProgress,
    Completed,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalEvent {
    /// The plan is complete.
    Begin,
    Complete,
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SprintState {
    InProgress,
    /// It waits for a person.
    Checkpoint,
    Completed,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SprintEvent {
    /// A person must review it.
    Checkpoint,
    /// A person has reviewed it.
    Resume,
    Complete,
    Abort,
}

/// The state does not allow the event; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoalRefusal;

pub const fn next_goal(state: GoalState, event: GoalEvent) -> Result<GoalState, GoalRefusal> {
    match (state, event) {
        (GoalState::Planning, GoalEvent::Begin) => Ok(GoalState::InProgress),
        (GoalState::InProgress, GoalEvent::Complete) => Ok(GoalState::Completed),
        (GoalState::Planning | GoalState::InProgress, GoalEvent::Abort) => Ok(GoalState::Aborted),
        (_, GoalEvent::Begin | GoalEvent::Complete | GoalEvent::Abort) => Err(GoalRefusal),
    }
}

pub const fn next_sprint(
    state: SprintState,
    event: SprintEvent,
) -> Result<SprintState, GoalRefusal> {
    match (state, event) {
        (SprintState::InProgress, SprintEvent::Checkpoint) => Ok(SprintState::Checkpoint),
        (SprintState::InProgress, SprintEvent::Complete) => Ok(SprintState::Completed),
        (SprintState::InProgress | SprintState::Checkpoint, SprintEvent::Abort) => {
            Ok(SprintState::Aborted)
        }
        (SprintState::Checkpoint, SprintEvent::Resume) => Ok(SprintState::InProgress),
        (
            _,
            SprintEvent::Checkpoint
            | SprintEvent::Resume
            | SprintEvent::Complete
            | SprintEvent::Abort,
        ) => Err(GoalRefusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::variant_pairs;

    fn cell(next: Result<impl std::fmt::Debug, GoalRefusal>) -> String {
        next.map_or_else(|_| "!".to_owned(), |state| format!("{state:?}"))
    }

    #[test]
    fn every_pair_of_the_goal() {
        use GoalState::{Aborted, Completed, InProgress, Planning};
        let states = [Planning, InProgress, Completed, Aborted];
        let events = [GoalEvent::Begin, GoalEvent::Complete, GoalEvent::Abort];
        let table = variant_pairs(&states, &events, |state, event| cell(next_goal(state, event)));
        let expected = "
          Planning    InProgress  Completed  Aborted
Begin     InProgress  !           !          !
Complete  !           Completed   !          !
Abort     Aborted     Aborted     !          !
";
        assert_eq!(table, expected);
    }

    #[test]
    fn every_pair_of_a_sprint() {
        use SprintEvent as Event;
        use SprintState::{Aborted, Checkpoint, Completed, InProgress};
        let states = [InProgress, Checkpoint, Completed, Aborted];
        let events = [Event::Checkpoint, Event::Resume, Event::Complete, Event::Abort];
        let table = variant_pairs(&states, &events, |state, event| cell(next_sprint(state, event)));
        let expected = "
            InProgress  Checkpoint  Completed  Aborted
Checkpoint  Checkpoint  !           !          !
Resume      !           InProgress  !          !
Complete    Completed   !           !          !
Abort       Aborted     Aborted     !          !
";
        assert_eq!(table, expected);
    }
}
