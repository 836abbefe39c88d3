//! Rows as values, for callers and for the machine.

use std::fmt;

use serde::Serialize;

use super::db::{DbResult, DbTransaction, row_type, values};
use super::plan::{PauseScope, Policy};
use crate::proto::step::TddPhase;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct StepKey {
    /// The subtask, like `0-4-1`.
    pub task_id: String,
    /// Number of the step in its task; parts of a split step get numbers after the last.
    pub step_index: u32,
}

impl StepKey {
    pub fn new(task_id: impl Into<String>, step_index: u32) -> Self {
        Self { task_id: task_id.into(), step_index }
    }

    /// The name under which the plan of this step is submitted: `task/step`.
    pub fn plan_name(&self) -> String {
        format!("{}/{}", self.task_id, self.step_index)
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of task {}", self.step_index, self.task_id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepView {
    #[serde(flatten)]
    pub key: StepKey,
    /// Status: `PENDING`, `IN_PROGRESS`, `COMPLETED`, `BLOCKED` or `FAILED`.
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// Whether a failed step will be handed out again without an order.
    pub fix_due: bool,
    /// Whether a step that fixes it must be done first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_fix: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixes: Option<u32>,
    /// Files that a fix may change, if only these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fix_files: Vec<String>,
    /// Whether the step's agent needs an approved plan before it gets the step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_plan: bool,
    pub agent: Name,
    /// The agent that gets its own step to fix what makes this step fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_by: Option<Name>,
    pub goal: String,
    pub instructions: Vec<String>,
    /// Constraints in addition to the queue's.
    pub constraints: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<TddPhase>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cycle: String,
    pub attempt: u32,
    pub epoch: u64,
    /// Changes with each sign of life.
    pub beat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub blockers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub artifacts: Vec<String>,
    /// Number of the step that was split into this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_index: Option<u32>,
    /// Reason why the step was skipped, unblocked or retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time of the last change, for people.
    pub updated_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepQueueView {
    pub task_id: String,
    pub title: String,
    pub orchestrator: Option<Name>,
    pub parallel: u32,
    pub pauses: PauseScope,
    pub policy: Policy,
    pub attempts_max: u32,
    /// How long a worker may give no sign of life, in seconds.
    pub lease_seconds: u64,
    pub constraints: Vec<String>,
    /// The prompt's template, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Number of steps that are left to take, with those that wait for a fix.
    pub open: u64,
    pub held: u64,
    pub stuck: u64,
    pub done: u64,
}

impl StepQueueView {
    /// Whether a step is left to take, is held, or waits for an intervention.
    pub const fn is_open(&self) -> bool {
        self.open + self.held + self.stuck > 0
    }

    /// Whether the queue hands out nothing until a person or the orchestrator intervenes.
    pub const fn is_paused(&self) -> bool {
        matches!(self.pauses, PauseScope::Queue) && self.stuck > 0
    }

    pub const fn is_done(&self) -> bool {
        self.open + self.held + self.stuck == 0
    }
}

/// One run of a step, from its hand-out to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunView {
    pub epoch: u64,
    pub attempt: u32,
    pub agent: Name,
    /// Time of the hand-out, for people.
    pub taken_at: String,
    pub ended_at: Option<String>,
    /// Outcome: `success`, `failure`, `blocked`, `lease_ended` or `taken_away`.
    pub outcome: Option<String>,
    pub summary: Option<String>,
    pub context_for_next_step: Option<String>,
    pub prompt_message: Option<String>,
}

pub(super) const STEP_COLUMNS: &str = "task_id, step_index, status, resolution, fix_due, agent, \
    fix_by, goal, instructions, constraints, phase, cycle, attempt, epoch, beat, holder, \
    last_error, blockers, summary, artifacts, parent_index, note, updated_at, waits_for_fix, fixes, \
    fix_files, needs_plan";

row_type! {
    StepView: key, status, resolution, fix_due, agent, fix_by, goal, instructions, constraints,
    phase, cycle, attempt, epoch, beat, holder, last_error, blockers, summary, artifacts,
    parent_index, note, updated_at, waits_for_fix, fixes, fix_files, needs_plan
}

row_type! {
    RunView: epoch, attempt, agent, taken_at, ended_at, outcome, summary, context_for_next_step,
    prompt_message
}

pub(super) fn find_step(tx: &DbTransaction<'_>, key: &StepKey) -> DbResult<Option<StepView>> {
    let select =
        format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE task_id = ?1 AND step_index = ?2");
    tx.first(&select, values![key.task_id, key.step_index])
}

const QUEUE_COLUMNS: &str = "task_id, title, orchestrator, parallel, pauses, policy, attempts_max, \
    lease_seconds, constraints, template";

row_type! {
    StepQueueView: task_id, title, orchestrator, parallel, pauses, policy, attempts_max,
    lease_seconds, constraints, template; open: 0, held: 0, stuck: 0, done: 0
}

/// Finds a queue by its task. Steps are counted only on request: there may be many.
pub(super) fn find_queue(
    tx: &DbTransaction<'_>,
    task_id: &str,
    counted: bool,
) -> DbResult<Option<StepQueueView>> {
    let select = format!("SELECT {QUEUE_COLUMNS} FROM task_queues WHERE task_id = ?1");
    let found: Option<StepQueueView> = tx.first(&select, values![task_id])?;
    let Some(mut queue) = found else { return Ok(None) };
    if counted {
        let counts: Vec<(String, u64)> = tx.all(
            "SELECT life, count(*) FROM task_steps WHERE task_id = ?1 GROUP BY life",
            values![task_id],
        )?;
        for (life, number) in counts {
            match life.as_str() {
                "open" | "waits" => queue.open += number,
                "held" => queue.held = number,
                "done" => queue.done = number,
                _ => queue.stuck = number,
            }
        }
    }
    Ok(Some(queue))
}
