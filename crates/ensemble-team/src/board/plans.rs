//! A planner's decisions besides tasks: the goal, sprints and discoveries.

use serde_json::{Value, json};

use super::locked::LockedBoard;
use super::state::{State, TaskStatus};
use super::{BoardError, BoardObstacle};
use crate::proto::goal::{GoalState, SprintState};
use ensemble_core::Result;
use ensemble_core::message::{Name, Timestamp};

#[derive(Clone, Debug)]
pub struct NewGoal {
    pub id: Name,
    pub description: String,
    pub spec_ref: Option<String>,
}

#[derive(Clone, Debug)]
pub struct NewSprint {
    pub id: Name,
    pub planned: Vec<Name>,
    pub stretch: Vec<Name>,
    pub deadline: Option<Timestamp>,
}

impl LockedBoard<'_> {
    /// Sets the goal as PLANNING. The previous goal must have ended.
    pub fn set_goal(&mut self, new: &NewGoal) -> Result<()> {
        if let Some(goal) = &self.state().goal
            && !matches!(goal.status, Some(GoalState::Completed | GoalState::Aborted))
        {
            let why = BoardObstacle::GoalRuns { goal: goal.id.clone() };
            return Err(BoardError::not_allowed(format!("set goal `{}`", new.id), why));
        }
        let now = self.now();
        self.set(
            "goal",
            json!({
                "id": new.id, "description": new.description, "spec_ref": new.spec_ref,
                "created": now, "status": GoalState::Planning,
            }),
        );
        // The sprint of the previous goal would refer to a goal that no longer exists.
        self.keep_sprint();
        self.record_step("goal.set", json!({ "goal": new.id }));
        self.refresh()
    }

    /// Begins a sprint. The previous sprint must have ended; it moves to `sprint_history`.
    pub fn start_sprint(&mut self, new: &NewSprint) -> Result<()> {
        if let Some(sprint) = &self.state().sprint
            && !matches!(sprint.status, Some(SprintState::Completed | SprintState::Aborted))
        {
            let why = BoardObstacle::SprintRuns { sprint: sprint.id.clone() };
            return Err(BoardError::not_allowed(format!("start sprint `{}`", new.id), why));
        }
        self.keep_sprint();
        let goal = self.state().goal.as_ref().map(|goal| goal.id.clone());
        let now = self.now();
        let mut sprint = json!({ "id": new.id });
        if let Some(goal) = goal {
            sprint["goal_ref"] = json!(goal);
        }
        sprint["scope"] = json!({ "planned": new.planned, "stretch": new.stretch });
        sprint["timeline"] = json!({ "started": now });
        if let Some(deadline) = new.deadline {
            sprint["timeline"]["deadline"] = json!(deadline);
        }
        sprint["status"] = json!(SprintState::InProgress);
        self.set("sprint", sprint);
        self.record_step("sprint.started", json!({ "sprint": new.id }));
        self.refresh()
    }

    /// Moves the sprint to `sprint_history`.
    fn keep_sprint(&mut self) {
        let sprint = self.section("sprint", Value::Null).take();
        if !sprint.is_null() {
            self.append("sprint_history", sprint);
        }
    }

    pub fn note_metrics(&mut self, retrospective: Option<&str>) -> Result<()> {
        if self.state().sprint.is_none() {
            let why = BoardObstacle::NoSprint;
            return Err(BoardError::not_allowed("note how the sprint went", why));
        }
        let metrics = metrics(self.state());
        let sprint = self.section("sprint", json!({}));
        sprint["metrics"] = metrics;
        if let Some(text) = retrospective {
            sprint["retrospective"] = json!(text);
        }
        self.refresh()
    }

    pub fn convert_discovery(&mut self, id: &Name, task: &Name) -> Result<()> {
        self.task(task)?;
        let at = self.discovery(id)?;
        if let Some(other) = &self.state().discovered[at].converted_to_task {
            let what = format!("make task `{task}` of discovery `{id}`");
            let why = BoardObstacle::Converted { task: other.clone() };
            return Err(BoardError::not_allowed(what, why));
        }
        self.section("discovered", json!([]))[at]["converted_to_task"] = json!(task);
        self.record_step("discovery.converted", json!({ "id": id, "task": task }));
        self.refresh()
    }

    pub fn defer_discovery(&mut self, id: &Name) -> Result<()> {
        let at = self.discovery(id)?;
        self.section("discovered", json!([]))[at]["urgency"] = json!("deferred");
        self.record_step("discovery.deferred", json!({ "id": id }));
        self.refresh()
    }

    fn discovery(&self, id: &Name) -> Result<usize> {
        let at = self.state().discovered.iter().position(|discovery| discovery.id == *id);
        let unknown =
            || BoardError::Unknown { what: "discovery", id: id.to_string(), nearest: Vec::new() };
        Ok(at.ok_or_else(unknown)?)
    }
}

/// Counts the sprint's tasks by status. If the sprint names no tasks, all tasks count.
pub fn metrics(state: &State) -> Value {
    let scope = state.sprint.as_ref().map(|sprint| &sprint.scope);
    let planned = scope.map(|scope| scope.planned.as_slice()).unwrap_or_default();
    let stretch = scope.map(|scope| scope.stretch.as_slice()).unwrap_or_default();
    let is_meant = |task: &&super::BoardTask| {
        (planned.is_empty() && stretch.is_empty())
            || planned.contains(&task.id)
            || stretch.contains(&task.id)
    };
    let tasks: Vec<&super::BoardTask> = state.tasks.iter().filter(is_meant).collect();
    let count = |status: &[TaskStatus]| tasks.iter().filter(|t| status.contains(&t.status)).count();
    json!({
        "total": tasks.len(),
        "merged": count(&[TaskStatus::Merged]),
        "in_progress": count(&[TaskStatus::Claimed, TaskStatus::ReadyForReview, TaskStatus::Rejected, TaskStatus::Approved]),
        "blocked": count(&[TaskStatus::Blocked, TaskStatus::IntegrationFailed]),
        "open": count(&[TaskStatus::Draft, TaskStatus::Unclaimed]),
        "dropped": count(&[TaskStatus::Superseded, TaskStatus::Abandoned]),
        "review_cycles": tasks.iter().filter_map(|task| task.review_cycles_total).sum::<u64>(),
    })
}
