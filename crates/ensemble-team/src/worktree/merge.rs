//! Merges from a task's branch to the integration branch.
//!
//! ```text
//! take ensemble-merge.lock                                     one merge at a time
//!   the commit is in the integration branch already?           MERGED: a merger died after moving it
//!   a separate worktree at the integration branch              .worktrees/.merge-<task>-<pid>
//!   merge the approved commit there                            conflict: INTEGRATION_FAILED
//!   run the tests there                                        failed or timed out: INTEGRATION_FAILED
//!   move the branch, if it has not moved since                 else start again
//!   MERGED; remove the task's worktree and branch
//! ```
//!
//! A failed merge has moved nothing, so there is nothing to undo. A killed merge has either moved
//! the branch or not. If it has, the branch contains the commit, and the next merge of the task
//! records MERGED.
//!
//! With a remote, the branch is that of the remote. It is fetched for each try, and moved by a push upon the tip that was
//! merged with. This repository's own branch stays where it is, so it may be checked out. A lock among the hosts is held
//! for the whole merge, too.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::git::{CEILING_VARIABLE, GitProcess, last_bytes, without_git};
use super::remote::{BranchMove, RemoteBranches};
use super::retire::RetiredWorktree;
use super::salvage::IDENTITY;
use super::{GitError, Operation, WorktreeError, WorktreeFault, Worktrees, short_reason};
use crate::board::{BoardError, BoardTask, State, TaskStatus, is_fenced};
use ensemble_core::durable::{Dir, FileLock, FileModes, open_file};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use ensemble_tmux::reaper::PASS_VARIABLE;

