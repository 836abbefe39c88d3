//! Finds what crashes left, and completes or undoes it.
//!
//! | finding | repair |
//! |---|---|
//! | an approved task whose commit is in the integration branch | MERGED |
//! | a worktree of a merge that no process runs | removed |
//! | the worktree or branch of a task that no agent works on (a note, if the task is not over) | removed, its work saved |
//! | a task that needs its worktree and has none | rebuilt from its commits |
//! | a worktree in which git does not work | linked again, or kept under another name and rebuilt (`mend`) |
//! | a claimed task without any remaining work | its claim is released |
//! | a directory that git does not know; a worktree that could not be removed | reported to a person |

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::list::WorktreeEntry;
use super::merge::{MERGE_LOCK, SCRATCH};
use super::prepare::epoch;
use super::remote::BranchMove;
use super::{Worktrees, is_not_allowed};
use crate::board::{BoardTask, State, TaskStatus};
use ensemble_core::durable::FileLock;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeFinding {
    pub task: Option<Name>,
    pub path: String,
    pub problem: String,
    pub repaired: bool,
    pub is_note: bool,
}

impl WorktreeFinding {
    fn new(task: Option<&BoardTask>, path: impl fmt::Display, problem: impl Into<String>) -> Self {
        let (task, path) = (task.map(|task| task.id.clone()), path.to_string());
        Self { task, path, problem: problem.into(), repaired: false, is_note: false }
    }

    /// A worktree whose repair failed. It must not end the repair of the others.
    fn failed(task: &BoardTask, path: &Path, error: &Error) -> Self {
        Self::new(Some(task), path.display(), format!("it cannot be repaired: {error}"))
    }
}

impl Worktrees {
    /// Finds what crashes left, and repairs it if `repair` is set. Supervisors call it at their
    /// start and periodically, and `fsck` calls it. It never changes a worktree in which an agent
    /// works. If the remote is away, what needs it is left, and the error says so at the end.
    pub fn recover(&self, repair: bool) -> Result<Vec<WorktreeFinding>> {
        let mut found = Vec::new();
        match FileLock::acquire(&self.common.join(MERGE_LOCK), std::time::Duration::ZERO) {
            Ok(merging) => self.recover_merges(&merging, repair, &mut found)?,
            // A merge is running: its scratch worktree is in use.
            Err(Error::Locked { .. }) => {}
            Err(other) => return Err(other),
        }
        let lock = self.lock()?;
        // Claims are made under this lock, so no claim is in progress now.
        let state = self.board.read()?;
        // Query git once for all tasks: most of them are in order.
        let (entries, branches) = (self.entries()?, self.task_branches()?);
        let mut away = None;
        for task in &state.tasks {
            // Each host recovers its own worktrees.
            if self.board.other_host(task).is_some() && self.options.remote.is_none() {
                continue;
            }
            let path = self.path_of(task);
            let entry = entries.iter().find(|entry| entry.path == path);
            let has_branch = branches.contains(&Self::branch_of(&task.id));
            match self.recover_task(&lock, task, (entry, has_branch), repair, &mut found) {
                Ok(()) => {}
                // The remote is away. Other tasks may not need it.
                Err(error) if error.is_server_away() => {
                    away.get_or_insert(error);
                }
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => found.push(WorktreeFinding::failed(task, &path, &error)),
            }
        }
        self.look_at_integration(&state, &mut found)?;
        self.look_around(&state, &mut found)?;
        for finding in found.iter().filter(|finding| finding.repaired) {
            let data =
                json!({ "task": finding.task, "path": finding.path, "problem": finding.problem });
            self.record(types::WORKTREE_RECOVERED, data);
        }
        away.map_or(Ok(found), Err)
    }

