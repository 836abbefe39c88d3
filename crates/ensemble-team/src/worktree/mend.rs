//! Worktrees in which git does not work any more: found, and made to work again.
//!
//! | what is wrong | what is done |
//! |---|---|
//! | `.git` is gone from the worktree, or the project was moved | git links the two again; all files stay |
//! | the repository has lost its record of the worktree, or that is damaged | the directory is kept under another name, and the worktree made again |
//! | the directory is gone or empty | the worktree is made again |
//! | the link leads to another repository: the project was copied | nothing, as it is the other project's worktree |
//!
//! Without this check, git would take a worktree without `.git` for a part of the checkout around it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::list::WorktreeEntry;
use super::retire::RetiredWorktree;
use super::{GitError, Worktrees};
use crate::board::BoardTask;
use ensemble_core::durable::{FileLock, read_file};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result};

const LINK_BYTES_MAX: usize = 8 * 1024;
/// In git's record of a worktree: the files that name the branches to which a rebase or a bisection returns.
const RETURNING: &str =
    "rebase-merge/head-name rebase-merge/update-refs rebase-apply/head-name BISECT_START";
/// Time limit of the `post-checkout` hook in a new worktree: the lease of its claim already runs.
const HOOK_LIMIT: Duration = Duration::from_secs(60);

impl Worktrees {
    pub(super) fn sound_entry(&self, path: &Path) -> Result<Option<WorktreeEntry>> {
        match self.entry_at(path)? {
            Some(entry) if !entry.is_half_made && self.is_sound(path)? => Ok(Some(entry)),
            _ => Ok(None),
        }
    }

    /// Whether git works in a directory as in a worktree of this repository.
    pub(super) fn is_sound(&self, path: &Path) -> Result<bool> {
        if !path.is_dir() {
            return Ok(false);
        }
        let words = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"];
        let said = match self.git.at(path).run(&words).map_err(Error::into_area) {
            Ok(said) => said,
            Err(Ok(GitError::Failed { .. })) => return Ok(false),
            Err(Ok(other)) => return Err(other.into()),
            Err(Err(other)) => return Err(other),
        };
        let places: Vec<PathBuf> = said.lines().map(|line| resolved(Path::new(line))).collect();
        Ok(places == [resolved(&self.common), resolved(path)])
    }

    /// Makes a worktree work again, as it is where git can link it, otherwise at its committed state. Returns
    /// whether there was anything to make it from.
    pub(super) fn make_again(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        path: &Path,
        pushed: Option<&str>,
    ) -> Result<bool> {
        if self.relink(lock, path)?.is_some() {
            return Ok(true);
        }
        if self.is_foreign(path) {
            return Ok(false);
        }
        let kept = self.set_aside(task, path)?;
        self.tell_retired(task, path, &RetiredWorktree { kept, ..RetiredWorktree::default() });
        self.rebuild(lock, task, path, pushed)
    }

    /// Links a worktree and the repository again. `None` if git cannot do it.
    pub(super) fn relink(&self, lock: &FileLock, path: &Path) -> Result<Option<WorktreeEntry>> {
        let is_empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if !path.is_dir() || is_empty() || self.is_foreign(path) {
            return Ok(None);
        }
        // `git worktree repair` links all worktrees of the repository. In a copy of a project, it would take those of
        // the original.
        let others: Vec<PathBuf> =
            self.entries()?.into_iter().skip(1).map(|entry| entry.path).collect();
        if others.iter().any(|other| self.is_foreign(other)) {
            return Ok(None);
        }
        // One that was emptied would look as if its agent had deleted all files.
        for other in others.iter().filter(|other| other.parent() == path.parent()) {
            let _ = std::fs::remove_dir(other);
        }
        let words = ["worktree", "repair"].map(std::ffi::OsStr::new);
        let arguments: Vec<_> = words.into_iter().chain([path.as_os_str()]).collect();
        // Its exit code is about all of them.
        self.repository().under(lock).attempt(&arguments)?;
        self.sound_entry(path)
    }

    /// Whether a branch is checked out in a worktree, or will be when a rebase or a bisection there ends.
    pub(super) fn has_branch(&self, entry: &WorktreeEntry, reference: &str) -> bool {
        let short = |name: &str| name.trim_start_matches("refs/heads/").to_owned();
        let record = link_of(&entry.path).unwrap_or_else(|| self.common.clone());
        let returns = |file: &str| {
            let text = read_file(&record.join(file), LINK_BYTES_MAX).ok().flatten();
            let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
            text.lines().any(|line| short(line) == short(reference))
        };
        entry.branch.as_deref() == Some(reference) || RETURNING.split(' ').any(returns)
    }

    /// Whether a worktree is linked to another repository, which exists.
    pub(super) fn is_foreign(&self, path: &Path) -> bool {
        let link = link_of(path).filter(|link| link.is_dir());
        link.is_some_and(|link| !resolved(&link).starts_with(resolved(&self.common)))
    }

    /// Whether another repository's worktree is at a path, and not a copy of one.
    pub(super) fn is_taken(&self, path: &Path) -> bool {
        let back = |record: PathBuf| {
            let text = read_file(&record.join("gitdir"), LINK_BYTES_MAX).ok()??;
            Some(record.join(String::from_utf8(text).ok()?.trim()))
        };
        let back = link_of(path).filter(|_| self.is_foreign(path)).and_then(back);
        back.is_some_and(|back| resolved(&back) == resolved(&path.join(".git")))
    }

    /// Runs the repository's `post-checkout` hook in a new worktree, as git does, but without a lock. The worktree
    /// exists, so a hook that fails is only reported; returns what it said.
    pub(super) fn run_checkout_hook(&self, path: &Path, head: &str) -> Option<String> {
        let nothing = "0".repeat(head.len());
        let words = ["hook", "run", "--ignore-missing", "post-checkout", "--", &nothing, head, "1"];
        let failed = self.git.at(path).within(HOOK_LIMIT).run(&words).err()?;
        let why = match failed.area() {
            Some(GitError::Failed { detail, .. }) => detail.clone(),
            Some(GitError::Overdue { limit, .. }) => {
                format!("it did not end within {} s and was stopped", limit.as_secs())
            }
            _ => failed.to_string(),
        };
        self.record(types::WORKTREE_HOOK_FAILED, json!({ "path": path, "why": why }));
        Some(why)
    }
}

/// The repository's record of a worktree, as the worktree's `.git` names it.
fn link_of(path: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(read_file(&path.join(".git"), LINK_BYTES_MAX).ok()??).ok()?;
    Some(path.join(text.strip_prefix("gitdir:")?.trim()))
}

fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
