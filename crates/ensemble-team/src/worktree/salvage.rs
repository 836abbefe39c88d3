//! The content of a worktree as a commit, including uncommitted work.

use std::path::{Path, PathBuf};

use super::changes::STATUS;
use super::list::WorktreeEntry;
use super::prepare::epoch;
use super::remote::digits;
use super::{GitError, Worktrees};
use crate::board::BoardTask;
use ensemble_core::durable::FileLock;
use ensemble_core::{Error, Result};

/// Prefix of the refs of saved work: `refs/ensemble/salvage/<task>/<epoch>`.
pub const SALVAGE: &str = "refs/ensemble/salvage";
const IGNORED_TOLD_MAX: usize = 20;
const INDEX: &str = "ensemble-salvage.index";
/// Identity under which saved work is committed.
pub(super) const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "Ensemble"),
    ("GIT_AUTHOR_EMAIL", "ensemble@localhost"),
    ("GIT_COMMITTER_NAME", "Ensemble"),
    ("GIT_COMMITTER_EMAIL", "ensemble@localhost"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    pub reference: String,
    /// The commit. The last one holds uncommitted work. Its parents are HEAD, the index if it
    /// differed, and the task's branch if HEAD was elsewhere.
    pub commit: String,
}

impl Salvage {
    /// As the board notes it: the ref and the commit.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.reference, &self.commit)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorktreeSnapshot {
    /// Everything that is not ignored: HEAD, or a commit on top of it.
    pub(super) commit: String,
    /// Whether HEAD contains everything.
    pub(super) is_clean: bool,
    /// Ignored files and directories; only the first few.
    pub(super) ignored: Vec<String>,
}

pub(super) struct GitStatus {
    pub(super) changed: Vec<String>,
    ignored: Vec<String>,
}

impl Worktrees {
    pub(super) fn dirt(&self, path: &Path) -> Result<GitStatus> {
        let words = [&STATUS[..], &["--ignored=traditional"]].concat();
        let bytes = self.git.at(path).bytes(&words)?;
        let (mut changed, mut ignored) = (Vec::new(), Vec::new());
        for line in bytes.split(|byte| *byte == 0).filter(|line| line.len() > 3) {
            let name = String::from_utf8_lossy(&line[3..]).into_owned();
            if line.starts_with(b"!!") { ignored.push(name) } else { changed.push(name) }
        }
        Ok(GitStatus { changed, ignored })
    }

    /// Changed and untracked paths of a worktree; none if git does not work there.
    pub fn uncommitted(&self, path: &Path) -> Result<Vec<String>> {
        match self.is_sound(path)? {
            true => Ok(self.dirt(path)?.changed),
            false => Ok(Vec::new()),
        }
    }

    /// Makes a commit of a worktree's whole content. Equal content gives the same commit, so a
    /// repetition after a crash makes nothing new.
    pub(super) fn snapshot(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        entry: &WorktreeEntry,
    ) -> Result<WorktreeSnapshot> {
        let (path, id, epoch) = (&entry.path, &task.id, epoch(task));
        let nothing = || GitError::NoCommit { path: path.clone() };
        let head = entry.head.clone().ok_or_else(nothing)?;
        let GitStatus { changed, mut ignored } = self.dirt(path)?;
        ignored.truncate(IGNORED_TOLD_MAX);
        if changed.is_empty() {
            return Ok(WorktreeSnapshot { commit: head, is_clean: true, ignored });
        }
        let tree = self.tree_of_all(lock, path)?;
        let mut parents = vec![head.clone()];
        // This fails in the middle of a merge: the conflict is in the files then.
        if let Ok(staged) = self.git.at(path).under(lock).run(&["write-tree"]) {
            let head_tree = self.git.at(path).run(&["rev-parse", "HEAD^{tree}"])?;
            if staged != head_tree && staged != tree {
                let text = format!("What was staged for task {id}, claim {epoch}");
                parents.push(self.commit_tree(lock, &staged, &parents, &text)?);
            }
        }
        let text = format!("What was left uncommitted of task {id}, claim {epoch}");
        let commit = self.commit_tree(lock, &tree, &parents, &text)?;
        Ok(WorktreeSnapshot { commit, is_clean: false, ignored })
    }

    /// Writes everything that is not ignored as a tree, using a separate index.
    fn tree_of_all(&self, lock: &FileLock, path: &Path) -> Result<String> {
        let index = self.common.join(INDEX);
        remove_if_there(&index)?;
        remove_if_there(&self.common.join(format!("{INDEX}.lock")))?;
        let call = || self.git.at(path).under(lock).with("GIT_INDEX_FILE", &index);
        call().run(&["read-tree", "HEAD"])?;
        call().run(&["-c", "core.safecrlf=false", "add", "--all", "."])?;
        let difference = call().run(&["diff-index", "--cached", "--no-renames", "HEAD"])?;
        let inner = difference.lines().find(|line| line.split(' ').nth(1) == Some("160000"));
        if let Some(line) = inner {
            let place = line.rsplit('\t').next().unwrap_or_default();
            let inner = place.to_owned();
            return Err(GitError::InnerRepository { path: path.to_owned(), inner }.into());
        }
        let tree = call().run(&["write-tree"])?;
        remove_if_there(&index)?;
        Ok(tree)
    }

    /// Makes a commit in Ensemble's name. Its time is that of its first parent, so that a
    /// repetition gives the same commit.
    pub(super) fn commit_tree(
        &self,
        lock: &FileLock,
        tree: &str,
        parents: &[String],
        text: &str,
    ) -> Result<String> {
        let first = parents.first().map_or("HEAD", String::as_str);
        let call = self.repository();
        let stamp = call.run(&["show", "--no-patch", "--format=%cd", "--date=raw", first])?;
        let mut arguments = vec!["commit-tree", "--no-gpg-sign", tree, "-m", text];
        arguments.extend(parents.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let mut call = self.repository().under(lock);
        for (name, value) in IDENTITY {
            call = call.with(name, value);
        }
        let call = call.with("GIT_AUTHOR_DATE", &*stamp).with("GIT_COMMITTER_DATE", &*stamp);
        call.run(&arguments)
    }

    /// Saves a commit under a salvage ref, unless a salvage ref already contains it.
    pub(super) fn keep_commit(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        commit: &str,
    ) -> Result<Salvage> {
        let (below, epoch) = (format!("{SALVAGE}/{}/", task.id), epoch(task));
        let call = self.repository();
        let known =
            call.run(&["for-each-ref", "--format=%(refname)", "--contains", commit, &below])?;
        if let Some(reference) = known.lines().next() {
            let commit = self.commit_at(reference)?.unwrap_or_else(|| commit.to_owned());
            return Ok(Salvage { reference: reference.to_owned(), commit });
        }
        // Hosts that share a remote choose names without asking each other.
        let mut reference = match &self.options.remote {
            Some(_) => format!("{below}{epoch}.{}", digits(commit)),
            None => format!("{below}{epoch}"),
        };
        let first = reference.clone();
        let mut number = 1;
        while self.commit_at(&reference)?.is_some() {
            number += 1;
            reference = format!("{first}.{number}");
        }
        let call = self.repository().under(lock);
        call.run(&["update-ref", "-m", "ensemble: salvage", &reference, commit, ""])?;
        Ok(Salvage { reference, commit: commit.to_owned() })
    }
}

fn remove_if_there(path: &PathBuf) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}
