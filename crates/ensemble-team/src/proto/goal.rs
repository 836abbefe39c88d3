//! The goal and its sprints (seed 001 and its siblings).
//!
//! ```text
//! goal          event       -> goal          effects
//! PLANNING      Begin       -> IN_PROGRESS
//! PLANNING      Abort       -> ABORTED
//! IN_PROGRESS   Complete    -> COMPLETED
//! IN_PROGRESS   Abort       -> ABORTED
//! any           another     -> same          Refused
//!
//! sprint        event       -> sprint        effects
//! IN_PROGRESS   Checkpoint  -> CHECKPOINT    Stop
//! IN_PROGRESS   Complete    -> COMPLETED
//! IN_PROGRESS   Abort       -> ABORTED       Stop
//! CHECKPOINT    Resume      -> IN_PROGRESS
//! CHECKPOINT    Abort       -> ABORTED       Stop
//! any           another     -> same          Refused
//! ```
//!
//! At a checkpoint no agent gets work until a person resumes. COMPLETED and ABORTED are final. *Out
//! of order*: refused, nothing changes.
//!
//! ```
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::proto::Machine;
//! use ensemble_team::proto::goal::{Effect, Sprint, SprintEvent, SprintState};
//!
//! let mut sprint = Sprint::new(SprintState::InProgress);
//! sprint.handle(Monotonic::ZERO, SprintEvent::Checkpoint);
//! assert_eq!(sprint.poll_effect(), Some(Effect::Stop));
//! sprint.handle(Monotonic::ZERO, SprintEvent::Resume);
//! assert_eq!(sprint.state(), SprintState::InProgress);
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;

/// State of the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GoalState {
    /// Its planner divides it into tasks.
    Planning,
    /// Agents work on it.
    InProgress,
    /// The goal is reached.
    Completed,
    /// The goal was aborted.
    Aborted,
}

/// An event of the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalEvent {
    /// The plan is complete.
    Begin,
    /// The goal is declared reached.
    Complete,
    /// The goal is aborted.
    Abort,
}

/// State of a sprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SprintState {
    /// The sprint runs.
    InProgress,
    /// It waits for a person.
    Checkpoint,
    /// The sprint is over.
    Completed,
    /// The sprint was aborted.
    Aborted,
}

/// An event of a sprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SprintEvent {
    /// A person must review it.
    Checkpoint,
    /// A person has reviewed it.
    Resume,
    /// The sprint ends.
    Complete,
    /// The sprint is aborted.
    Abort,
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give no agent new work.
    Stop,
    /// The event was refused; nothing changed.
    Refused,
}

/// The machine of the goal; see the module's table.
#[derive(Clone, Debug)]
pub struct Goal {
    state: GoalState,
    effects: VecDeque<Effect>,
}

impl Goal {
    /// A goal in the board's state.
    #[must_use]
    pub const fn new(state: GoalState) -> Self {
        Self { state, effects: VecDeque::new() }
    }

    /// The current state.
    #[must_use]
    pub const fn state(&self) -> GoalState {
        self.state
    }
}

impl Machine for Goal {
    type Event = GoalEvent;
    type Effect = Effect;

