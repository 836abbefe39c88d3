//! The git worktrees of tasks, one each, from the claim to the merge (seed 001 and its siblings).
//!
//! ```text
//! claim_task   UNCLAIMED, or REJECTED and another coder   a fresh worktree at the integration branch
//!              REJECTED and the same coder                the existing worktree
//!              INTEGRATION_FAILED                         the existing worktree
//! submit       its holder, HEAD of its branch, clean      READY_FOR_REVIEW
//! verdict      its reviewer, that commit, clean           APPROVED or REJECTED
//! merge        in a separate worktree, tests, then        MERGED; worktree and branch are removed
//!              the branch moves by compare-and-swap       or INTEGRATION_FAILED; no branch moves
//! ```
//!
//! *Nothing is lost.* A worktree and its branch are removed if the integration branch contains all
//! their commits. Other content, committed or not, is first saved under
//! `refs/ensemble/salvage/<task>/<epoch>`. If something cannot be saved (a repository inside the
//! worktree), the directory is kept under another name. Files that git ignores are listed and
//! removed.
//!
//! *Two locks.* A process that changes refs or worktrees holds `ensemble.lock` in the repository's
//! own directory. The lock is also git's standard input. If its holder is killed, it stays locked
//! until git has ended, so no process sees a half-made worktree. `ensemble-merge.lock` is held for
//! a whole merge. The board is locked inside both, briefly, and no program runs in the meantime.
//!
//! *A remote.* Hosts that share a blackboard may share branches through a git remote ([`WorktreeOptions::remote`]). Then the
//! remote's integration branch is the one that counts, and a task's branch and saved work are pushed (`remote`).
//!
//! *A crash* at any point leaves a state that [`Worktrees::recover`] completes or undoes.
//!
//! The user's own checkout, its index and its HEAD are never touched. A merge into a checked-out
//! branch is rejected, as git rejects a push to one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::admission::{Doorkeeper, TaskAct};
use crate::board::{Board, BoardTask, is_branch};
use ensemble_core::durable::{Durability, FileLock, write_document};
use ensemble_core::event_log::{NullRecorder, Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

mod changes;
mod claim;
mod error;
mod git;
mod integration;
mod list;
mod mend;
mod merge;
mod prepare;
mod recover;
mod remote;
mod retire;
mod salvage;
mod submit;
mod verify;

pub use changes::changed_files;
pub use claim::{CLAIM_TRIES_MAX, ClaimedTask, ReviewClaimed};
pub use error::{GitError, Operation, WorktreeError, WorktreeFault, is_not_allowed, short_reason};
pub use merge::{CheckedOut, MergeOutcome, MergeTests};
pub use recover::WorktreeFinding;
pub use remote::{REMOTE_LIMIT, RemoteState, is_remote};
pub use retire::RetiredWorktree;
pub use salvage::{SALVAGE, Salvage};
pub use submit::ReviewDecision;
pub use verify::{AgentDuty, UnfitReason, VerifiedAgent};

pub(crate) use git::CEILING_VARIABLE;
use git::GitRepository;
pub use git::without_git;
use list::shown_path;
use prepare::epoch;
use remote::RemoteBranches;

/// The branch for approved work, if neither the board nor a configuration names one. It is created
/// at HEAD when the first worktree is needed.
pub const INTEGRATION_DEFAULT: &str = "integration";
pub const GIT_LIMIT: Duration = Duration::from_secs(300);
/// How long to wait for other processes that change refs or worktrees.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The lock for changing refs and worktrees, in the repository's own directory.
const LOCK: &str = "ensemble.lock";

#[derive(Clone)]
pub struct WorktreeOptions {
    pub actor: String,
    /// The branch for approved work. Otherwise it is the board's `config.integration_branch`, or
    /// [`INTEGRATION_DEFAULT`] by default.
    pub integration: Option<String>,
    /// The git remote through which the hosts of a team share branches; `None` if each has its own.
    pub remote: Option<String>,
    /// Time limit of a git command that asks the remote.
    pub remote_limit: Duration,
    /// The state directory, where it is noted that the remote does not answer ([`SilentPeer`](crate::silence::SilentPeer)).
    pub state_dir: Option<PathBuf>,
    /// Tests that must pass before the integration branch moves.
    pub tests: Option<MergeTests>,
    pub git_limit: Duration,
    pub patience: Duration,
    /// Longest wait before a claim is tried again; the shortest is half of it.
    pub backoff: Duration,
    pub durability: Durability,
    /// Additional variables for git, such as an identity for merges (`GIT_COMMITTER_NAME` …).
    pub variables: Vec<(OsString, OsString)>,
    /// Recorder of salvages and failed claims.
    pub recorder: Arc<dyn Recorder>,
    /// Asked before an agent takes a task up or hands it in.
    pub door: Option<Arc<dyn Doorkeeper>>,
}

impl WorktreeOptions {
    pub fn new(actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            integration: None,
            remote: None,
            remote_limit: REMOTE_LIMIT,
            state_dir: None,
            tests: None,
            git_limit: GIT_LIMIT,
            patience: PATIENCE,
            backoff: claim::BACKOFF,
            durability: Durability::default(),
            variables: Vec::new(),
            recorder: Arc::new(NullRecorder),
            door: None,
        }
    }
}

ensemble_core::shared_setters!(WorktreeOptions: durability, recorder);

/// The worktrees of a board's tasks. Cheap to create; it holds nothing open.
#[derive(Clone)]
pub struct Worktrees {
    board: Board,
    /// Absolute path without links.
    project: PathBuf,
    /// The repository's own directory, which all its worktrees share.
    common: PathBuf,
    git: GitRepository,
    options: WorktreeOptions,
}

