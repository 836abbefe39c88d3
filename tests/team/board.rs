//! The blackboard through its public interface: rules, stories of whole tasks, boards of other
//! programs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Timestamp;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, LeaseWatch};
use ensemble_core::sim::{SimClock, SimRecorder};
use ensemble_team::board::{
    ActiveControl, Board, BoardError, BoardLease, BoardOptions, ClaimPlan, ControlFile,
    GrantedClaim, LockedBoard, NewAgent, NewAnomaly, NewHandoff, NewTask, State, TaskStatus, check,
    scan, write_beat,
};
use ensemble_team::proto::agent;
use ensemble_team::proto::task::TaskHolder;
use serde_json::Value;

use crate::queue::name;

mod alarms;
mod fsck;
mod lives;
mod liza;
mod prompts;
mod rules;
mod stories;

struct Bed {
    home: tempfile::TempDir,
    board: Board,
    memory: SimRecorder,
}

impl Bed {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (options, memory) = options();
        let board = Board::create(home.path(), options).unwrap();
        Self { home, board, memory }
    }

    fn with(place: &str, text: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(place)).unwrap();
        std::fs::write(home.path().join(place).join("state.yaml"), text).unwrap();
        let (options, memory) = options();
        let board = Board::find(home.path(), options).unwrap();
        Self { home, board, memory }
    }

    fn change<T>(&self, change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T, Error>) -> T {
        let mut locked = self.board.lock().unwrap();
        let result = change(&mut locked).unwrap();
        locked.commit().unwrap();
        result
    }

    fn refuse<T>(&self, change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T, Error>) -> Error {
        let before = self.text();
        let mut locked = self.board.lock().unwrap();
        let error = match change(&mut locked) {
            Err(error) => error,
            Ok(_) => locked.commit().unwrap_err(),
        };
        assert_eq!(self.text(), before);
        error
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.board.path()).unwrap()
    }

    fn state(&self) -> State {
        self.board.read().unwrap()
    }

    fn status(&self, id: &str) -> TaskStatus {
        self.state().task(&name(id)).unwrap().status
    }

    fn agent(&self, id: &str, role: &str) -> TaskHolder {
        self.change(|board| {
            let holder = board.register(&NewAgent::new(name(id), role))?;
            board.agent_event(&holder, agent::Event::Ready)?;
            Ok(holder)
        })
    }

    fn task(&self, id: &str, after: &[&str]) {
        let task = NewTask::new(name(id), format!("do {id}"), "specs/x.md", "tests pass");
        let task = task.after(after.iter().map(|id| name(id)));
        self.change(|board| board.add_task(&task));
    }

    fn plan(&self, id: &str, agent: &TaskHolder) -> Result<ClaimPlan, Error> {
        self.board.lock().unwrap().plan_claim(&name(id), agent)
    }

    fn claim(&self, id: &str, agent: &TaskHolder) -> GrantedClaim {
        let plan = self.plan(id, agent).unwrap();
        let base = (!plan.keeps_worktree).then_some("0a1b2c3");
        self.change(|board| board.commit_claim(&plan, base))
    }

    /// From claim to merge.
    fn finish(&self, id: &str, coder: &TaskHolder, reviewer: &TaskHolder) {
        let claim = self.claim(id, coder);
        self.change(|board| board.submit(&name(id), &claim.holder, "c1"));
        let review = self.change(|board| board.claim_review(&name(id), reviewer));
        self.change(|board| board.approve(&name(id), &review.holder, "c1"));
        self.change(|board| board.merged(&name(id), "m1"));
    }
}

fn options() -> (BoardOptions, SimRecorder) {
    let memory = SimRecorder::default();
    let recorder = Arc::new(memory.clone());
    (BoardOptions::new("test").with_durability(Durability::Process).with_recorder(recorder), memory)
}

/// What does not fit, and stops no one.
#[track_caller]
fn warnings(text: &str) -> Vec<String> {
    let state = check(text, Path::new("state.yaml")).unwrap();
    state.warnings.iter().map(ToString::to_string).collect()
}

fn problems(text: &str) -> Vec<String> {
    match check(text, Path::new("state.yaml")).map_err(Error::into_area) {
        Ok(_) => Vec::new(),
        Err(Ok(BoardError::Invalid { violations, .. })) => {
            violations.iter().map(ToString::to_string).collect()
        }
        Err(Ok(other)) => vec![other.to_string()],
        Err(Err(other)) => vec![other.to_string()],
    }
}
