//! Submissions of coders and verdicts of reviewers. Both are about one commit, in a worktree
//! without other changes. With a remote, the commit is pushed before the board says that it was submitted.

use super::list::WorktreeEntry;
use super::remote::{BranchMove, RemoteBranches};
use super::salvage::Salvage;
use super::{Operation, WorktreeFault, Worktrees};
use crate::admission::TaskAct;
use crate::board::BoardTask;
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewDecision {
    Approve,
    Reject(String),
}

impl Worktrees {
    /// A coder submits its committed work: HEAD of the task's worktree. The worktree must be clean
    /// and on the task's branch, with at least one commit since its base. Returns the commit.
    pub fn submit(&self, id: &Name, holder: &TaskHolder) -> Result<String> {
        self.submit_checked(id, holder, false)
    }

    /// As [`Worktrees::submit`]. A task that needed no change `may_be_empty`.
    pub fn submit_checked(
        &self,
        id: &Name,
        holder: &TaskHolder,
        may_be_empty: bool,
    ) -> Result<String> {
        self.check(TaskAct::HandIn, id, &holder.by)?;
        let seen = self.fetch_remote_state(Some(id))?;
        let mut locked = self.board.lock()?;
        let task = locked.state().require_task(id)?.clone();
        // Check the holder before the worktree. This change is not written.
        locked.submit(id, holder, "HEAD")?;
        drop(locked);

        let operation = || Operation::Submit(id.clone());
        self.bring_pushed(&task, seen.as_ref())?;
        let (entry, head) = self.worked_in(&task, operation())?;
        let branch = Self::branch_of(id);
        let reference = format!("refs/heads/{branch}");
        if entry.branch.as_ref() != Some(&reference) {
            let tip = self.commit_at(&reference)?;
            let is_behind = tip.map_or(Ok(true), |tip| self.is_ancestor(&tip, &head))?;
            return Err(WorktreeFault::OtherBranch { branch, head, is_behind }.to(operation()));
        }
        self.must_be_clean(&task, operation())?;
        if let (Some(base), false) = (&task.base_commit, may_be_empty)
            && self.is_ancestor(&head, base)?
        {
            return Err(WorktreeFault::NothingCommitted.to(operation()));
        }
        let replaced = match &seen {
            Some(seen) => self.publish(&self.lock()?, &task, seen, BranchMove::To(&head))?,
            None => None,
        };
        self.board.change(|board| {
            board.submit(id, holder, &head)?;
            let replaced = replaced.as_ref().map(Salvage::place);
            replaced.map_or(Ok(()), |place| board.note_retired(id, Some(place)))
        })?;
        Ok(head)
    }

    /// Makes the worktree of a task that is worked on on another host, at what was pushed from there.
    fn bring_pushed(&self, task: &BoardTask, seen: Option<&RemoteBranches>) -> Result<()> {
        let pushed = seen.and_then(|seen| Some((seen, seen.branch.as_ref()?)));
        match pushed.filter(|(_, tip)| task.base_commit.as_ref() != Some(tip)) {
            Some((seen, tip)) if self.board.other_host(task).is_some() => {
                self.bring_here(task, seen, tip)
            }
            _ => self.must_be_here(task, Operation::Submit(task.id.clone())),
        }
    }

    /// Makes the worktree of a task on this host, or brings it to what another host has pushed.
    pub(super) fn bring_here(
        &self,
        task: &BoardTask,
        seen: &RemoteBranches,
        wanted: &str,
    ) -> Result<()> {
        let (lock, path) = (self.lock()?, self.path_of(task));
        let saved = self.catch_up(&lock, task, &path, wanted)?;
        if self.sound_entry(&path)?.is_none() {
            self.make_again(&lock, task, &path, Some(wanted))?;
        }
        self.publish(&lock, task, seen, BranchMove::Stay)?;
        saved.map_or(Ok(()), |saved| self.note_retired(task, Some(&saved)))
    }

