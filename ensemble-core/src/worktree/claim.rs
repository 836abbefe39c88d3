//! Claims with everything that belongs to them.
//!
//! ```text
//! take ensemble.lock
//!   board locked     may this agent have this task, and with which worktree?
//!   board free       the worktree is made or found
//!   board locked     the same question again; then CLAIMED
//!                    (refused: a worktree that was made goes)
//! give ensemble.lock back
//! ```
//!
//! Killed in the first half: a worktree that no claim names, which the next claim of the task or
//! [`Worktrees::recover`] removes. Killed after it: a claim whose lease nobody renews.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::Worktrees;
use super::prepare::{check_name, epoch};
use super::salvage::Salvage;
use crate::board::BoardError;
use crate::board::{Granted, Status};
use crate::durable::jittered;
use crate::message::Name;
use crate::proto::task::Holder;
use crate::{Error, Result};

/// How often a claim is tried that others get in the way of.
pub const CLAIM_TRIES_MAX: u32 = 3;
/// The longest wait before the next try.
pub(super) const BACKOFF: Duration = Duration::from_secs(5);

/// A task that can be worked on now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// Who has it, under which number, for how long without a beat.
    pub granted: Granted,
    /// Its worktree, absolute.
    pub path: PathBuf,
    /// The branch that is checked out there.
    pub branch: String,
    /// Where it began, if it is fresh.
    pub base_commit: Option<String>,
    /// It repairs a merge that failed.
    pub is_integration_fix: bool,
    /// What somebody before had left, and where it is now.
    pub salvage: Option<Salvage>,
}

/// A review that can begin now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReviewClaimed {
    /// Who reviews, under which number, for how long without a beat.
    pub granted: Granted,
    /// The worktree, absolute.
    pub path: PathBuf,
    /// What is to be reviewed; HEAD of the worktree.
    pub commit: String,
    /// Who wrote it.
    pub author: Option<Name>,
}

/// Why a claim did not come about, and whether another try may help.
struct Failed {
    error: Error,
    may_help: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { may_help: error.is_transient(), error }
    }
}

impl Worktrees {
    /// Gives a registered agent a task, with a worktree to do it in. If others get in the way it is
    /// tried again after a random time, [`CLAIM_TRIES_MAX`] times in all.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] and [`Error::Fenced`] as for
    /// [`LockedBoard::plan_claim`](crate::board::LockedBoard::plan_claim); [`Error::Locked`] if others
    /// got in the way each time; [`Error::Git`]. A failed claim is recorded and changes nothing, but
    /// for what an earlier holder had left, which may have been put aside.
    pub fn claim_task(&self, task: &Name, agent: &Holder) -> Result<Claimed> {
        self.try_often(CLAIM_TRIES_MAX, task, agent, || self.claim_once(task, agent))
    }

    /// As [`Worktrees::claim_task`], but tried once: for whoever waits in a way of its own, in which it
    /// can be told to end.
    pub(crate) fn claim_task_now(&self, task: &Name, agent: &Holder) -> Result<Claimed> {
        self.try_often(1, task, agent, || self.claim_once(task, agent))
    }

    /// Gives a registered reviewer a task that waits for one. Tried again as
    /// [`Worktrees::claim_task`].
    ///
    /// # Errors
    /// As for [`Worktrees::claim_task`]; [`Error::Git`] and [`Error::NotAllowed`] also if the worktree is
    /// not at the commit that was submitted.
    pub fn claim_review(&self, task: &Name, reviewer: &Holder) -> Result<ReviewClaimed> {
        self.try_often(CLAIM_TRIES_MAX, task, reviewer, || self.review_once(task, reviewer))
    }

    /// As [`Worktrees::claim_review`], but tried once.
    pub(crate) fn claim_review_now(&self, task: &Name, reviewer: &Holder) -> Result<ReviewClaimed> {
        self.try_often(1, task, reviewer, || self.review_once(task, reviewer))
    }

