//! Submissions of coders and verdicts of reviewers. Both are about one commit, in a worktree
//! without other changes.

use super::Worktrees;
use super::list::Entry;
use crate::admission::Act;
use crate::board::Task;
use crate::proto::task::Holder;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

/// Most uncommitted files that are named.
const NAMED_MAX: usize = 5;

/// A reviewer's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The commit is approved.
    Approve,
    /// The commit is rejected for this reason.
    Reject(String),
}

impl Worktrees {
    /// A coder submits its committed work: HEAD of the task's worktree. The worktree must be clean
    /// and on the task's branch, with at least one commit since its base. Returns the commit.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another agent holds the task now; [`Error::NotAllowed`] with the
    /// condition that is not met.
    pub fn submit(&self, id: &Name, holder: &Holder) -> Result<String> {
        self.submit_checked(id, holder, false)
    }

    /// As [`Worktrees::submit`], for a task that needed no change.
    ///
    /// # Errors
    /// As for [`Worktrees::submit`].
    pub fn submit_unchanged(&self, id: &Name, holder: &Holder) -> Result<String> {
        self.submit_checked(id, holder, true)
    }

    fn submit_checked(&self, id: &Name, holder: &Holder, may_be_empty: bool) -> Result<String> {
        self.check(Act::HandIn, id, &holder.by)?;
        let mut locked = self.board.lock()?;
        let task = locked.state().task(id).cloned().ok_or_else(|| self.not_there(id))?;
        // Check the holder before the worktree. This change is not written.
        locked.submit(id, holder, "HEAD")?;
        drop(locked);

        let refused = |why: String| Error::NotAllowed { what: format!("submit task `{id}`"), why };
        let (entry, head) = self.worked_in(&task, "submit")?;
        let branch = Self::branch_of(id);
        if entry.branch != Some(format!("refs/heads/{branch}")) {
            return Err(refused(format!(
                "the worktree is not on its branch: `git switch -C {branch}` takes HEAD there"
            )));
        }
        self.must_be_clean(&task, "submit")?;
        if let (Some(base), false) = (&task.base_commit, may_be_empty)
            && self.is_ancestor(&head, base)?
        {
            return Err(refused(
                "nothing was committed since it began: commit the work, or declare that there is none \
                 (`--unchanged`)"
                    .to_owned(),
            ));
        }
        let mut locked = self.board.lock()?;
        locked.submit(id, holder, &head)?;
        locked.commit()?;
        Ok(head)
    }

    /// A reviewer gives its verdict on the submitted commit. The worktree must be clean and at that
    /// commit, and `holder` must hold the review. Returns the commit.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another agent holds the review now; [`Error::NotAllowed`] with the
    /// condition that is not met, also if `commit` is given and another one was submitted.
    pub fn verdict(
        &self,
        id: &Name,
        holder: &Holder,
        commit: Option<&str>,
        verdict: &Verdict,
    ) -> Result<String> {
        let say = |commit: &str| -> Result<crate::board::LockedBoard<'_>> {
            let mut locked = self.board.lock()?;
            match verdict {
                Verdict::Approve => locked.approve(id, holder, commit)?,
                Verdict::Reject(reason) => locked.reject(id, holder, commit, reason)?,
            }
            Ok(locked)
        };
        let task = self.board.read()?.task(id).cloned().ok_or_else(|| self.not_there(id))?;
        let named = match commit {
            Some(name) => self.commit_at(name)?.or_else(|| Some(name.to_owned())),
            None => task.review_commit.clone(),
        };
        let named = named.unwrap_or_default();
        // Check the holder before the worktree. This change is not written.
        drop(say(&named)?);
        self.at_submitted(&task)?;
        self.must_be_clean(&task, "judge")?;
        say(&named)?.commit()?;
        Ok(named)
    }

    /// The worktree of a task, and its HEAD.
    fn worked_in(&self, task: &Task, verb: &str) -> Result<(Entry, String)> {
        let path = self.path_of(task);
        let entry = self.entry_at(&path)?.filter(|_| path.exists());
        let refused =
            |why: String| Error::NotAllowed { what: format!("{verb} task `{}`", task.id), why };
        let Some(entry) = entry else {
            return Err(refused(format!(
                "there is no worktree at {}: `ensemble fsck --repair` makes it again",
                path.display()
            )));
        };
        match entry.head.clone() {
            Some(head) => Ok((entry, head)),
            None => Err(refused("the worktree has no commit".to_owned())),
        }
    }

    /// The submitted commit, which the worktree must be at.
    pub(super) fn at_submitted(&self, task: &Task) -> Result<String> {
        let (_, head) = self.worked_in(task, "review")?;
        match &task.review_commit {
            Some(commit) if *commit == head => Ok(head),
            other => {
                let submitted = other.as_deref().unwrap_or("nothing");
                let what = format!("review task `{}`", task.id);
                let why = format!("{submitted} was submitted, but the worktree is at {head}");
                Err(Error::NotAllowed { what, why })
            }
        }
    }

    fn must_be_clean(&self, task: &Task, verb: &str) -> Result<()> {
        let changed = self.dirt(&self.path_of(task))?.changed;
        if changed.is_empty() {
            return Ok(());
        }
        let named = changed[..changed.len().min(NAMED_MAX)].join(", ");
        let more = match changed.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!("{verb} task `{}`", task.id);
        let why = format!("not committed in the worktree: {named}{more}");
        Err(Error::NotAllowed { what, why })
    }
}
