//! Errors of git and of worktrees. Callers find them by [`Error::area`](ensemble_core::Error::area).

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_core::{AreaError, Error};

use crate::board::{BoardError, TaskStatus};

/// Most characters of a reason that is shown on the board.
const REASON_CHARS_MAX: usize = 500;
/// How many changed files an error names.
const NAMED_MAX: usize = 5;

/// git did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// git exited with an error.
    #[error("`git {command}` failed in {}: {detail}", path.display())]
    Failed {
        /// The command, without the settings that all have.
        command: String,
        /// The directory in which git ran.
        path: PathBuf,
        /// The message that git printed.
        detail: String,
    },
    /// git ran too long and was stopped.
    #[error(
        "`git {command}` failed in {}: it did not end within {} s and was stopped",
        path.display(),
        limit.as_secs()
    )]
    Overdue {
        /// The command, without the settings that all have.
        command: String,
        /// The directory in which git ran.
        path: PathBuf,
        /// The time limit of a git command.
        limit: Duration,
    },
    /// The HEAD of a worktree names no commit.
    #[error("the HEAD of {} names no commit", path.display())]
    NoCommit {
        /// The worktree.
        path: PathBuf,
    },
    /// A directory of a worktree is its own repository, so its content cannot be saved.
    #[error("`{inner}` in {} is a separate repository", path.display())]
    InnerRepository {
        /// The worktree.
        path: PathBuf,
        /// The inner repository, relative to the worktree.
        inner: String,
    },
}

impl AreaError for GitError {}

/// A worktree or a branch does not allow the operation now; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation}: {fault}")]
#[non_exhaustive]
pub struct WorktreeError {
    /// The refused operation.
    pub operation: Operation,
    /// The condition that is not met.
    pub fault: WorktreeFault,
}

impl AreaError for WorktreeError {
    fn is_transient(&self) -> bool {
        matches!(self.fault, WorktreeFault::RemoteMoved { .. })
    }
}

impl WorktreeError {
    /// The error of an operation that meets an fault.
    #[must_use]
    pub const fn new(operation: Operation, fault: WorktreeFault) -> Self {
        Self { operation, fault }
    }
}

/// An operation that [`WorktreeError`] refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Operation {
    /// A coder submits its task.
    #[error("submit task `{0}`")]
    Submit(Name),
    /// A reviewer claims or checks a task.
    #[error("review task `{0}`")]
    Review(Name),
    /// A reviewer gives its verdict.
    #[error("judge task `{0}`")]
    Judge(Name),
    /// An approved task is merged.
    #[error("merge task `{0}`")]
    Merge(Name),
    /// An agent claims any task.
    #[error("claim a task")]
    Claim,
    /// A branch is created.
    #[error("make branch `{0}`")]
    MakeBranch(String),
    /// Work begins at the integration branch.
    #[error("begin at branch `{0}`")]
    Begin(String),
    /// A branch is removed.
    #[error("remove branch `{0}`")]
    RemoveBranch(String),
    /// Branches are fetched from the remote, or pushed there.
    #[error("share branches")]
    Share,
}

