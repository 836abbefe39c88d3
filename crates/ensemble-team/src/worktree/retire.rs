//! Removes a worktree without losing work.
//!
//! ```text
//! look       make a commit of its content                      (`salvage`)
//! save       commits that the integration branch lacks         refs/ensemble/salvage/<task>/<epoch>
//! remove     clean: git itself checks again                else only if it is unchanged
//! delete     its branch, if it has not moved
//! ```
//!
//! A crash in between leaves a worktree of which more is saved than needed. Running it again
//! completes the removal.

use std::path::{Path, PathBuf};

use super::list::WorktreeEntry;
use super::prepare::epoch;
use super::remote::BranchMove;
use super::salvage::{Salvage, WorktreeSnapshot};
use super::{GitError, Operation, WorktreeFault, Worktrees};
use crate::board::BoardTask;
use ensemble_core::durable::FileLock;
use ensemble_core::{Error, Result};

/// How often another process may write into a worktree while its content is saved.
const LOOKS_MAX: usize = 3;

/// Prints the path of a submodule that must not be removed, as a line for `sh -c`.
const UNSAVED: &str = "test -z \"$(git status --porcelain --untracked-files=all; \
     git rev-list --max-count=1 HEAD --branches --glob=refs/stash --not --remotes)\" || \
     echo \"$displaypath\"";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetiredWorktree {
    /// Saved work, if the integration branch lacks some of it.
    pub salvage: Option<Salvage>,
    /// New path and reason, if the worktree could not be removed without loss.
    pub kept: Option<(PathBuf, String)>,
    /// Ignored files that were removed with it; only the first few.
    pub ignored: Vec<String>,
}

impl Worktrees {
    pub(super) fn retire(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        path: &Path,
    ) -> Result<RetiredWorktree> {
        let entries = self.entries()?;
        let branch = format!("refs/heads/{}", Self::branch_of(&task.id));
        let tip = self.commit_at(&branch)?;
        let is_elsewhere =
            |entry: &&WorktreeEntry| entry.path != path && self.has_branch(entry, &branch);
        let operation = || Operation::RemoveBranch(Self::branch_of(&task.id));
        if let Some(other) = entries.iter().find(is_elsewhere) {
            return Err(WorktreeFault::CheckedOut { path: other.path.clone() }.to(operation()));
        }
        if self.is_taken(path) {
            return Err(WorktreeFault::OtherRepository { path: path.to_owned() }.to(operation()));
        }
        let known = entries.into_iter().find(|entry| entry.path == path);
        let mut retired = RetiredWorktree::default();
        // A half-made worktree was never reported to an agent.
        let is_half_made = known.is_some_and(|entry| entry.is_half_made);
        let entry = match self.sound_entry(path)? {
            None if !is_half_made => self.relink(lock, path)?,
            found => found,
        };
        match entry {
            Some(entry) => self.put_aside(lock, task, &entry, tip.as_deref(), &mut retired)?,
            None => {
                if is_half_made {
                    self.remove_entry(lock, path)?;
                }
                self.salvage_tips(lock, task, None, tip.as_deref(), &mut retired)?;
            }
        }
        if let Some(kept) = self.set_aside(task, path)? {
            retired.kept = Some(kept);
        }
        // Git's remaining entry is only a name.
        if self.entry_at(path)?.is_some() {
            self.remove_entry(lock, path)?;
        }
        if let Some(tip) = tip {
            self.delete_ref(lock, &branch, &tip)?;
        }
        self.tell_retired(task, path, &retired);
        Ok(retired)
    }

    /// Removes the worktree and the branch of a task, and pushes what was saved of them. The remote is asked first, so
    /// nothing is saved twice, and nothing is removed while the remote is away.
    pub(super) fn put_off(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        path: &Path,
        to: BranchMove<'_>,
    ) -> Result<RetiredWorktree> {
        let seen = self.fetch_remote_state(Some(&task.id))?;
        let mut retired = self.retire(lock, task, path)?;
        if let Some(seen) = &seen {
            let left_there = self.publish(lock, task, seen, to)?;
            retired.salvage = retired.salvage.or(left_there);
        }
        Ok(retired)
    }

    /// Deletes a ref if it still exists, and not the branch for which it may be another name.
    pub(super) fn delete_ref(&self, lock: &FileLock, reference: &str, at: &str) -> Result<()> {
        let words = ["update-ref", "--no-deref", "-d", reference, at];
        self.repository().under(lock).run(&words).map(drop)
    }

    /// Removes a worktree from git's list, with all its content.
    pub(super) fn remove_entry(&self, lock: &FileLock, path: &Path) -> Result<()> {
        self.remove_worktree(lock, &["--force", "--force"], path)
    }

