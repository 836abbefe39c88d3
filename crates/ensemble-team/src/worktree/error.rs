//! Errors of git and of worktrees. Callers find them by [`Error::area`](ensemble_core::Error::area).

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_core::{AreaError, Error};

use crate::board::{BoardError, TaskStatus};

const REASON_CHARS_MAX: usize = 500;
const NAMED_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    #[error("`git {command}` failed in {}: {detail}", path.display())]
    Failed { command: String, path: PathBuf, detail: String },
    #[error(
        "`git {command}` failed in {}: it did not end within {} s and was stopped",
        path.display(),
        limit.as_secs()
    )]
    Overdue { command: String, path: PathBuf, limit: Duration },
    #[error("the HEAD of {} names no commit", path.display())]
    NoCommit { path: PathBuf },
    #[error("`{inner}` in {} is a separate repository", path.display())]
    InnerRepository { path: PathBuf, inner: String },
}

impl AreaError for GitError {}

/// What git and its helpers say when something outside of Ensemble is missing or set so, and what helps.
const REMEDIES: [(&[&str], &str); 8] = [
    (
        &["failed to sign the data", "load public key", "gpg failed to sign"],
        "git is set to sign commits: make the key usable without a question, or `git config commit.gpgsign false` in this repository",
    ),
    (
        &[
            "filter lfs failed",
            "git-lfs: not found",
            "git-lfs: command not found",
            "'lfs' is not a git command",
        ],
        "install git-lfs, then `git lfs install`: files of this repository are stored by it",
    ),
    (
        &["smudge filter", "clean filter"],
        "install the program of that filter, which .gitattributes names",
    ),
    (
        &["does not have a GPG signature", "does not have a valid"],
        "agents do not sign: `git config merge.verifySignatures false` in this repository",
    ),
    (
        &["not a git repository"],
        "`git init` and a first commit make one: tasks on the blackboard have worktrees",
    ),
    (
        &[".lock': File exists"],
        "a killed git has left its lock: remove that file, if no git runs in the repository",
    ),
    (
        &[
            "bad object",
            "missing blob",
            "missing tree",
            "unable to read",
            "is corrupt",
            "object file",
        ],
        "the repository is damaged: `git fsck` says what is missing",
    ),
    (&["bad config"], "correct that setting of git: `git config --edit`"),
];

impl GitError {
    pub fn remedy(&self) -> Option<&'static str> {
        let Self::Failed { detail, .. } = self else { return None };
        let fits = |words: &[&str]| words.iter().any(|word| detail.contains(word));
        REMEDIES.iter().find(|(words, _)| fits(words)).map(|(_, help)| *help)
    }
}

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorktreeFault {
    #[error(
        "the worktree is not on its branch: {} takes HEAD there",
        switching(branch, head, *is_behind)
    )]
    OtherBranch {
        branch: String,
        head: String,
        /// Whether HEAD has all commits of the branch.
        is_behind: bool,
    },
    #[error("nothing was committed since it began: commit the work, or declare that there is none")]
    NothingCommitted,
    #[error("there is no worktree at {}", path.display())]
    NoWorktree { path: PathBuf },
    #[error("git does not work in {}", path.display())]
    BrokenWorktree { path: PathBuf },
    #[error("there is a worktree of another repository at {}: name another directory as `worktrees: {{directory: …}}`", path.display())]
    OtherRepository { path: PathBuf },
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
        "branch `{branch}` is checked out at {}: finish any rebase or bisection there and check out another branch (`git switch --detach`), or name another one as `integration_branch`",
        path.display()
    )]
    IntegrationCheckedOut { branch: String, path: PathBuf },
    #[error("it is checked out at {}", path.display())]
    CheckedOut { path: PathBuf },
    #[error("the repository has no commit yet: make the first one")]
    EmptyRepository,
    #[error(
        "{} has no commit that can be read: `git switch` another branch in the project, or `git fsck` says what is damaged",
        if branch.is_empty() { "HEAD" } else { branch.trim_start_matches("refs/heads/") }
    )]
    UnbornHead { branch: String },
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
    #[error(
        "git allows no branch of this name: supersede the task by one with another name, or set \
         `integration_branch` to another one"
    )]
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

/// The reason of a failure on one line: of git's output the last line that is an error, or otherwise the last one, and
/// what helps if that is known.
pub fn short_reason(error: &Error) -> String {
    let text = match error.area() {
        Some(GitError::Failed { command, detail, .. }) => {
            let is_error =
                |line: &&str| ["fatal: ", "error: "].iter().any(|it| line.starts_with(it));
            // Advice on what to do with another process's lock follows its path.
            // A filter that is missing is named before the last line or after it.
            let is_cause = |line: &&str| line.contains(" filter ") && line.contains("failed");
            let said =
                detail.lines().find(is_cause).or_else(|| detail.lines().rev().find(is_error));
            let said = said.or_else(|| detail.lines().rev().find(|line| !line.trim().is_empty()));
            let verb: Vec<&str> = command.split(' ').take(2).collect();
            format!("`git {}` failed: {}", verb.join(" "), said.unwrap_or(detail).trim())
        }
        _ => error.to_string(),
    };
    let help = error.area().and_then(GitError::remedy).map(|help| format!(": {help}"));
    let line = text.lines().next().unwrap_or_default().chars().take(REASON_CHARS_MAX);
    line.chain(help.unwrap_or_default().chars()).collect()
}

fn named(changed: &[String]) -> String {
    let named = changed[..changed.len().min(NAMED_MAX)].join(", ");
    match changed.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The command with which a task's branch has the commits of HEAD, and loses none.
fn switching(branch: &str, head: &str, is_behind: bool) -> String {
    match is_behind {
        true => format!("`git switch -C {branch}`"),
        false => format!("`git switch {branch} && git merge {head}`"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(detail: &str) -> GitError {
        let (command, path) = ("worktree add --quiet x".to_owned(), PathBuf::from("/p"));
        GitError::Failed { command, path, detail: detail.to_owned() }
    }

    #[test]
    fn what_is_missing_beside_git_has_a_remedy() {
        for (detail, words) in [
            ("error: gpg failed to sign the data:\ngpg: x\nfatal: failed to write", "gpgsign"),
            ("git-lfs filter-process: 1: git-lfs: not found\nfatal: hung up", "git lfs install"),
            ("fatal: a.bin: smudge filter crypt failed", ".gitattributes"),
            ("fatal: Commit f4f9599 does not have a GPG signature.", "verifySignatures"),
            ("fatal: not a git repository (or any of the parent directories): .git", "git init"),
        ] {
            assert!(failed(detail).remedy().is_some_and(|help| help.contains(words)), "{detail}");
        }
        assert_eq!(failed("fatal: cannot lock ref").remedy(), None);
    }

    #[test]
    fn a_short_reason_names_the_filter_that_failed() {
        let lines = ["fatal: the remote end hung up", "fatal: a.bin: smudge filter lfs failed"];
        for detail in [lines.join("\n"), format!("{}\n{}", lines[1], lines[0])] {
            let reason = short_reason(&failed(&detail).into());
            let said = "`git worktree add` failed: fatal: a.bin: smudge filter lfs failed: install";
            assert!(reason.starts_with(said), "{reason}");
        }
    }
}
