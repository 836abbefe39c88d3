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
pub enum GitError {
    #[error("`git {command}` failed in {}: {detail}", path.display())]
    Failed {
        command: String,
        path: PathBuf,
        /// The message that git printed.
        detail: String,
    },
    #[error(
        "`git {command}` failed in {}: it did not end within {} s and was stopped",
        path.display(),
        limit.as_secs()
    )]
    Overdue {
        command: String,
        path: PathBuf,
        /// The time limit of a git command.
        limit: Duration,
    },
    #[error("the HEAD of {} names no commit", path.display())]
    NoCommit { path: PathBuf },
    #[error("`{inner}` in {} is a separate repository", path.display())]
    InnerRepository { path: PathBuf, inner: String },
}

impl AreaError for GitError {}

/// A worktree or a branch does not allow the operation now; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation}: {fault}")]
pub struct WorktreeError {
    pub operation: Operation,
    pub fault: WorktreeFault,
}

impl AreaError for WorktreeError {
    fn is_transient(&self) -> bool {
        matches!(self.fault, WorktreeFault::RemoteMoved { .. })
    }
}

impl WorktreeError {
    pub const fn new(operation: Operation, fault: WorktreeFault) -> Self {
        Self { operation, fault }
    }
}

/// An operation that [`WorktreeError`] refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Operation {
    #[error("submit task `{0}`")]
    Submit(Name),
    #[error("review task `{0}`")]
    Review(Name),
    #[error("judge task `{0}`")]
    Judge(Name),
    #[error("merge task `{0}`")]
    Merge(Name),
    #[error("claim a task")]
    Claim,
    #[error("make branch `{0}`")]
    MakeBranch(String),
    #[error("begin at branch `{0}`")]
    Begin(String),
    #[error("remove branch `{0}`")]
    RemoveBranch(String),
    #[error("share branches")]
    Share,
}

/// The condition that an operation needs and that is not met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorktreeFault {
    #[error("the worktree is not on its branch: `git switch -C {branch}` takes HEAD there")]
    OtherBranch { branch: String },
    #[error("nothing was committed since it began: commit the work, or declare that there is none")]
    NothingCommitted,
    #[error("there is no worktree at {}", path.display())]
    NoWorktree { path: PathBuf },
    #[error("git does not work in {}", path.display())]
    BrokenWorktree { path: PathBuf },
    #[error("its worktree is on host {host}: run this there")]
    OtherHost { host: String },
    #[error("the worktree has no commit")]
    NoHead,
    #[error(
        "{} was submitted, but the worktree is at {head}",
        submitted.as_deref().unwrap_or("nothing")
    )]
    OtherCommit { submitted: Option<String>, head: String },
    #[error("another commit was submitted since")]
    SubmittedAgain,
    #[error("not committed in the worktree: {}", named(changed))]
    NotClean { changed: Vec<String> },
    #[error("its status is {}", status.as_str())]
    OtherStatus { status: TaskStatus },
    #[error("there is no commit `{commit}` in the repository")]
    CommitMissing { commit: String },
    #[error("the integration branch keeps moving: try again")]
    KeepsMoving,
    #[error(
        "branch `{branch}` is checked out at {}: check out another branch there (`git switch --detach`), or name another one as `integration_branch`",
        path.display()
    )]
    IntegrationCheckedOut { branch: String, path: PathBuf },
    #[error("it is checked out at {}", path.display())]
    CheckedOut { path: PathBuf },
    #[error("the repository has no commit yet: make the first one")]
    EmptyRepository,
    #[error("there is no git repository around the blackboard")]
    NoRepository,
    #[error("there is no git remote `{remote}`: make one with `git remote add {remote} URL`")]
    NoRemote { remote: String },
    #[error("another host has moved `{branch}` on the remote: try again")]
    RemoteMoved { branch: String },
    #[error(
        "branch `{other}` is in the way: `git branch -m {other} OTHER_NAME` gives it another name"
    )]
    BranchInTheWay { other: String },
    #[error(
        "{} commit {commit}, the merge of task `{task}`: {} restores it",
        if *exists { "the branch lacks" } else { "the branch is gone, and with it" },
        restoring(branch, commit, *exists, *can_move)
    )]
    MergeMissing {
        branch: String,
        /// The task that was merged last of those that it lacks.
        task: Name,
        commit: String,
        /// Whether there is a branch of that name.
        exists: bool,
        /// Whether nothing is lost if the branch moves to that commit.
        can_move: bool,
    },
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

    pub(crate) fn to(self, operation: Operation) -> Error {
        WorktreeError::new(operation, self).into()
    }
}

/// Whether the board or a worktree does not allow the operation now. Another task may be allowed.
pub fn is_not_allowed(error: &Error) -> bool {
    matches!(error.area(), Some(BoardError::NotAllowed { .. }))
        || error.area::<WorktreeError>().is_some()
}

/// The reason of a failure on one line: of git's output the last line that is an error, or otherwise the last one.
pub fn short_reason(error: &Error) -> String {
    let text = match error.area() {
        Some(GitError::Failed { command, detail, .. }) => {
            let is_error =
                |line: &&str| ["fatal: ", "error: "].iter().any(|it| line.starts_with(it));
            // Advice on what to do with another process's lock follows its path.
            let said = detail.lines().rev().find(is_error);
            let said = said.or_else(|| detail.lines().rev().find(|line| !line.trim().is_empty()));
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