/// The condition that an operation needs and that is not met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorktreeFault {
    /// The worktree is on another branch than its task's.
    #[error("the worktree is not on its branch: `git switch -C {branch}` takes HEAD there")]
    OtherBranch {
        /// The branch of the task.
        branch: String,
    },
    /// The branch has no commit since the claim.
    #[error("nothing was committed since it began: commit the work, or declare that there is none")]
    NothingCommitted,
    /// The worktree is missing.
    #[error("there is no worktree at {}", path.display())]
    NoWorktree {
        /// The expected place of the worktree.
        path: PathBuf,
    },
    /// git does not work in the worktree any more.
    #[error("git does not work in {}", path.display())]
    BrokenWorktree {
        /// The worktree.
        path: PathBuf,
    },
    /// Another host of the team has the worktree.
    #[error("its worktree is on host {host}: run this there")]
    OtherHost {
        /// The host.
        host: String,
    },
    /// The worktree's HEAD names no commit.
    #[error("the worktree has no commit")]
    NoHead,
    /// The worktree is at another commit than the submitted one.
    #[error(
        "{} was submitted, but the worktree is at {head}",
        submitted.as_deref().unwrap_or("nothing")
    )]
    OtherCommit {
        /// The submitted commit.
        submitted: Option<String>,
        /// The commit of the worktree.
        head: String,
    },
    /// Another commit was submitted since the caller looked.
    #[error("another commit was submitted since")]
    SubmittedAgain,
    /// The worktree has changes that are not committed.
    #[error("not committed in the worktree: {}", named(changed))]
    NotClean {
        /// The changed files.
        changed: Vec<String>,
    },
    /// The task has the wrong status.
    #[error("its status is {}", status.as_str())]
    OtherStatus {
        /// The status of the task.
        status: TaskStatus,
    },
    /// The repository lacks the submitted commit.
    #[error("there is no commit `{commit}` in the repository")]
    CommitMissing {
        /// The submitted commit.
        commit: String,
    },
    /// Other processes moved the integration branch during each try.
    #[error("the integration branch keeps moving: try again")]
    KeepsMoving,
    /// The integration branch is checked out, so a merge must not move it.
    #[error(
        "branch `{branch}` is checked out at {}: check out another branch there (`git switch --detach`), or name another one as `integration_branch`",
        path.display()
    )]
    IntegrationCheckedOut {
        /// The integration branch.
        branch: String,
        /// The checkout.
        path: PathBuf,
    },
    /// The branch is checked out elsewhere.
    #[error("it is checked out at {}", path.display())]
    CheckedOut {
        /// The checkout.
        path: PathBuf,
    },
    /// The repository has no commit.
    #[error("the repository has no commit yet: make the first one")]
    EmptyRepository,
    /// The blackboard is outside of a git repository.
    #[error("there is no git repository around the blackboard")]
    NoRepository,
    /// The repository has no such git remote.
    #[error("there is no git remote `{remote}`: make one with `git remote add {remote} URL`")]
    NoRemote {
        /// The remote that was configured.
        remote: String,
    },
    /// Another host has moved the branch on the remote since it was read.
    #[error("another host has moved `{branch}` on the remote: try again")]
    RemoteMoved {
        /// The branch.
        branch: String,
    },
    /// Another branch is where the branch would have to be.
    #[error(
        "branch `{other}` is in the way: `git branch -m {other} OTHER_NAME` gives it another name"
    )]
    BranchInTheWay {
        /// The other branch.
        other: String,
    },
    /// The integration branch lacks work that was merged into it.
    #[error(
        "{} commit {commit}, the merge of task `{task}`: {} restores it",
        if *exists { "the branch lacks" } else { "the branch is gone, and with it" },
        restoring(branch, commit, *exists, *can_move)
    )]
    MergeMissing {
        /// The integration branch.
        branch: String,
        /// The task that was merged last of those that it lacks.
        task: Name,
        /// The commit that merged the task.
        commit: String,
        /// Whether there is a branch of that name.
        exists: bool,
        /// Whether nothing is lost if the branch moves to that commit.
        can_move: bool,
    },
    /// git does not allow the name of the branch.
    #[error("git allows no branch of this name: supersede the task by one with another name")]
    BranchName,
}

impl WorktreeFault {
    /// The fault of a worktree that is not there, or that is damaged.
    pub(crate) fn of_missing(path: PathBuf) -> Self {
        match path.is_dir() {
            true => Self::BrokenWorktree { path },
            false => Self::NoWorktree { path },
        }
    }

    /// The error of an operation that meets this fault.
    pub(crate) fn to(self, operation: Operation) -> Error {
        WorktreeError::new(operation, self).into()
    }
}

/// Whether the board or a worktree does not allow the operation now. Another task may be allowed.
pub fn is_not_allowed(error: &Error) -> bool {
    matches!(error.area(), Some(BoardError::NotAllowed { .. }))
        || error.area::<WorktreeError>().is_some()
}

/// The reason of a failure on one line: of git's output the last line, in which git says what is wrong.
pub fn short_reason(error: &Error) -> String {
    let text = match error.area() {
        Some(GitError::Failed { command, detail, .. }) => {
            let said = detail.lines().rev().find(|line| !line.trim().is_empty());
            let verb: Vec<&str> = command.split(' ').take(2).collect();
            format!("`git {}` failed: {}", verb.join(" "), said.unwrap_or(detail).trim())
        }
        _ => error.to_string(),
    };
    text.lines().next().unwrap_or_default().chars().take(REASON_CHARS_MAX).collect()
}

fn named(changed: &[String]) -> String {
    let named = changed[..changed.len().min(NAMED_MAX)].join(", ");
    match changed.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The command with which an integration branch has a merge again.
fn restoring(branch: &str, commit: &str, exists: bool, can_move: bool) -> String {
    match (exists, can_move) {
        (false, _) => format!("`git branch {branch} {commit}`"),
        (true, true) => format!("`git branch -f {branch} {commit}`"),
        (true, false) => {
            format!("`git switch {branch} && git merge {commit}`, then `git switch -`,")
        }
    }
}
