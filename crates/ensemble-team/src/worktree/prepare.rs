//! Prepares the worktree for a claim: a fresh one, or the existing one.

use std::path::Path;

use super::list::{WorktreeEntry, shown_path};
use super::remote::{BranchMove, RemoteBranches};
use super::salvage::Salvage;
use super::{Operation, WorktreeFault, Worktrees};
use crate::board::{BoardTask, ClaimPlan};
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;

#[derive(Debug)]
pub(super) struct PreparedWorktree {
    pub(super) base: Option<String>,
    pub(super) salvage: Option<Salvage>,
}

impl Worktrees {
    /// Makes or finds the worktree. With a remote, the task's branch there is made or found, too.
    pub(super) fn prepare(
        &self,
        lock: &FileLock,
        plan: &ClaimPlan,
        task: &BoardTask,
        seen: Option<&RemoteBranches>,
    ) -> Result<PreparedWorktree> {
        self.ensure_directory()?;
        let path = shown_path(&self.project.join(&plan.worktree));
        let kept = match plan.keeps_worktree {
            true => self.keep_worktree(lock, &plan.agent, task, &path, seen)?,
            false => None,
        };
        if let Some(salvage) = kept {
            if let Some(seen) = seen {
                self.publish(lock, task, seen, BranchMove::Stay)?;
            }
            return Ok(PreparedWorktree { base: None, salvage });
        }
        let base = self.integration_head(lock, seen)?;
        let mut salvage = self.retire(lock, task, &path)?.salvage;
        if let Some(seen) = seen {
            let left_there = self.publish(lock, task, seen, BranchMove::To(&base))?;
            salvage = salvage.or(left_there);
        }
        if let Err(error) = self.add(lock, &path, &plan.branch, Some(&base)) {
            // Remove the partial worktree, which no agent has used.
            let _ = self.retire(lock, task, &path);
            return Err(error);
        }
        Ok(PreparedWorktree { base: Some(base), salvage })
    }

    /// Returns the existing worktree, rebuilt if its directory is missing. `None` if nothing is
    /// left of it.
    fn keep_worktree(
        &self,
        lock: &FileLock,
        agent: &TaskHolder,
        task: &BoardTask,
        path: &Path,
        seen: Option<&RemoteBranches>,
    ) -> Result<Option<Option<Salvage>>> {
        let submitted = task.review_commit.as_deref().filter(|_| seen.is_some());
        let left = match submitted {
            Some(submitted) => self.catch_up(lock, task, path, submitted)?,
            None => None,
        };
        if self.sound_entry(path)?.is_none() && !self.make_again(lock, task, path, None)? {
            return Ok(None);
        }
        let is_other = task.assigned_to.as_ref() != Some(&agent.by);
        let salvage = match self.entry_at(path)?.filter(|_| is_other) {
            Some(entry) => self.copy_dirt(lock, task, &entry)?,
            None => None,
        };
        Ok(Some(salvage.or(left)))
    }

    /// Brings the worktree and the branch of a task to a commit with which another host continued, if they lack it.
    /// What they have besides is saved, and returned.
    pub(super) fn catch_up(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        path: &Path,
        wanted: &str,
    ) -> Result<Option<Salvage>> {
        let branch = format!("refs/heads/{}", Self::branch_of(&task.id));
        let entry = self.sound_entry(path)?;
        let here = match &entry {
            Some(entry) => entry.head.clone(),
            None => self.commit_at(&branch)?,
        };
        let Some(here) = here else { return Ok(None) };
        if self.is_ancestor(wanted, &here)? {
            return Ok(None);
        }
        let Some(entry) = entry.filter(|entry| entry.branch.as_ref() == Some(&branch)) else {
            return Ok(self.retire(lock, task, path)?.salvage);
        };
        if !self.dirt(&entry.path)?.changed.is_empty() {
            return Ok(self.retire(lock, task, path)?.salvage);
        }
        // A clean worktree keeps its ignored files, such as caches of builds.
        let saved = match self.is_ancestor(&here, wanted)? {
            true => None,
            false => Some(self.keep_commit(lock, task, &here)?),
        };
        self.git.at(&entry.path).under(lock).run(&["reset", "--quiet", "--keep", wanted])?;
        Ok(saved)
    }

    /// Saves the uncommitted work of an earlier holder in a worktree that a claim continues. The
    /// work also stays in the worktree.
    fn copy_dirt(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        entry: &WorktreeEntry,
    ) -> Result<Option<Salvage>> {
        let snapshot = self.snapshot(lock, task, entry)?;
        if snapshot.is_clean {
            return Ok(None);
        }
        self.keep_commit(lock, task, &snapshot.commit).map(Some)
    }

    /// Rebuilds a worktree from its committed state: its branch, or without that `pushed`, or without both what was
    /// submitted. Returns whether there was any.
    pub(super) fn rebuild(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        path: &Path,
        pushed: Option<&str>,
    ) -> Result<bool> {
        self.ensure_directory()?;
        let branch = Self::branch_of(&task.id);
        let tip = self.commit_at(&format!("refs/heads/{branch}"))?;
        let submitted = match pushed.or(task.review_commit.as_deref()) {
            Some(commit) if tip.is_none() => self.commit_at(commit)?,
            _ => None,
        };
        if tip.is_none() && submitted.is_none() {
            return Ok(false);
        }
        if self.entry_at(path)?.is_some() {
            self.remove_entry(lock, path)?;
        }
        self.add(lock, path, &branch, submitted.as_deref())?;
        Ok(true)
    }

    /// Runs `git worktree add`, with an existing branch or a new one at `base`. Hooks of the repository must neither
    /// undo that nor hold the lock: see [`Worktrees::run_checkout_hook`].
    fn add(&self, lock: &FileLock, path: &Path, branch: &str, base: Option<&str>) -> Result<()> {
        let path = path.as_os_str().to_owned();
        let mut arguments: Vec<std::ffi::OsString> =
            vec!["worktree".into(), "add".into(), "--quiet".into()];
        match base {
            Some(base) => arguments.extend(["-b".into(), branch.into(), path, base.into()]),
            None => arguments.extend([path, branch.into()]),
        }
        let added = self.repository().under(lock).run(&arguments);
        added.map(drop).map_err(|error| self.explain_branch(branch, error))
    }
}

pub(super) fn epoch(task: &BoardTask) -> u64 {
    task.lease_epoch.unwrap_or_default()
}

/// Checks that a task's name can be part of a branch name.
pub(super) fn check_name(task: &Name) -> Result<()> {
    let text = task.as_str();
    if text.contains("..") || text.ends_with('.') || text.to_ascii_lowercase().ends_with(".lock") {
        return Err(WorktreeFault::BranchName.to(Operation::MakeBranch(format!("task/{task}"))));
    }
    Ok(())
}
