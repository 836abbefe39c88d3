//! Claims together with their worktrees.
//!
//! ```text
//! take ensemble.lock
//!   board locked     may this agent have this task, and with which worktree?
//!   board free       git makes or finds the worktree
//!   board locked     the same check again; then CLAIMED
//!                    (refused: a new worktree is removed)
//! release ensemble.lock
//! ```
//!
//! With a remote, the claim looks at it before all that. git pushes the task's branch, at the base, before the second
//! check.
//!
//! A process killed before the second check leaves a worktree that no claim names. The next claim
//! of the task or [`Worktrees::recover`] removes it. A process killed later leaves a claim whose
//! lease no process renews.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::list::shown_path;
use super::prepare::check_name;
use super::salvage::Salvage;
use super::{Operation, WorktreeFault, Worktrees, is_not_allowed};
use crate::admission::TaskAct;
use crate::board::{GrantedClaim, TaskStatus};
use crate::proto::task::TaskHolder;
use ensemble_core::durable::jittered;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

/// Most tries of a claim that conflicts with other processes.
pub const CLAIM_TRIES_MAX: u32 = 3;
pub(super) const BACKOFF: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedTask {
    pub granted: GrantedClaim,
    pub path: PathBuf,
    pub branch: String,
    pub base_commit: Option<String>,
    pub is_integration_fix: bool,
    /// Work that an earlier holder left, and where it was saved.
    pub salvage: Option<Salvage>,
    /// Output of the repository's `post-checkout` hook, if it failed in the fresh worktree.
    pub hook_failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewClaimed {
    pub granted: GrantedClaim,
    pub path: PathBuf,
    /// The commit to review, which is the worktree's HEAD.
    pub commit: String,
    pub author: Option<Name>,
}

struct ClaimFailure {
    error: Error,
    may_help: bool,
}

impl From<Error> for ClaimFailure {
    fn from(error: Error) -> Self {
        Self { may_help: error.is_transient(), error }
    }
}

impl Worktrees {
    /// Claims a task for a registered agent and prepares its worktree. If other processes
    /// interfere, it tries again after a random time, [`CLAIM_TRIES_MAX`] times in all.
    pub fn claim_task(&self, task: &Name, agent: &TaskHolder) -> Result<ClaimedTask> {
        self.claim_within(CLAIM_TRIES_MAX, task, agent)
    }

    /// As [`Worktrees::claim_task`], but tries once. For callers that wait in their own way and can
    /// be asked to end.
    pub(crate) fn claim_task_now(&self, task: &Name, agent: &TaskHolder) -> Result<ClaimedTask> {
        self.claim_within(1, task, agent)
    }

    fn claim_within(&self, tries_max: u32, task: &Name, agent: &TaskHolder) -> Result<ClaimedTask> {
        let mut claimed =
            self.try_often(tries_max, task, agent, || self.claim_once(task, agent))?;
        if let Some(base) = &claimed.base_commit {
            claimed.hook_failure = self.run_checkout_hook(&claimed.path, base);
        }
        Ok(claimed)
    }

    /// Claims a review for a registered reviewer. Tries again as [`Worktrees::claim_task`].
    pub fn claim_review(&self, task: &Name, reviewer: &TaskHolder) -> Result<ReviewClaimed> {
        self.try_often(CLAIM_TRIES_MAX, task, reviewer, || self.review_once(task, reviewer))
    }

    pub(crate) fn claim_review_now(
        &self,
        task: &Name,
        reviewer: &TaskHolder,
    ) -> Result<ReviewClaimed> {
        self.try_often(1, task, reviewer, || self.review_once(task, reviewer))
    }

    fn try_often<T>(
        &self,
        tries_max: u32,
        task: &Name,
        agent: &TaskHolder,
        once: impl Fn() -> Result<T, ClaimFailure>,
    ) -> Result<T> {
        self.check(TaskAct::Claim, task, &agent.by)?;
        let mut tries = 1;
        loop {
            let ClaimFailure { error, may_help } = match once() {
                Ok(claimed) => return Ok(claimed),
                Err(failed) => failed,
            };
            if !may_help || tries >= tries_max {
                let why = error.to_string();
                self.record(
                    types::TASK_CLAIM_FAILED,
                    json!({ "task": task, "agent": agent.by, "tries": tries, "why": why }),
                );
                return Err(error);
            }
            tries += 1;
            std::thread::sleep(jittered(self.options.backoff));
        }
    }

    fn claim_once(&self, id: &Name, agent: &TaskHolder) -> Result<ClaimedTask, ClaimFailure> {
        check_name(id)?;
        let seen = self.fetch_remote_state(Some(id))?;
        let lock = self.lock()?;
        let locked = self.board.lock()?;
        let plan = locked.plan_claim(id, agent)?;
        let task = locked.state().require_task(id)?.clone();
        drop(locked);

        if plan.keeps_worktree {
            self.must_be_reachable(&task, Operation::Claim, seen.as_ref())?;
        }
        let prepared = self.prepare(&lock, &plan, &task, seen.as_ref())?;
        let path = shown_path(&self.project.join(&plan.worktree));
        let granted = self.board.change(|board| {
            if let Some(salvage) = &prepared.salvage {
                board.note_retired(id, Some(salvage.place()))?;
            }
            board.commit_claim(&plan, prepared.base.as_deref())
        });
        match granted {
            Ok(granted) => Ok(ClaimedTask {
                granted,
                path,
                branch: plan.branch,
                base_commit: prepared.base,
                is_integration_fix: plan.is_integration_fix,
                salvage: prepared.salvage,
                hook_failure: None,
            }),
            Err(error) => {
                // The board may have been written although its directory could not be synced.
                let now = self.board.read().ok().and_then(|state| state.task(id).cloned());
                let is_claimed = now.is_none_or(|now| now.status == TaskStatus::Claimed);
                if prepared.base.is_some() && !is_claimed {
                    self.retire(&lock, &task, &path)?;
                }
                // The claim was allowed a moment ago, so another process has changed the board
                // since.
                let may_help = error.is_transient() || is_not_allowed(&error);
                Err(ClaimFailure { error, may_help })
            }
        }
    }

    fn review_once(&self, id: &Name, reviewer: &TaskHolder) -> Result<ReviewClaimed, ClaimFailure> {
        let seen = self.fetch_remote_state(Some(id))?;
        let ask = || -> Result<(GrantedClaim, crate::board::LockedBoard<'_>)> {
            let mut locked = self.board.lock()?;
            let granted = locked.claim_review(id, reviewer)?;
            Ok((granted, locked))
        };
        // Check first without committing, so that git is not started in vain.
        drop(ask()?);
        // As it is on the board, with the host that has its worktree now.
        let task = self.board.read()?.require_task(id)?.clone();
        self.must_be_reachable(&task, Operation::Review(id.clone()), seen.as_ref())?;
        let path = self.path_of(&task);
        if let (Some(seen), Some(submitted)) = (&seen, &task.review_commit) {
            self.bring_here(&task, seen, submitted)?;
        }
        if self.sound_entry(&path)?.is_none() {
            let lock = self.lock()?;
            self.make_again(&lock, &task, &path, None)?;
        }
        let task = self.complete_submission(task)?;
        self.back_to_submitted(&task)?;
        let commit = self.at_submitted(&task)?;
        let (granted, locked) = ask()?;
        let submitted = locked.state().task(id).and_then(|task| task.review_commit.clone());
        if submitted.as_ref() != Some(&commit) {
            let error = WorktreeFault::SubmittedAgain.to(Operation::Review(id.clone()));
            return Err(ClaimFailure { error, may_help: true });
        }
        locked.commit()?;
        Ok(ReviewClaimed { granted, path, commit, author: task.assigned_to })
    }
}