    fn handle(&mut self, _now: Monotonic, event: GoalEvent) {
        self.state = match (self.state, event) {
            (GoalState::Planning, GoalEvent::Begin) => GoalState::InProgress,
            (GoalState::InProgress, GoalEvent::Complete) => GoalState::Completed,
            (GoalState::Planning | GoalState::InProgress, GoalEvent::Abort) => GoalState::Aborted,
            (
                state @ (GoalState::InProgress | GoalState::Completed | GoalState::Aborted),
                GoalEvent::Begin,
            )
            | (
                state @ (GoalState::Planning | GoalState::Completed | GoalState::Aborted),
                GoalEvent::Complete,
            )
            | (state @ (GoalState::Completed | GoalState::Aborted), GoalEvent::Abort) => {
                self.effects.push_back(Effect::Refused);
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

/// The machine of a sprint; see the module's table.
#[derive(Clone, Debug)]
pub struct Sprint {
    state: SprintState,
    effects: VecDeque<Effect>,
}

impl Sprint {
    /// A sprint in the board's state.
    #[must_use]
    pub const fn new(state: SprintState) -> Self {
        Self { state, effects: VecDeque::new() }
    }

    /// The current state.
    #[must_use]
    pub const fn state(&self) -> SprintState {
        self.state
    }
}

impl Machine for Sprint {
    type Event = SprintEvent;
    type Effect = Effect;

    fn handle(&mut self, _now: Monotonic, event: SprintEvent) {
        let (state, effect) = match (self.state, event) {
            (SprintState::InProgress, SprintEvent::Checkpoint) => {
                (SprintState::Checkpoint, Some(Effect::Stop))
            }
            (SprintState::InProgress, SprintEvent::Complete) => (SprintState::Completed, None),
            (SprintState::InProgress | SprintState::Checkpoint, SprintEvent::Abort) => {
                (SprintState::Aborted, Some(Effect::Stop))
            }
            (SprintState::Checkpoint, SprintEvent::Resume) => (SprintState::InProgress, None),
            (
                state @ (SprintState::Checkpoint | SprintState::Completed | SprintState::Aborted),
                SprintEvent::Checkpoint | SprintEvent::Complete,
            )
            | (
                state @ (SprintState::InProgress | SprintState::Completed | SprintState::Aborted),
                SprintEvent::Resume,
            )
            | (state @ (SprintState::Completed | SprintState::Aborted), SprintEvent::Abort) => {
                (state, Some(Effect::Refused))
            }
        };
        self.state = state;
        self.effects.extend(effect);
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

    fn told(state: &impl std::fmt::Debug, effects: &[Effect]) -> String {
        match effects {
            [Effect::Refused] => "!".to_owned(),
            [Effect::Stop] => format!("{state:?}+stop"),
            [] => format!("{state:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_pair_of_the_goal() {
        let states = [
            ("planning", GoalState::Planning),
            ("in_progress", GoalState::InProgress),
            ("completed", GoalState::Completed),
            ("aborted", GoalState::Aborted),
        ];
        let events = [
            ("Begin", GoalEvent::Begin),
            ("Complete", GoalEvent::Complete),
            ("Abort", GoalEvent::Abort),
        ];
        let table = pairs(&states, &events, |state, event| {
            let mut goal = Goal::new(*state);
            goal.handle(Monotonic::ZERO, *event);
            told(&goal.state(), &drain(&mut goal))
        });
        let expected = "
          planning    in_progress  completed  aborted
Begin     InProgress  !            !          !
Complete  !           Completed    !          !
Abort     Aborted     Aborted      !          !
";
        assert_eq!(table, expected);
    }

    #[test]
    fn every_pair_of_a_sprint() {
        let states = [
            ("in_progress", SprintState::InProgress),
            ("checkpoint", SprintState::Checkpoint),
            ("completed", SprintState::Completed),
            ("aborted", SprintState::Aborted),
        ];
        let events = [
            ("Checkpoint", SprintEvent::Checkpoint),
            ("Resume", SprintEvent::Resume),
            ("Complete", SprintEvent::Complete),
            ("Abort", SprintEvent::Abort),
        ];
        let table = pairs(&states, &events, |state, event| {
            let mut sprint = Sprint::new(*state);
            sprint.handle(Monotonic::ZERO, *event);
            told(&sprint.state(), &drain(&mut sprint))
        });
        let expected = "
            in_progress      checkpoint    completed  aborted
Checkpoint  Checkpoint+stop  !             !          !
Resume      !                InProgress    !          !
Complete    Completed        !             !          !
Abort       Aborted+stop     Aborted+stop  !          !
";
        assert_eq!(table, expected);
    }
}