pub(super) const MERGE_LOCK: &str = "ensemble-merge.lock";
pub(super) const SCRATCH: &str = ".merge-";
/// Most tries of a merge when the integration branch moves in the meantime.
const MERGE_TRIES_MAX: u32 = 5;
const TESTS_TOLD_BYTES: usize = 1_500;
const OUTPUTS: &str = "merges";
const REASON_CHARS_MAX: usize = 1_000;
const TRAILER: &str = "Ensemble-Commit";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeTests {
    /// A line for `sh -c`, run in the merged worktree.
    pub command: String,
    pub limit: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    Done {
        /// The commit that brought the task into the integration branch.
        commit: String,
        retired: RetiredWorktree,
    },
    /// The task is INTEGRATION_FAILED, and the integration branch has not moved.
    Failed { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedOut {
    pub branch: String,
    pub path: PathBuf,
}

enum MergeAttempt {
    Conflict(String),
    Merged(String),
}

impl Worktrees {
    /// Merges an approved task into the integration branch. Takes as long as the tests do.
    ///
    /// # Errors
    /// [`BoardError::NotAllowed`] if the task is not APPROVED, or the integration branch is checked out;
    /// [`Error::Locked`] if another merge runs; [`GitError`]. The task stays APPROVED then, with
    /// the reason as `merge_error`. A conflict and failing tests are not errors: see [`MergeOutcome::Failed`].
    pub fn merge(&self, id: &Name) -> Result<MergeOutcome> {
        self.merge_within(self.options.patience, id)
    }

    /// As [`Worktrees::merge`], but does not wait while another merge runs.
    pub(crate) fn merge_now(&self, id: &Name) -> Result<MergeOutcome> {
        self.merge_within(Duration::ZERO, id)
    }

    fn merge_within(&self, patience: Duration, id: &Name) -> Result<MergeOutcome> {
        let merging = FileLock::acquire(&self.common.join(MERGE_LOCK), patience)?;
        let tried = match self.options.remote {
            Some(_) => self.board.merge_alone(patience, || self.try_merge(&merging, id)),
            None => self.try_merge(&merging, id),
        };
        if let Err(error) = &tried
            && !(is_fenced(error) || error.is_transient() || is_elsewhere(error))
        {
            self.note_refused(id, error)?;
        }
        tried
    }

    /// Shows on the board why an approved task is not merged: it would wait in silence otherwise.
    fn note_refused(&self, id: &Name, error: &Error) -> Result<()> {
        let is_it =
            |state: &State| state.task(id).is_some_and(|task| task.status == TaskStatus::Approved);
        if !is_it(&self.board.read()?) {
            return Ok(());
        }
        let reason = match (error.area::<BoardError>(), error.area::<WorktreeError>()) {
            (Some(BoardError::NotAllowed { why, .. }), _) => why.to_string(),
            (_, Some(error)) => error.fault.to_string(),
            _ if error.area().and_then(GitError::remedy).is_some() => short_reason(error),
            _ => error.to_string(),
        };
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let mut locked = self.board.lock()?;
        if is_it(locked.state()) {
            locked.merge_refused(id, &reason)?;
            locked.commit()?;
        }
        Ok(())
    }

    fn try_merge(&self, merging: &FileLock, id: &Name) -> Result<MergeOutcome> {
        let seen = self.fetch_remote_state(Some(id))?;
        if let Some(task) = self.board.read()?.task(id) {
            self.must_be_reachable(task, Operation::Merge(id.clone()), seen.as_ref())?;
        }
        let (task, commit) = self.approved(id)?;
        self.sweep_scratches(merging)?;
        let failed = match self.integrate(merging, &task, &commit, seen)? {
            Ok(merge) => return self.finish_merge(id, &merge),
            Err(reason) => reason,
        };
        self.board.change(|board| board.integration_failed(id, &failed))?;
        Ok(MergeOutcome::Failed { reason: failed })
    }

    fn approved(&self, id: &Name) -> Result<(BoardTask, String)> {
        let state = self.board.read()?;
        let task = state.require_task(id)?.clone();
        let operation = Operation::Merge(id.clone());
        if task.status != TaskStatus::Approved {
            return Err(WorktreeFault::OtherStatus { status: task.status }.to(operation));
        }
        let named = task.review_commit.clone().unwrap_or_default();
        match self.commit_at(&named)? {
            Some(commit) => Ok((task, commit)),
            None => Err(WorktreeFault::CommitMissing { commit: named }.to(operation)),
        }
    }

    /// The commit that brought the task into the integration branch, or why there is none.
    fn integrate(
        &self,
        merging: &FileLock,
        task: &BoardTask,
        commit: &str,
        mut seen: Option<RemoteBranches>,
    ) -> Result<Result<String, String>> {
        for _ in 0..MERGE_TRIES_MAX {
            let lock = self.lock()?;
            let old = self.integration_head(&lock, seen.as_ref())?;
            if self.is_ancestor(commit, &old)? {
                return self.brought_by(commit, &old).map(Ok);
            }
            self.must_be_free(task)?;
            // Release the lock before the scratch worktree is dropped, which takes it again.
            drop(lock);
            let scratch = ScratchWorktree::new(self, merging, task, &old)?;
            let new = match scratch.merge(task, commit)? {
                MergeAttempt::Conflict(reason) => return Ok(Err(reason)),
                MergeAttempt::Merged(new) => new,
            };
            if let Some(reason) = self.run_tests(task, &scratch.path)? {
                return Ok(Err(reason));
            }
            let is_moved = match &seen {
                Some(_) => self.advance(merging, Some(&old), &new)?,
                None => self.move_branch(task, &old, &new)?,
            };
            if is_moved {
                return Ok(Ok(new));
            }
            // Another process moved the branch first: the tested tree is not what the merge would give.
            seen = self.fetch_remote_state(Some(&task.id))?;
        }
        Err(WorktreeFault::KeepsMoving.to(Operation::Merge(task.id.clone())))
    }

    /// Moves the branch of this repository. Returns `false` if it was not at `old` any more.
    fn move_branch(&self, task: &BoardTask, old: &str, new: &str) -> Result<bool> {
        let lock = self.lock()?;
        self.must_be_free(task)?;
        let reference = format!("refs/heads/{}", self.integration_branch()?);
        let note = format!("ensemble: merge task {}", task.id);
        let arguments = ["update-ref", "-m", &note, &reference, new, old];
        match self.repository().under(&lock).run(&arguments) {
            Ok(_) => Ok(true),
            Err(_) if self.integration_head(&lock, None)? != old => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records a merge that is in the integration branch, and removes the worktree.
    pub(super) fn finish_merge(&self, id: &Name, merge: &str) -> Result<MergeOutcome> {
        let mut locked = self.board.lock()?;
        let task = locked.state().require_task(id)?.clone();
        let path = self.path_of(&task);
        locked.merged(id, merge)?;
        locked.commit()?;
        // The task is merged even if its worktree cannot be removed; `recover` finds the rest.
        let gone = self.lock().and_then(|lock| self.put_off(&lock, &task, &path, BranchMove::Away));
        let retired = gone.unwrap_or_else(|error| RetiredWorktree {
            kept: Some((path, error.to_string())),
            ..RetiredWorktree::default()
        });
        if let Some(salvage) = &retired.salvage {
            self.note_retired(&task, Some(salvage))?;
        }
        Ok(MergeOutcome::Done { commit: merge.to_owned(), retired })
    }

    /// A checked-out branch must not move. The checkout would look as if it undid the merge, and
    /// the next commit there would undo it.
    fn must_be_free(&self, task: &BoardTask) -> Result<()> {
        let Some(CheckedOut { branch, path }) = self.checked_out()? else { return Ok(()) };
        let fault = WorktreeFault::IntegrationCheckedOut { branch, path };
        Err(fault.to(Operation::Merge(task.id.clone())))
    }

    /// The place where the integration branch is checked out, if it is. No task can be merged then. With a remote, the
    /// branch of this repository does not count.
    pub fn checked_out(&self) -> Result<Option<CheckedOut>> {
        if self.options.remote.is_some() {
            return Ok(None);
        }
        let branch = self.integration_branch()?;
        let reference = format!("refs/heads/{branch}");
        // It may be another name of a branch, which then moves.
        let named = self.repository().ask(&["symbolic-ref", "--quiet", &reference])?;
        let reference = named.unwrap_or(reference);
        let mut entries = self.entries()?.into_iter();
        let place = entries.find(|entry| self.has_branch(entry, &reference));
        Ok(place.map(|place| CheckedOut { branch, path: place.path }))
    }

    /// The commit that brought another commit into a branch.
    pub(super) fn brought_by(&self, commit: &str, head: &str) -> Result<String> {
        let trailer = format!("--grep=^{TRAILER}: {commit}$");
        let words = ["log", "--first-parent", "--format=%H", "-n1", &trailer, head];
        let ours = self.repository().run(&words)?;
        if !ours.is_empty() {
            return Ok(ours);
        }
        let range = format!("{commit}..{head}");
        let words = ["rev-list", "--first-parent", "--ancestry-path", "--reverse", &range];
        let path = self.repository().run(&words)?;
        Ok(path.lines().next().unwrap_or(commit).to_owned())
    }

    /// Removes worktrees of dead mergers. The holder of the merge lock is the only live merger.
    pub(super) fn sweep_scratches(&self, _merging: &FileLock) -> Result<Vec<PathBuf>> {
        let paths = self.entries()?.into_iter().map(|entry| entry.path);
        let mut found: Vec<PathBuf> = paths.filter(|path| self.is_scratch(path)).collect();
        if !found.is_empty() {
            let lock = self.lock()?;
            for path in &found {
                // If git cannot remove it, it is removed below, and the next sweep drops git's entry.
                let _ = self.remove_entry(&lock, path);
            }
        }
        for entry in std::fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let path = entry.path();
            if self.is_scratch(&path) {
                // Tests that outlived their merger may still write there; the next sweep removes
                // the rest.
                let _ = std::fs::remove_dir_all(&path);
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Runs the tests in a merged worktree. Returns why they failed.
    fn run_tests(&self, task: &BoardTask, at: &Path) -> Result<Option<String>> {
        let Some(MergeTests { command, limit }) = &self.options.tests else { return Ok(None) };
        let board = self.board.path().parent().unwrap_or_else(|| Path::new("."));
        let outputs = Dir::open(board)?.ensure_child(OUTPUTS, FileModes::default())?;
        let name = format!("{}.log", task.id);
        let (output, path) = (outputs.begin_file(&name)?, outputs.path().join(&name));
        let share = |error| Error::io("share", &path, error);
        let mut shell = without_git(Command::new("sh"));
        shell.arg("-c").arg(command).current_dir(at).env_remove(PASS_VARIABLE);
        shell.env(CEILING_VARIABLE, self.directory());
        shell.env("ENSEMBLE_TASK_ID", task.id.as_str()).process_group(0).stdin(Stdio::null());
        shell.stdout(output.try_clone().map_err(share)?).stderr(output);
        let child = shell.spawn().map_err(|error| Error::io("run tests in", at, error))?;
        let ended = GitProcess(child).wait_until(Instant::now() + *limit);
        self.board.waited();
        let why = match ended {
            Ok(status) if status.success() => return Ok(None),
            Ok(status) => format!("ended with {status}"),
            Err(_) => format!("did not end within {} s and were stopped", limit.as_secs()),
        };
        let said = read_end(&path, TESTS_TOLD_BYTES as u64)
            .map_err(|error| Error::io("read", &path, error))?;
        let said = last_bytes(&said, TESTS_TOLD_BYTES);
        Ok(Some(format!(
            "the tests (`{command}`) {why}; the full output is in {}\n{said}",
            path.display()
        )))
    }
}

fn read_end(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let Ok(Some((mut file, stat))) = open_file(path) else { return Ok(Vec::new()) };
    file.seek(SeekFrom::Start(stat.bytes.saturating_sub(bytes_max)))?;
    let mut end = Vec::new();
    file.take(bytes_max).read_to_end(&mut end)?;
    Ok(end)
}

/// Whether only another host can do this.
fn is_elsewhere(error: &Error) -> bool {
    let fault = error.area().map(|error: &WorktreeError| &error.fault);
    matches!(fault, Some(WorktreeFault::OtherHost { .. } | WorktreeFault::RemoteMoved { .. }))
}

/// The worktree of a merge, which is removed when this is dropped.
struct ScratchWorktree<'a> {
    worktrees: &'a Worktrees,
    /// Held by git while it merges: its hooks may take long, and must not keep others from claiming.
    merging: &'a FileLock,
    path: PathBuf,
}

impl<'a> ScratchWorktree<'a> {
    fn new(
        worktrees: &'a Worktrees,
        merging: &'a FileLock,
        task: &BoardTask,
        at: &str,
    ) -> Result<Self> {
        let name = format!("{SCRATCH}{}-{}", task.id, std::process::id());
        let path = worktrees.ensure_directory()?.join(name);
        let words = ["worktree", "add", "--quiet", "--detach"].map(OsStr::new);
        let arguments: Vec<&OsStr> =
            words.into_iter().chain([path.as_os_str(), OsStr::new(at)]).collect();
        worktrees.repository().under(&worktrees.lock()?).run(&arguments)?;
        worktrees.run_checkout_hook(&path, at);
        Ok(Self { worktrees, merging, path })
    }

    fn merge(&self, task: &BoardTask, commit: &str) -> Result<MergeAttempt> {
        let git = &self.worktrees.git;
        let what = task.description.as_deref().unwrap_or_default();
        let what = what.lines().next().unwrap_or_default();
        let id = &task.id;
        let text = format!("Merge task {id}: {what}\n\nEnsemble-Task: {id}\n{TRAILER}: {commit}\n");
        let mut call = git.at(&self.path).under(self.merging).set("rerere.enabled=false");
        if git.at(&self.path).run(&["var", "GIT_COMMITTER_IDENT"]).is_err() {
            for (name, value) in IDENTITY {
                call = call.with(name, value);
            }
        }
        let (code, words) =
            call.attempt(&["merge", "--no-ff", "--quiet", "-m", text.as_str(), commit])?;
        match code {
            Some(0) => git.at(&self.path).run(&["rev-parse", "HEAD"]).map(MergeAttempt::Merged),
            // A conflict, or the user's hook rejected the merge.
            Some(1) => {
                let unmerged = ["diff", "--name-only", "--diff-filter=U", "-z"];
                let files =
                    git.at(&self.path).run(&unmerged)?.trim_end_matches('\0').replace('\0', ", ");
                let head = git.at(&self.path).run(&["rev-parse", "--short", "HEAD"])?;
                // The copy of a remote's branch is what the coder merges to repair that.
                let head = match &self.worktrees.options.remote {
                    Some(remote) => {
                        format!("{remote}/{} at {head}", self.worktrees.integration_branch()?)
                    }
                    None => head,
                };
                Ok(MergeAttempt::Conflict(match files.is_empty() {
                    true => format!("git refused the merge into {head}: {words}"),
                    false => format!("the merge into {head} has conflicts in {files}"),
                }))
            }
            _ => {
                let (command, path) = ("merge".to_owned(), self.path.clone());
                Err(GitError::Failed { command, path, detail: words }.into())
            }
        }
    }
}

impl Drop for ScratchWorktree<'_> {
    fn drop(&mut self) {
        // The next merge finds what remains.
        if let Ok(lock) = self.worktrees.lock() {
            let _ = self.worktrees.remove_entry(&lock, &self.path);
        }
    }
}