    fn put_aside(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        entry: &WorktreeEntry,
        tip: Option<&str>,
        retired: &mut RetiredWorktree,
    ) -> Result<()> {
        let mut trouble = "a process keeps writing into it".to_owned();
        let mut looked: Option<WorktreeSnapshot> = None;
        for _ in 0..LOOKS_MAX {
            let snapshot = match self.snapshot(lock, task, entry).map_err(Error::into_area) {
                Ok(snapshot) => snapshot,
                Err(Ok(failed)) => {
                    trouble = GitError::to_string(&failed);
                    break;
                }
                Err(Err(other)) => return Err(other),
            };
            retired.ignored.clone_from(&snapshot.ignored);
            let is_same = looked.as_ref().is_some_and(|looked| looked.commit == snapshot.commit);
            if !is_same {
                self.salvage_tips(lock, task, Some(&snapshot.commit), tip, retired)?;
            }
            let removed = match (is_same, snapshot.is_clean) {
                (true, _) => self.remove_saved(lock, &entry.path),
                // Git refuses if a file is changed or untracked, and where there are submodules.
                (false, true) => self.remove_worktree(lock, &[], &entry.path),
                (false, false) => {
                    looked = Some(snapshot);
                    continue;
                }
            };
            match removed.map_err(Error::into_area) {
                Ok(()) => return Ok(()),
                Err(Ok(failed)) => trouble = GitError::to_string(&failed),
                Err(Err(other)) => return Err(other),
            }
            looked = Some(snapshot);
        }
        if !entry.path.exists() {
            return self.remove_entry(lock, &entry.path);
        }
        self.salvage_tips(lock, task, entry.head.as_deref(), tip, retired)?;
        let place = self.move_entry(lock, task, entry)?;
        retired.kept = Some((place, trouble));
        Ok(())
    }

    /// Removes a worktree whose content is saved, unless a submodule in it has something that is nowhere else.
    fn remove_saved(&self, lock: &FileLock, path: &Path) -> Result<()> {
        match self.unsaved_submodule(path)? {
            None => self.remove_entry(lock, path),
            Some(inner) => Err(GitError::InnerRepository { path: path.to_owned(), inner }.into()),
        }
    }

    /// A submodule with changed files, or with commits that none of its remotes has. A repository that was committed
    /// like one has no remote that git knows.
    fn unsaved_submodule(&self, path: &Path) -> Result<Option<String>> {
        let call = self.git.at(path);
        if !path.join(".gitmodules").exists() {
            let staged = call.run(&["ls-files", "--stage", "-z"])?;
            let mut links = staged.split('\0').filter_map(|line| line.strip_prefix("160000 "));
            let inner = links.find_map(|link| {
                let (_, name) = link.split_once('\t')?;
                path.join(name).join(".git").symlink_metadata().ok().map(|_| name.to_owned())
            });
            return Ok(inner);
        }
        let said = call.run(&["submodule", "--quiet", "foreach", "--recursive", UNSAVED])?;
        Ok(said.lines().next().map(str::to_owned))
    }

    fn remove_worktree(&self, lock: &FileLock, options: &[&str], path: &Path) -> Result<()> {
        let words = ["worktree", "remove"].iter().chain(options).map(std::ffi::OsStr::new);
        let arguments: Vec<_> = words.chain([path.as_os_str()]).collect();
        self.repository().under(lock).run(&arguments).map(drop)
    }

    /// Saves under a ref the commits of the worktree and of the task's branch that the integration
    /// branch lacks.
    fn salvage_tips(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        found: Option<&str>,
        tip: Option<&str>,
        retired: &mut RetiredWorktree,
    ) -> Result<()> {
        let integration = self.commit_at(&self.integration_ref()?)?;
        let mut tips: Vec<String> = Vec::new();
        for commit in [found, tip].into_iter().flatten() {
            let mut is_safe = false;
            for other in integration.iter().chain(&tips) {
                is_safe |= self.is_ancestor(commit, other)?;
            }
            if !is_safe {
                tips.push(commit.to_owned());
            }
        }
        let commit = match tips.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            [one, ..] => {
                let tree = self.repository().run(&["rev-parse", &format!("{one}^{{tree}}")])?;
                let text = format!("What was left of task {}, claim {}", task.id, epoch(task));
                self.commit_tree(lock, &tree, &tips, &text)?
            }
        };
        retired.salvage = Some(self.keep_commit(lock, task, &commit)?);
        Ok(())
    }

    /// Moves a worktree that cannot be removed out of the way, detached from its branch.
    fn move_entry(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        entry: &WorktreeEntry,
    ) -> Result<PathBuf> {
        if let (Some(_), Some(head)) = (&entry.branch, &entry.head) {
            let call = self.git.at(&entry.path).under(lock);
            call.run(&["update-ref", "--no-deref", "HEAD", head])?;
        }
        // `git worktree move` refuses worktrees with submodules.
        let place = self.move_away(task, &entry.path)?;
        self.relink(lock, &place)?;
        Ok(place)
    }

    /// Keeps a directory in which git does not work under another name, unless it is empty. Returns its new path and
    /// the reason.
    pub(super) fn set_aside(
        &self,
        task: &BoardTask,
        path: &Path,
    ) -> Result<Option<(PathBuf, String)>> {
        if path.symlink_metadata().is_err() || std::fs::remove_dir(path).is_ok() {
            return Ok(None);
        }
        let place = self.move_away(task, path)?;
        Ok(Some((place, "git does not work in it".to_owned())))
    }

    fn move_away(&self, task: &BoardTask, path: &Path) -> Result<PathBuf> {
        let place = self.free_place(task);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(path.to_owned());
        };
        let dir = ensemble_core::durable::Dir::open(parent)?;
        let new_name = place.file_name().unwrap_or_default().to_string_lossy();
        dir.move_tree_new(&name.to_string_lossy(), &dir, &new_name)?;
        Ok(place)
    }

    fn free_place(&self, task: &BoardTask) -> PathBuf {
        let (task, epoch) = (&task.id, epoch(task));
        let name = |number: u64| match number {
            0 => self.directory().join(format!(".kept-{task}-{epoch}")),
            number => self.directory().join(format!(".kept-{task}-{epoch}.{number}")),
        };
        let mut number = 0;
        while name(number).symlink_metadata().is_ok() {
            number += 1;
        }
        name(number)
    }
}
