//! Claims in two phases: only the quick steps hold the board's lock.
//!
//! ```text
//! lock    plan_claim      may this agent have this task, and with which worktree?
//! unlock  (git makes or finds the worktree; this takes seconds)
//! lock    commit_claim    the same check again on the current board; then CLAIMED
//! unlock  (refused: the caller removes the worktree that it made)
//! ```
//!
//! A crash between the phases leaves a worktree that no task names. A crash after the second phase
//! leaves a lease that no process renews. Recovery of worktrees and the observer of leases handle both.

use std::time::Duration;

use serde_json::json;

use super::graph::{active_task, unmet};
use super::locked::LockedBoard;
use super::state::{BoardTask, TaskStatus};
use super::steps::HistoryEntry;
use super::{BoardError, BoardObstacle, LostLease};
use crate::proto::agent;
use crate::proto::task::{EXHAUSTED_BY, Event, TaskHolder};
use ensemble_core::Result;
use ensemble_core::message::Name;

/// Directory of the tasks' worktrees, relative to the project.
pub const DIRECTORY_DEFAULT: &str = ".worktrees";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPlan {
    pub task: Name,
    pub agent: TaskHolder,
    /// Path of the worktree, relative to the project.
    pub worktree: String,
    pub branch: String,
    /// Whether the claim continues in an existing worktree. Otherwise a fresh one starts at the
    /// integration branch.
    pub keeps_worktree: bool,
    pub is_integration_fix: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedClaim {
    /// The holder, with the fencing epoch that all its writes must state.
    pub holder: TaskHolder,
    pub lease: Duration,
}

impl LockedBoard<'_> {
    /// Whether a registered agent may claim a task now, and what the claim needs. Changes nothing.
    pub fn plan_claim(&self, id: &Name, agent: &TaskHolder) -> Result<ClaimPlan> {
        let what = || format!("claim task `{id}` for `{}`", agent.by);
        let refused = |why: BoardObstacle| Err(BoardError::not_allowed(what(), why));
        self.registered(agent, &what())?;
        let task = self.task(id)?;
        if !task.status.is_claimable() {
            return refused(BoardObstacle::Status { status: task.status });
        }
        let on: Vec<Name> = unmet(self.state(), task).into_iter().cloned().collect();
        if !on.is_empty() {
            return refused(BoardObstacle::Unmerged { on });
        }
        if let Some(other) = active_task(self.state(), &agent.by).filter(|other| other.id != *id) {
            return refused(BoardObstacle::HasTask {
                task: other.id.clone(),
                status: other.status,
            });
        }
        if task.failed_by.len() >= EXHAUSTED_BY || task.failed_by.contains(&agent.by) {
            return refused(BoardObstacle::Failed { coders: task.failed_by.clone() });
        }
        let is_integration_fix = task.status == TaskStatus::IntegrationFailed;
        let keeps = match task.status {
            TaskStatus::Rejected => task.assigned_to.as_ref() == Some(&agent.by),
            _ => is_integration_fix,
        };
        let worktree = match keeps {
            true => self.board().worktree_of(task),
            false => format!("{}/{id}", self.board().worktrees()),
        };
        Ok(ClaimPlan {
            task: id.clone(),
            agent: agent.clone(),
            worktree,
            branch: format!("task/{id}"),
            keeps_worktree: keeps,
            is_integration_fix,
        })
    }

    /// Commits a claim whose worktree exists. `base_commit` is the commit where a fresh worktree
    /// began.
    pub fn commit_claim(
        &mut self,
        plan: &ClaimPlan,
        base_commit: Option<&str>,
    ) -> Result<GrantedClaim> {
        let now = self.plan_claim(&plan.task, &plan.agent)?;
        self.reconcile_agent(&plan.agent.by)?;
        let what = || format!("claim task `{}` for `{}`", plan.task, plan.agent.by);
        if now != *plan {
            return Err(BoardError::not_allowed(what(), BoardObstacle::ChangedSincePlan));
        }
        if base_commit.is_none() && !plan.keeps_worktree {
            return Err(BoardError::not_allowed(what(), BoardObstacle::NoBaseCommit));
        }
        let before = self.task(&plan.task)?.status;
        let author = self.task(&plan.task)?.assigned_to.clone();
        let holder = TaskHolder { by: plan.agent.by.clone(), epoch: self.draw_epoch() };
        let event = claim_event(before, plan.keeps_worktree);
        let entry = HistoryEntry::by(event, &holder);
        self.step(&plan.task, Event::Claim(holder.clone()), "claim", entry)?;
        let lease = self.state().config.lease_duration();
        let end = self.lease_end(lease);
        let host = self.board().host().map(str::to_owned);
        let mut fields = self.fields(&plan.task)?;
        fields.set("worktree", plan.worktree.as_str()).set("lease_expires", end);
        if let Some(host) = host {
            fields.set("host", host);
        }
        if let Some(commit) = base_commit {
            fields.set("base_commit", commit);
        }
        if plan.is_integration_fix {
            fields.set("integration_fix", true);
        }
        self.refresh()?;
        if let Some(author) = author.filter(|author| *author != holder.by) {
            self.leave(&author, &plan.task)?;
        }
        self.agent_step(&holder.by, agent::Event::Work, Some(&plan.task))?;
        Ok(GrantedClaim { holder, lease })
    }

    pub fn claim_review(&mut self, id: &Name, reviewer: &TaskHolder) -> Result<GrantedClaim> {
        self.registered(reviewer, &format!("review task `{id}`"))?;
        self.reconcile_agent(&reviewer.by)?;
        let holder = TaskHolder { by: reviewer.by.clone(), epoch: self.draw_epoch() };
        let entry = HistoryEntry::by("review_claimed", &holder);
        self.step(id, Event::Review(holder.clone()), "review", entry)?;
        let lease = self.state().config.lease_duration();
        let end = self.lease_end(lease);
        // A review on another host has its worktree there.
        let is_on_a_host = self.task(id)?.host.is_some();
        let host = self.board().host().filter(|_| is_on_a_host).map(str::to_owned);
        let mut fields = self.fields(id)?;
        fields.set("review_lease_expires", end);
        if let Some(host) = host {
            fields.set("host", host);
        }
        self.refresh()?;
        self.agent_step(&holder.by, agent::Event::Review, Some(id))?;
        Ok(GrantedClaim { holder, lease })
    }

    /// Ends a claim or a review without a result: its lease expired, or its holder released it. The
    /// worktree stays as it is.
    pub fn release(&mut self, id: &Name, epoch: u64, reason: &str) -> Result<()> {
        let task = self.task(id)?;
        let (holder, event) = match task.status {
            TaskStatus::ReadyForReview => (task.reviewing_by.clone(), "review_claim_released"),
            _ => (task.assigned_to.clone(), "coder_claim_released"),
        };
        let more = json!({ "epoch": epoch, "reason": reason });
        let entry = HistoryEntry { event, agent: holder.clone(), more };
        self.step(id, Event::Expire { epoch }, "release", entry)?;
        holder.map_or(Ok(()), |holder| self.leave(&holder, id))
    }

    /// Gives a released task back to its last holder, who is about to submit it. Returns the holder
    /// that submits: with a new epoch, or as it was given if there is nothing to return.
    pub(super) fn claim_again(&mut self, id: &Name, last: &TaskHolder) -> Result<TaskHolder> {
        let task = self.task(id)?;
        let is_free = released_claim(task).as_ref() == Some(last)
            && active_task(self.state(), &last.by).is_none();
        if !is_free {
            return Ok(last.clone());
        }
        let event = claim_event(task.status, true);
        let holder = TaskHolder { by: last.by.clone(), epoch: self.draw_epoch() };
        let entry = HistoryEntry::by(event, &holder);
        self.step(id, Event::Claim(holder.clone()), "submit", entry)?;
        if self.state().agents.contains_key(&holder.by) {
            self.agent_step(&holder.by, agent::Event::Work, Some(id))?;
        }
        Ok(holder)
    }

    /// Records that the worktree of a task was removed. Commits that the integration branch lacks
    /// are kept under `reference`, at `commit`. Call this before a claim that starts a fresh
    /// worktree.
    pub fn note_retired(&mut self, id: &Name, salvage: Option<(&str, &str)>) -> Result<()> {
        let now = self.now();
        let needs_it = self.task(id)?.status.needs_worktree();
        let mut fields = self.fields(id)?;
        if !needs_it {
            fields.clear(&["worktree"]);
        }
        if let Some((reference, commit)) = salvage {
            fields.push(
                "history",
                json!({ "time": now, "event": "salvaged", "ref": reference, "commit": commit }),
            );
            self.record_step(
                "task.salvaged",
                json!({ "task": id, "ref": reference, "commit": commit }),
            );
        } else {
            self.record_step("task.worktree_removed", json!({ "task": id }));
        }
        self.refresh()
    }

    pub(super) fn registered(&self, agent: &TaskHolder, what: &str) -> Result<()> {
        let fenced = |why: LostLease| Err(BoardError::Fenced { what: what.to_owned(), why }.into());
        match self.state().agents.get(&agent.by).map(|entry| entry.epoch.unwrap_or_default()) {
            Some(epoch) if epoch == agent.epoch => Ok(()),
            Some(epoch) => fenced(LostLease::Registration {
                agent: agent.by.clone(),
                epoch: agent.epoch,
                current: epoch,
            }),
            None => fenced(LostLease::Unregistered { agent: agent.by.clone() }),
        }
    }
}

/// Name of a claim in the history, by the status of the task before it.
const fn claim_event(before: TaskStatus, keeps_worktree: bool) -> &'static str {
    match before {
        TaskStatus::Rejected if keeps_worktree => "reclaimed_after_rejection",
        TaskStatus::Rejected => "reassigned_after_rejection",
        TaskStatus::IntegrationFailed => "claimed_for_integration_fix",
        _ => "claimed",
    }
}

/// The claim that was released last, if the task was not claimed since and still has its worktree.
pub fn released_claim(task: &BoardTask) -> Option<TaskHolder> {
    let last = task.history.last().filter(|_| task.status.is_claimable())?;
    let is_release = last.event == "coder_claim_released" && task.worktree.is_some();
    let by = last.text("agent").filter(|_| is_release)?;
    Some(TaskHolder { by: Name::new(by).ok()?, epoch: last.more.get("epoch")?.as_u64()? })
}