    fn try_often<T>(
        &self,
        tries_max: u32,
        task: &Name,
        agent: &Holder,
        once: impl Fn() -> Result<T, Failed>,
    ) -> Result<T> {
        let mut tries = 1;
        loop {
            let Failed { error, may_help } = match once() {
                Ok(claimed) => return Ok(claimed),
                Err(failed) => failed,
            };
            if !may_help || tries >= tries_max {
                let why = error.to_string();
                self.record(
                    "task.claim_failed",
                    json!({ "task": task, "agent": agent.by, "tries": tries, "why": why }),
                );
                return Err(error);
            }
            tries += 1;
            std::thread::sleep(jittered(self.options.backoff));
        }
    }

    fn claim_once(&self, id: &Name, agent: &Holder) -> Result<Claimed, Failed> {
        check_name(id)?;
        let lock = self.lock()?;
        let locked = self.board.lock()?;
        let plan = locked.plan_claim(id, agent)?;
        let task = locked.state().task(id).cloned();
        drop(locked);
        let Some(task) = task else {
            return Err(self.not_there(id).into());
        };

        let prepared = self.prepare(&lock, &plan, &task)?;
        let path = self.project.join(&plan.worktree);
        let commit = || -> Result<Granted> {
            let mut locked = self.board.lock()?;
            if let Some(Salvage { reference, commit }) = &prepared.salvage {
                locked.note_retired(id, Some((reference, commit)))?;
            }
            let granted = locked.commit_claim(&plan, prepared.base.as_deref())?;
            locked.commit()?;
            Ok(granted)
        };
        match commit() {
            Ok(granted) => Ok(Claimed {
                granted,
                path,
                branch: plan.branch,
                base_commit: prepared.base,
                is_integration_fix: plan.is_integration_fix,
                salvage: prepared.salvage,
            }),
            Err(error) => {
                // The board may have been written although its directory could not be synced.
                let now = self.board.read().ok().and_then(|state| state.task(id).cloned());
                let is_claimed = now.is_none_or(|now| now.status == Status::Claimed);
                if prepared.base.is_some() && !is_claimed {
                    self.retire(&lock, id, epoch(&task), &path)?;
                }
                // It was allowed a moment ago: somebody has changed the board meanwhile.
                let may_help = error.is_transient() || matches!(error, Error::NotAllowed { .. });
                Err(Failed { error, may_help })
            }
        }
    }

    fn review_once(&self, id: &Name, reviewer: &Holder) -> Result<ReviewClaimed, Failed> {
        let ask = || -> Result<(Granted, crate::board::LockedBoard<'_>)> {
            let mut locked = self.board.lock()?;
            let granted = locked.claim_review(id, reviewer)?;
            Ok((granted, locked))
        };
        // Asked once without an answer that counts, so that git is not started for nothing.
        let (_, locked) = ask()?;
        let task = locked.state().task(id).cloned();
        drop(locked);
        let Some(task) = task else {
            return Err(self.not_there(id).into());
        };
        let path = self.path_of(&task);
        if self.entry_at(&path)?.is_none() || !path.exists() {
            let lock = self.lock()?;
            self.rebuild(&lock, &task, &path)?;
        }
        let commit = self.at_submitted(&task)?;
        let (granted, locked) = ask()?;
        let submitted = locked.state().task(id).and_then(|task| task.review_commit.clone());
        if submitted.as_ref() != Some(&commit) {
            let what = format!("review task `{id}`");
            let why = "something else was submitted meanwhile".to_owned();
            return Err(Failed { error: Error::NotAllowed { what, why }, may_help: true });
        }
        locked.commit()?;
        Ok(ReviewClaimed { granted, path, commit, author: task.assigned_to })
    }

    pub(super) fn not_there(&self, id: &Name) -> Error {
        BoardError::Unknown { what: "task", id: id.to_string(), nearest: Vec::new() }.into()
    }
}