    /// Finds merged work that the integration branch does not have any more. To restore it is a person's decision.
    fn look_at_integration(&self, state: &State, found: &mut Vec<WorktreeFinding>) -> Result<()> {
        let (branch, reference) = (self.integration_branch()?, self.integration_ref()?);
        let head = self.commit_at(&reference)?;
        let at = head.clone().or_else(|| self.checked_out_commit(&branch).ok());
        let Some(at) = at else { return Ok(()) };
        let Some(fault) = self.missing_merge(state, (&branch, head.is_some()), &at)? else {
            return Ok(());
        };
        found.push(WorktreeFinding::new(None, reference, fault.to_string()));
        Ok(())
    }

    fn recover_merges(
        &self,
        merging: &FileLock,
        repair: bool,
        found: &mut Vec<WorktreeFinding>,
    ) -> Result<()> {
        let note = |finding| WorktreeFinding { repaired: repair, ..finding };
        let scratches = match repair {
            true => self.sweep_scratches(merging)?,
            false => self.inside().filter(|path| self.is_scratch(path)).collect(),
        };
        for path in scratches {
            let problem = "a merge was interrupted here";
            found.push(note(WorktreeFinding::new(None, path.display(), problem)));
        }
        let state = self.board.read()?;
        let integration = self.integration_ref()?;
        let Some(head) = self.commit_at(&integration)? else { return Ok(()) };
        for task in state.tasks.iter().filter(|task| task.status == TaskStatus::Approved) {
            let problem = "it is merged, but the board says APPROVED";
            match self.recover_merge(task, &head, repair) {
                Ok(true) => {
                    found.push(note(WorktreeFinding::new(Some(task), &integration, problem)));
                }
                Ok(false) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    found.push(WorktreeFinding::failed(task, &self.path_of(task), &error));
                }
            }
        }
        Ok(())
    }

    /// Whether the integration branch has this approved task, whose merge `repair` then finishes.
    fn recover_merge(&self, task: &BoardTask, head: &str, repair: bool) -> Result<bool> {
        let Some(commit) = &task.review_commit else { return Ok(false) };
        let Some(commit) = self.commit_at(commit)? else { return Ok(false) };
        if !self.is_ancestor(&commit, head)? {
            return Ok(false);
        }
        if repair {
            let merge = self.brought_by(&commit, head)?;
            self.finish_merge(&task.id, &merge)?;
        }
        Ok(true)
    }

    fn recover_task(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        (entry, has_branch): (Option<&WorktreeEntry>, bool),
        repair: bool,
        found: &mut Vec<WorktreeFinding>,
    ) -> Result<()> {
        let path = self.path_of(task);
        let is_known = entry.is_some_and(|entry| !entry.is_half_made);
        let is_there = is_known && self.is_sound(&path)?;
        let mut is_note = false;
        let there = self.board.other_host(task);
        let (problem, repaired) = match task.status.needs_worktree() {
            // Another host works on it. This host's copy of a task that is not claimed may be needed again.
            true if there.is_some() => {
                if task.status != TaskStatus::Claimed || (entry.is_none() && !has_branch) {
                    return Ok(());
                }
                let repaired = repair && self.take_away(lock, task, &path)?;
                (format!("host {} works on this task", there.unwrap_or_default()), repaired)
            }
            true if is_there => return Ok(()),
            true => {
                let what = if path.is_dir() { "damaged" } else { "missing" };
                let repaired = repair && self.put_back(lock, task, &path)?;
                (
                    format!("the worktree of a task that is {} is {what}", task.status.as_str()),
                    repaired,
                )
            }
            false => {
                if entry.is_none() && !has_branch && !self.is_on_remote(task)? {
                    return Ok(());
                }
                let repaired = repair && self.take_away(lock, task, &path)?;
                // A task that was returned, as after ABORT, keeps what its agent left.
                is_note = !repaired && !task.status.is_terminal();
                let what = match is_note && self.is_empty(entry, task)? {
                    true => "no agent works on this task, and there is no work in it",
                    false => "no agent works on this task",
                };
                let then = match is_note {
                    true => "; the next claim or repair saves what is in it, and removes it",
                    false => "",
                };
                (format!("{what}: the task is {}{then}", task.status.as_str()), repaired)
            }
        };
        let finding = WorktreeFinding::new(Some(task), path.display(), problem);
        found.push(WorktreeFinding { repaired, is_note, ..finding });
        Ok(())
    }

    /// Whether a worktree has neither changed files nor new commits.
    fn is_empty(&self, entry: Option<&WorktreeEntry>, task: &BoardTask) -> Result<bool> {
        let Some(WorktreeEntry { path, head: Some(head), is_half_made: false, .. }) = entry else {
            return Ok(false);
        };
        let is_at_base = task.base_commit.as_ref() == Some(head);
        Ok(is_at_base && self.is_sound(path)? && self.dirt(path)?.changed.is_empty())
    }

    fn task_branches(&self) -> Result<BTreeSet<String>> {
        let words = ["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/task/"];
        let all = self.repository().run(&words)?;
        Ok(all.lines().map(str::to_owned).collect())
    }

    fn put_back(&self, lock: &FileLock, task: &BoardTask, path: &Path) -> Result<bool> {
        if self.make_again(lock, task, path, None)? {
            return Ok(true);
        }
        if task.status != TaskStatus::Claimed || path.symlink_metadata().is_ok() {
            // The next claim makes a fresh worktree; a review or merge reports the missing one. Another project's
            // worktree is left alone.
            return Ok(false);
        }
        let reason = "nothing is left of its worktree";
        self.board.change(|board| board.release(&task.id, epoch(task), reason))?;
        Ok(true)
    }

    /// Whether the remote had a branch of this task when it was fetched last.
    fn is_on_remote(&self, task: &BoardTask) -> Result<bool> {
        let Some(copy) = self.copy_of(&task.id) else { return Ok(false) };
        Ok(self.commit_at(&copy)?.is_some())
    }

    /// Removes a worktree that should not exist. If no host works on the task, its branch on the remote is removed,
    /// too.
    fn take_away(&self, lock: &FileLock, task: &BoardTask, path: &Path) -> Result<bool> {
        let to = if task.status.needs_worktree() { BranchMove::Stay } else { BranchMove::Away };
        let retired = match self.put_off(lock, task, path, to) {
            Ok(retired) => retired,
            // The branch is checked out elsewhere.
            Err(error) if is_not_allowed(&error) => return Ok(false),
            Err(other) => return Err(other),
        };
        let salvage = retired.salvage.as_ref();
        // A worktree of another host stays on the board.
        let is_ours = self.board.other_host(task).is_none();
        if salvage.is_some() || (task.worktree.is_some() && is_ours) {
            self.note_retired(task, salvage)?;
        }
        Ok(true)
    }

    fn look_around(&self, state: &State, found: &mut Vec<WorktreeFinding>) -> Result<()> {
        let entries = self.entries()?;
        let expected: Vec<PathBuf> = state.tasks.iter().map(|task| self.path_of(task)).collect();
        for path in self.inside() {
            let name = file_name(&path);
            let is_known = entries.iter().any(|entry| entry.path == path);
            let problem = if name.starts_with(".kept-") {
                "it could not be removed without loss: inspect it, then delete it (`git worktree remove --force`, or \
                 `rm -r` if git does not know it)"
            } else if name.starts_with('.') || is_known {
                continue;
            } else if expected.contains(&path) {
                "it is in the place of a worktree, but git does not know it"
            } else {
                "it is not a worktree, and its owner is unknown"
            };
            let finding = WorktreeFinding::new(None, path.display(), problem);
            found.push(WorktreeFinding { is_note: true, ..finding });
        }
        Ok(())
    }

    /// Whether it is a worktree of a merge. Projects may share the directory, and another one may be merging.
    pub(super) fn is_scratch(&self, path: &Path) -> bool {
        let is_in_place = path.parent() == Some(&*self.directory());
        is_in_place && file_name(path).starts_with(SCRATCH) && !self.is_foreign(path)
    }

    fn inside(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(self.directory()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
