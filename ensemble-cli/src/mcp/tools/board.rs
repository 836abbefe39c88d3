//! The blackboard: to claim a task, to submit, judge, block or hand it over (seeds 001 and 004).
//!
//! A tool without a `task_id` is about the one task in the agent's hands.

use ensemble_app::acting::{duty as duty_of, find_blocker, given_number};
use ensemble_app::board_agents::{HandoffNotes, hand_over};
use ensemble_app::tasks::{change_task, judge_task, submit_task, take_task};
use ensemble_core::message::Name;
use ensemble_team::board::{BoardTask, released_claim};
use ensemble_team::holdings::{Holding, on_board};
use ensemble_team::worktree::ReviewDecision;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{ToolAnswer, ToolError};
use crate::mcp::ToolContext;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimParams {
    /// Which task; without it, the most urgent that you can take.
    task_id: Option<Name>,
    /// True to review it instead of working on it.
    #[serde(default)]
    review: bool,
}

pub(super) fn claim(desk: &ToolContext, claim: ClaimParams) -> ToolAnswer {
    let taken = take_task(&desk.app(), claim.task_id, claim.review)?;
    let (task, epoch) = taken.held();
    desk.claimed(task.clone(), epoch);
    let mut object = taken.to_json();
    object["message"] = json!("It is yours: work in the worktree at `path`, and nowhere else.");
    Ok(object)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitParams {
    /// Which task; without it, the one that you work on.
    task_id: Option<Name>,
    /// True if nothing had to be changed.
    #[serde(default)]
    unchanged: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerdictParams {
    /// Which task; without it, the one that you review.
    task_id: Option<Name>,
    /// True if it is good.
    approve: bool,
    /// Every point that is wrong, and its place; needed to reject it.
    reason: Option<String>,
    /// The commit that you have reviewed; without it, the one that was submitted.
    commit: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockParams {
    /// Which task; without it, the one that you work on.
    task_id: Option<Name>,
    /// Reason why the task is blocked.
    reason: String,
    /// One to three questions that the planner must answer.
    questions: Vec<String>,
}

pub(super) fn submit(desk: &ToolContext, submit: SubmitParams) -> ToolAnswer {
    let task = desk.task_of(submit.task_id, "work")?;
    let given = desk.number_of(&task)?;
    let commit = submit_task(&desk.app(), &task, given, submit.unchanged)?;
    let mut object = status_of(desk, &task)?;
    object["commit"] = json!(commit);
    object["message"] =
        json!("It waits for its review. Change nothing in its worktree until then.");
    Ok(object)
}

pub(super) fn judge(desk: &ToolContext, judge: VerdictParams) -> ToolAnswer {
    let says = match (judge.approve, judge.reason.filter(|reason| !reason.trim().is_empty())) {
        (true, _) => ReviewDecision::Approve,
        (false, Some(reason)) => ReviewDecision::Reject(reason),
        (false, None) => {
            return Err(ToolError::new(
                "reason: is missing: a rejection needs every point and place",
            ));
        }
    };
    let task = desk.task_of(judge.task_id, "review")?;
    let given = desk.number_of(&task)?;
    let commit = judge_task(&desk.app(), &task, given, judge.commit.as_deref(), &says)?;
    let mut object = status_of(desk, &task)?;
    object["commit"] = json!(commit);
    Ok(object)
}

pub(super) fn block(desk: &ToolContext, block: BlockParams) -> ToolAnswer {
    let task = desk.task_of(block.task_id, "work")?;
    let given = desk.number_of(&task)?;
    {
        let app = desk.app();
        let holder = find_blocker(&app, &app.board()?.read()?, &task, given)?;
        change_task(&app, &task, |board| {
            board.block(&task, holder.as_ref(), &block.reason, &block.questions)
        })?;
    }
    let mut object = status_of(desk, &task)?;
    object["message"] = json!("A planner is called. You may claim another task.");
    Ok(object)
}

fn status_of(desk: &ToolContext, id: &Name) -> ToolAnswer {
    let state = desk.app().board()?.read()?;
    let status = state.task(id).map_or("gone", |task| task.status.as_str());
    Ok(json!({ "task": id, "status": status }))
}

impl ToolContext {
    /// The task that a call is about: the named one, or the only one that the agent holds.
    fn task_of(&self, named: Option<Name>, duty: &str) -> Result<Name, ToolError> {
        if let Some(id) = named {
            return Ok(id);
        }
        let state = self.app().board()?.read()?;
        let mine = |(agent, it): (&Name, Holding)| {
            (*agent == self.agent && duty_of(it.held_as) == Some(duty)).then_some(it.task_id)
        };
        if let Some(held) = on_board(&state).find_map(mine) {
            return Ok(Name::new(held)?);
        }
        // Its lease has ended, and the task waits: the last holder may still hand it in.
        let is_released =
            |task: &&BoardTask| released_claim(task).is_some_and(|it| it.by == self.agent);
        let mut released = state.tasks.iter().filter(is_released);
        match (duty, released.next(), released.next()) {
            ("work", Some(task), None) => Ok(task.id.clone()),
            _ => Err(ToolError::new(format!(
                "task_id: you have no task to {duty} (`claim_task` takes one)"
            ))),
        }
    }

    fn number_of(&self, task: &Name) -> Result<Option<u64>, ToolError> {
        Ok(self.claim_of(task).or(given_number()?))
    }
}

pub(super) fn hand_off(desk: &ToolContext, notes: HandoffNotes) -> ToolAnswer {
    let task = hand_over(&desk.app(), |task| desk.claim_of(task), &notes)?;
    Ok(json!({
        "task": task, "task_id": task, "exit": 42,
        "message": "Your notes are kept for the next agent. End now, with exit status 42 if you can.",
    }))
}
