//! The tasks of the blackboard: to claim, submit, judge and change them.

use ensemble_core::message::Name;
use ensemble_team::board::{
    Board, BoardTask, LockedBoard, State, claimable, missing_specification, reviewable, unmet,
};
use ensemble_team::worktree::{ClaimedTask, ReviewClaimed, ReviewDecision, Worktrees};
use serde_json::{Value, json};

use crate::App;
use crate::acting::{holder, registered};
use crate::failure::{Failure, Outcome};
use crate::text::one_line;

/// A line on the file of a specification, if that is still to be written.
pub fn missing_file(board: &Board, spec_ref: Option<&str>) -> String {
    let project = board.project();
    let missing = missing_specification(spec_ref, |path| project.join(path).exists());
    missing.map_or_else(String::new, |path| format!("\nthere is no file {} yet", one_line(path)))
}

pub enum TakenTask {
    Work(Name, ClaimedTask),
    Review(Name, ReviewClaimed),
}

/// Claims a task for the agent that runs this command; without a name, the most urgent one.
pub fn take_task(app: &App, id: Option<Name>, is_review: bool) -> Outcome<TakenTask> {
    let board = app.board()?;
    let state = board.read()?;
    let agent = registered(app, &state)?;
    let worktrees = app.worktrees(&board)?;
    let id = match id {
        Some(id) => id,
        None => most_urgent(&worktrees, &state, &agent.by, is_review)?,
    };
    Ok(match is_review {
        true => {
            let mut claimed = worktrees.claim_review(&id, &agent)?;
            claimed.path = board.project_in(&claimed.path);
            TakenTask::Review(id, claimed)
        }
        false => {
            let mut claimed = worktrees.claim_task(&id, &agent)?;
            claimed.path = board.project_in(&claimed.path);
            TakenTask::Work(id, claimed)
        }
    })
}

fn most_urgent(
    worktrees: &Worktrees,
    state: &State,
    agent: &Name,
    is_review: bool,
) -> Outcome<Name> {
    let (tasks, what) = match is_review {
        true => (reviewable(state, Some(agent)), "reviewed"),
        false => (claimable(state, Some(agent)), "claimed"),
    };
    let first = tasks.into_iter().find(|task| !worktrees.is_kept_elsewhere(task));
    let first = first.map(|task| task.id.clone());
    first.ok_or_else(|| Failure::nothing(format!("no task can be {what} by `{agent}` now")))
}

impl TakenTask {
    /// Which task, and the number under which it is held.
    pub const fn held(&self) -> (&Name, u64) {
        match self {
            Self::Work(id, claimed) => (id, claimed.granted.holder.epoch),
            Self::Review(id, claimed) => (id, claimed.granted.holder.epoch),
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Work(id, claimed) => {
                let (holder, salvage) = (&claimed.granted.holder, claimed.salvage.as_ref());
                json!({
                    "task": id, "status": "CLAIMED", "agent": holder.by, "epoch": holder.epoch,
                    "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
                    "branch": claimed.branch, "base_commit": claimed.base_commit,
                    "integration_fix": claimed.is_integration_fix,
                    "salvage": salvage.map(|salvage| &salvage.reference),
                })
            }
            Self::Review(id, claimed) => {
                let holder = &claimed.granted.holder;
                json!({
                    "task": id, "status": "READY_FOR_REVIEW", "agent": holder.by, "epoch": holder.epoch,
                    "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
                    "commit": claimed.commit, "author": claimed.author,
                })
            }
        }
    }
}

/// Submits a task under a number; without one, under the one on the board. Returns the commit.
pub fn submit_task(
    app: &App,
    id: &Name,
    given: Option<u64>,
    is_unchanged: bool,
) -> Outcome<String> {
    let board = app.board()?;
    let holder = holder(app, &board.read()?, id, given)?;
    Ok(app.worktrees(&board)?.submit_checked(id, &holder, is_unchanged)?)
}

/// Gives a verdict under a number; without one, under the one on the board. Returns the commit.
pub fn judge_task(
    app: &App,
    id: &Name,
    given: Option<u64>,
    commit: Option<&str>,
    says: &ReviewDecision,
) -> Outcome<String> {
    let board = app.board()?;
    let holder = holder(app, &board.read()?, id, given)?;
    Ok(app.worktrees(&board)?.verdict(id, &holder, commit, says)?)
}

pub struct ChangedTask {
    state: State,
    task: BoardTask,
}

impl ChangedTask {
    pub const fn task(&self) -> &BoardTask {
        &self.task
    }

    pub fn to_json(&self) -> Value {
        describe_task(&self.state, &self.task)
    }
}

pub fn change_task(
    app: &App,
    id: &Name,
    change: impl FnOnce(&mut LockedBoard<'_>) -> ensemble_core::Result<()>,
) -> Outcome<ChangedTask> {
    let board = app.board()?;
    let mut locked = board.lock()?;
    change(&mut locked)?;
    let state = locked.commit()?;
    let task = state.task(id).cloned();
    let task = task.ok_or_else(|| Failure::nothing(format!("task `{id}` is gone")))?;
    Ok(ChangedTask { state, task })
}

pub fn describe_task(state: &State, task: &BoardTask) -> Value {
    let mut object = json!(task);
    object["waits_for"] = json!(unmet(state, task));
    object
}