impl Worktrees {
    pub fn open(board: &Board, options: WorktreeOptions) -> Result<Self> {
        let project = std::fs::canonicalize(board.project())
            .map_err(|error| Error::io("find project", board.project(), error))?;
        let git = GitRepository {
            limit: options.git_limit,
            durability: options.durability,
            variables: options.variables.clone(),
        };
        let common = git::common_directory(&git, &project)?;
        Ok(Self { board: board.clone(), project, common, git, options })
    }

    fn check(&self, act: TaskAct, task: &Name, agent: &Name) -> Result<()> {
        self.options.door.as_ref().map_or(Ok(()), |door| door.check(act, task.as_str(), agent))
    }

    pub(crate) const fn has_tests(&self) -> bool {
        self.options.tests.is_some()
    }

    /// Path of a task's worktree, whether it exists or not.
    pub fn path_of(&self, task: &BoardTask) -> PathBuf {
        shown_path(&self.project.join(self.board.worktree_of(task)))
    }

    /// Refuses an operation on a submitted commit that only another host has.
    fn must_be_reachable(
        &self,
        task: &BoardTask,
        operation: Operation,
        seen: Option<&RemoteBranches>,
    ) -> Result<()> {
        let submitted = task.review_commit.as_ref().filter(|_| seen.is_some());
        match submitted.map(|commit| self.commit_at(commit)).transpose()?.flatten() {
            Some(_) => Ok(()),
            None => self.must_be_here(task, operation),
        }
    }

    /// Refuses an operation on a worktree that another host has.
    fn must_be_here(&self, task: &BoardTask, operation: Operation) -> Result<()> {
        match self.board.other_host(task) {
            None => Ok(()),
            Some(host) => Err(WorktreeFault::OtherHost { host: host.to_owned() }.to(operation)),
        }
    }

    pub fn branch_of(task: &Name) -> String {
        format!("task/{task}")
    }

    /// The commit of a task's worktree; `None` if it has no worktree.
    pub fn head(&self, task: &Name) -> Result<Option<String>> {
        let state = self.board.read()?;
        let task = state.require_task(task)?;
        let path = self.path_of(task);
        Ok(self.entry_at(&path)?.filter(|_| path.exists()).and_then(|entry| entry.head))
    }

    /// The branch for approved work. It becomes part of refspecs, so only the name of a branch passes.
    pub fn integration_branch(&self) -> Result<String> {
        let configured = match &self.options.integration {
            Some(branch) => Some(branch.clone()),
            None => self.board.read()?.config.integration_branch,
        };
        let branch = configured.unwrap_or_else(|| INTEGRATION_DEFAULT.to_owned());
        match is_branch(&branch) {
            true => Ok(branch),
            false => Err(WorktreeFault::BranchName.to(Operation::MakeBranch(branch))),
        }
    }

    /// Directory of the worktrees, without links.
    fn directory(&self) -> PathBuf {
        let path = self.project.join(self.board.worktrees());
        path.canonicalize().unwrap_or(path)
    }

    /// Directory of the worktrees, created if needed. A `.gitignore` hides it from the project's
    /// git.
    fn ensure_directory(&self) -> Result<PathBuf> {
        let path = self.directory();
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::io("create directory", &path, error))?;
        let hidden = path.join(".gitignore");
        let is_new = hidden.symlink_metadata().is_err();
        // Our `.gitignore` would hide what is new among them.
        let listed = ["ls-files", "--", ".", ":!.*"];
        let tracked = || self.git.at(&path).with(CEILING_VARIABLE, "").run(&listed);
        if self.project.starts_with(&path) || (is_new && tracked().is_ok_and(|it| !it.is_empty())) {
            let detail = "has files of the project: name another directory in ensemble.yaml";
            return Err(Error::malformed(&path, "worktrees.directory", detail));
        }
        if is_new {
            let text = b"# Worktrees of tasks, made and removed by Ensemble.\n*\n";
            write_document(&hidden, text, Durability::Process)?;
        }
        Ok(path)
    }

    /// A command about the repository as a whole. Whether git trusts the repository was asked when it was opened.
    fn repository(&self) -> git::GitCall<'_> {
        self.git.at(&self.common).with("GIT_DIR", &self.common)
    }

    fn lock(&self) -> Result<FileLock> {
        FileLock::acquire(&self.common.join(LOCK), self.options.patience)
    }

    fn commit_at(&self, name: &str) -> Result<Option<String>> {
        let wanted = format!("{name}^{{commit}}");
        self.repository().ask(&["rev-parse", "--verify", "--quiet", &wanted])
    }

    fn is_ancestor(&self, old: &str, new: &str) -> Result<bool> {
        Ok(self.repository().ask(&["merge-base", "--is-ancestor", old, new])?.is_some())
    }

    fn record(&self, kind: &str, data: serde_json::Value) {
        self.options.recorder.record(kind, &self.options.actor, data);
    }

    fn tell_retired(&self, task: &BoardTask, path: &Path, retired: &RetiredWorktree) {
        let (task, epoch) = (&task.id, epoch(task));
        if let Some(Salvage { reference, commit, .. }) = &retired.salvage {
            let data = json!({
                "task": task, "epoch": epoch, "ref": reference, "commit": commit,
                "ignored": retired.ignored,
            });
            self.record(types::WORKTREE_SALVAGED, data);
        }
        if let Some((place, why)) = &retired.kept {
            let data =
                json!({ "task": task, "epoch": epoch, "from": path, "path": place, "why": why });
            self.record(types::WORKTREE_KEPT, data);
        }
    }
}