    /// A reviewer gives its verdict on the submitted commit. The worktree must be clean and at that
    /// commit, and `holder` must hold the review. Returns the commit.
    pub fn verdict(
        &self,
        id: &Name,
        holder: &TaskHolder,
        commit: Option<&str>,
        verdict: &ReviewDecision,
    ) -> Result<String> {
        let say = |commit: &str| -> Result<crate::board::LockedBoard<'_>> {
            let mut locked = self.board.lock()?;
            match verdict {
                ReviewDecision::Approve => locked.approve(id, holder, commit)?,
                ReviewDecision::Reject(reason) => locked.reject(id, holder, commit, reason)?,
            }
            Ok(locked)
        };
        let task = self.board.read()?.require_task(id)?.clone();
        let named = match commit {
            Some(name) => self.commit_at(name)?.or_else(|| Some(name.to_owned())),
            None => task.review_commit.clone(),
        };
        let named = named.unwrap_or_default();
        // Check the holder before the worktree. This change is not written.
        drop(say(&named)?);
        if self.board.other_host(&task).is_some() {
            let seen = self.fetch_remote_state(Some(id))?;
            self.must_be_reachable(&task, Operation::Judge(id.clone()), seen.as_ref())?;
            if let Some(seen) = &seen {
                self.bring_here(&task, seen, &named)?;
            }
        }
        self.at_submitted(&task)?;
        self.must_be_clean(&task, Operation::Judge(id.clone()))?;
        say(&named)?.commit()?;
        Ok(named)
    }

    /// Adds the commit to a task that its coder has submitted by changing its status only: HEAD of the worktree.
    pub(super) fn complete_submission(&self, task: BoardTask) -> Result<BoardTask> {
        let (None, Some(by)) = (&task.review_commit, task.assigned_to.clone()) else {
            return Ok(task);
        };
        let (_, head) = self.worked_in(&task, Operation::Review(task.id.clone()))?;
        let holder = TaskHolder { by, epoch: task.lease_epoch.unwrap_or_default() };
        let mut locked = self.board.lock()?;
        locked.complete_by_hand(&task.id, &holder, Some(&head))?;
        let state = locked.commit()?;
        state.require_task(&task.id).cloned()
    }

    fn worked_in(&self, task: &BoardTask, operation: Operation) -> Result<(WorktreeEntry, String)> {
        let path = self.path_of(task);
        let Some(entry) = self.sound_entry(&path)? else {
            return Err(WorktreeFault::of_missing(path).to(operation));
        };
        match entry.head.clone() {
            Some(head) => Ok((entry, head)),
            None => Err(WorktreeFault::NoHead.to(operation)),
        }
    }

    /// Takes the worktree of a submitted task back to what was submitted, if its agent continued
    /// committing. The submitted commit is what is reviewed and merged. Later commits are kept under
    /// a salvage ref, which is in the task's history. Changed files that are in the way keep
    /// the review from being claimed.
    pub(super) fn back_to_submitted(&self, task: &BoardTask) -> Result<()> {
        let Some(submitted) = &task.review_commit else { return Ok(()) };
        let (entry, head) = self.worked_in(task, Operation::Review(task.id.clone()))?;
        let branch = format!("refs/heads/{}", Self::branch_of(&task.id));
        let is_further = *submitted != head && entry.branch.as_deref() == Some(&branch);
        if !is_further || !self.is_ancestor(submitted, &head)? {
            return Ok(());
        }
        let lock = self.lock()?;
        let kept = self.keep_commit(&lock, task, &head)?;
        if let Some(seen) = self.fetch_remote_state(Some(&task.id))? {
            self.publish(&lock, task, &seen, BranchMove::Stay)?;
        }
        self.git.at(&entry.path).under(&lock).run(&["reset", "--quiet", "--keep", submitted])?;
        self.note_retired(task, Some(&kept))
    }

    /// Notes on the board that a worktree was removed or taken back, and where its work was saved.
    pub(super) fn note_retired(&self, task: &BoardTask, saved: Option<&Salvage>) -> Result<()> {
        self.board.change(|board| board.note_retired(&task.id, saved.map(Salvage::place)))
    }

    /// The submitted commit, which the worktree must be at.
    pub(super) fn at_submitted(&self, task: &BoardTask) -> Result<String> {
        let operation = || Operation::Review(task.id.clone());
        let (_, head) = self.worked_in(task, operation())?;
        match &task.review_commit {
            Some(commit) if *commit == head => Ok(head),
            other => {
                let submitted = other.clone();
                Err(WorktreeFault::OtherCommit { submitted, head }.to(operation()))
            }
        }
    }

    fn must_be_clean(&self, task: &BoardTask, operation: Operation) -> Result<()> {
        let changed = self.dirt(&self.path_of(task))?.changed;
        if changed.is_empty() {
            return Ok(());
        }
        Err(WorktreeFault::NotClean { changed }.to(operation))
    }
}
