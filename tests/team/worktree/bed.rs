//! A repository with a board, in its own directory, and agents that really commit.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::sim::SimRecorder;
use ensemble_team::board::{
    Board, BoardOptions, BoardTask, GrantedClaim, LockedBoard, NewAgent, NewTask, TaskStatus,
    is_fenced,
};
use ensemble_team::proto::agent;
use ensemble_team::proto::task::TaskHolder;
use ensemble_team::worktree::{
    ClaimedTask, MergeOutcome, ReviewDecision, WorktreeOptions, Worktrees, is_not_allowed,
};

pub(crate) use crate::git::{ISOLATED, git};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) struct Bed {
    pub(crate) home: tempfile::TempDir,
    pub(crate) board: Board,
    pub(crate) memory: Arc<SimRecorder>,
    /// Whether branches go through the remote `origin`.
    pub(crate) has_remote: bool,
}

impl Bed {
    /// A repository on branch `main` with one commit, and an empty board.
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        make_repository(home.path());
        let board = Board::create(home.path(), board_options()).unwrap();
        Self { home, board, memory: Arc::default(), has_remote: false }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    pub(crate) fn options(&self) -> WorktreeOptions {
        let mut options = options().with_recorder(Arc::<SimRecorder>::clone(&self.memory));
        options.remote = self.has_remote.then(|| "origin".to_owned());
        options
    }

    pub(crate) fn trees(&self) -> Worktrees {
        Worktrees::open(&self.board, self.options()).unwrap()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T>) -> T {
        let mut locked = self.board.lock().unwrap();
        let result = change(&mut locked).unwrap();
        locked.commit().unwrap();
        result
    }

    pub(crate) fn agent(&self, id: &str, role: &str) -> TaskHolder {
        self.change(|board| {
            let holder = board.register(&NewAgent::new(name(id), role))?;
            board.agent_event(&holder, agent::Event::Ready)?;
            Ok(holder)
        })
    }

    pub(crate) fn task(&self, id: &str) {
        let task = NewTask::new(name(id), format!("do {id}"), "specs/x.md", "tests pass");
        self.change(|board| board.add_task(&task));
    }

    pub(crate) fn on_board(&self, id: &str) -> BoardTask {
        self.board.read().unwrap().task(&name(id)).unwrap().clone()
    }

    pub(crate) fn status(&self, id: &str) -> TaskStatus {
        self.on_board(id).status
    }

    /// A new task, if there is none by this name, claimed by a new coder.
    pub(crate) fn claimed(&self, id: &str, coder: &str) -> (TaskHolder, ClaimedTask) {
        if self.board.read().unwrap().task(&name(id)).is_none() {
            self.task(id);
        }
        let coder = self.agent(coder, "coder");
        let claimed = self.trees().claim_task(&name(id), &coder).unwrap();
        (coder, claimed)
    }

    /// By a coder and a reviewer of the task's own.
    pub(crate) fn approved(&self, id: &str, file: &str, content: &str) -> ClaimedTask {
        let (_, claimed) = self.claimed(id, &format!("coder-{id}"));
        commit(&claimed.path, file, content);
        self.trees().submit(&name(id), &claimed.granted.holder).unwrap();
        self.approve(id);
        claimed
    }

    pub(crate) fn review(&self, id: &str) -> GrantedClaim {
        let count = self.on_board(id).history.len();
        let reviewer = self.agent(&format!("reviewer-{id}-{count}"), "code-reviewer");
        self.trees().claim_review(&name(id), &reviewer).unwrap().granted
    }

    pub(crate) fn approve(&self, id: &str) {
        let review = self.review(id);
        self.trees().verdict(&name(id), &review.holder, None, &ReviewDecision::Approve).unwrap();
    }

    pub(crate) fn refs(&self, below: &str) -> Vec<String> {
        let all = git(self.home.path(), &["for-each-ref", "--format=%(refname)", below]);
        all.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file_in(&self, commit: &str, file: &str) -> String {
        git(self.home.path(), &["show", &format!("{commit}:{file}")])
    }

    pub(crate) fn directories(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.home.path().join(".worktrees")).into_iter().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn make_repository(home: &Path) {
    git(home, &["init", "--quiet", "-b", "main"]);
    std::fs::write(home.join("README"), "one\n").unwrap();
    std::fs::write(home.join(".gitignore"), "/.ensemble/\n*.log\n").unwrap();
    git(home, &["add", "."]);
    git(home, &["commit", "--quiet", "-m", "begin"]);
}

pub(crate) fn board_options() -> BoardOptions {
    BoardOptions::new("test").with_durability(Durability::Process)
}

/// With short waits, and without user settings.
pub(crate) fn options() -> WorktreeOptions {
    let mut options = WorktreeOptions::new("test").with_durability(Durability::Process);
    options.backoff = Duration::from_millis(20);
    options.variables.extend(ISOLATED.map(|(name, value)| (name.into(), value.into())));
    options
}

pub(crate) fn commit(at: &Path, file: &str, content: &str) {
    std::fs::write(at.join(file), content).unwrap();
    git(at, &["add", "."]);
    git(at, &["commit", "--quiet", "-m", &format!("write {file}")]);
}

#[track_caller]
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(error) if is_not_allowed(&error) || is_fenced(&error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn done(merged: MergeOutcome) -> String {
    match merged {
        MergeOutcome::Done { commit, .. } => commit,
        other => panic!("{other:?}"),
    }
}
