//! The supervisor of one agent: [`proto::supervise`](crate::proto::supervise) over a blackboard,
//! worktrees and real processes (seed 001).
//!
//! *Evidence of life.* With an agent running, its supervisor beats only on evidence since the last
//! beat. Evidence is a sign of the agent (`ensemble agent heartbeat`), or a process of it that used
//! the processor, started or ended. An agent that is stopped or waits forever gets no beats. Its
//! leases expire, and it is ended and replaced. An agent announces a long operation without
//! evidence in advance (`--long`).
//!
//! *A crash* of the supervisor: see [`seated`]. *A crash* of the agent is an exit like others.

mod agent;
mod exits;
mod heartbeat;
mod mail;
mod office;
mod plans;
mod refusals;
mod register;
mod run;
mod steps;
mod supervisor_lock;
mod work;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use crate::board::prompt::BoardRole;
use crate::board::{Board, BoardConfig};
use crate::proto::supervise::{EndReason, SupervisePace};
use crate::worktree::Worktrees;
use ensemble_core::Result;
use ensemble_core::env::{Clock, SystemClock};
use ensemble_core::event_log::{NullRecorder, Recorder};
use ensemble_core::message::Name;

pub use agent::{PROMPT, PROMPT_FILE};
pub use office::{PRESS_MARGIN, RosterAccess};
pub use plans::{PLANS_MAX, plan_standing};
pub use supervisor_lock::{SEATS, SupervisorRecord, end_orphan, seated};

/// Epoch of the registration, for the agent's commands.
pub const EPOCH_VARIABLE: &str = "ENSEMBLE_AGENT_EPOCH";
/// The task for which an agent was started, to work on it or review it.
pub const TASK_VARIABLE: &str = "ENSEMBLE_TASK_ID";
/// Epoch of that claim or review.
pub const TASK_EPOCH_VARIABLE: &str = "ENSEMBLE_TASK_EPOCH";
pub const WORKTREE_VARIABLE: &str = "ENSEMBLE_WORKTREE";
pub const PROMPT_VARIABLE: &str = "ENSEMBLE_PROMPT_FILE";

/// How long an agent may run after its work is finished on the board, before it is ended.
pub const LINGER_MAX: Duration = Duration::from_secs(60);
/// Interval at which a running agent, its signs and the control files are checked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct SuperviseOrder {
    pub id: Name,
    pub role: BoardRole,
    /// Command of its program; see [`PROMPT`] and [`PROMPT_FILE`].
    pub command: Vec<String>,
    pub env: BTreeMap<String, OsString>,
    /// The agent's terminal: `/dev/pts/0`, or `unknown`.
    pub terminal: String,
    /// Whether to take over an entry of another program whose leases have ended.
    pub takes_over: bool,
    pub pace: SupervisePace,
    pub clock: Arc<dyn Clock + Send + Sync>,
    pub recorder: Arc<dyn Recorder>,
    /// Where the supervisor speaks for its agent; without it, the agent has neither row nor mail.
    pub office: Option<RosterAccess>,
}

impl SuperviseOrder {
    pub fn with_config(mut self, config: &BoardConfig) -> Self {
        let (poll, wait) = match self.role {
            BoardRole::Planner => (config.planner_poll_interval, None),
            BoardRole::Coder => (config.coder_poll_interval, config.coder_max_wait),
            BoardRole::CodeReviewer => (config.reviewer_poll_interval, None),
        };
        if let Some(seconds) = poll {
            self.pace.poll = Duration::from_secs(seconds.max(1));
        }
        self.pace.patience = wait.map(Duration::from_secs);
        self
    }

    /// The default pace of a role, without a recorder.
    pub fn new(id: Name, role: BoardRole, command: Vec<String>) -> Self {
        let pace = match role {
            BoardRole::Planner => SupervisePace::planner(),
            BoardRole::Coder => SupervisePace::coder(),
            BoardRole::CodeReviewer => SupervisePace::reviewer(),
        };
        Self {
            id,
            role,
            command,
            env: BTreeMap::new(),
            terminal: "unknown".to_owned(),
            takes_over: false,
            pace,
            clock: Arc::new(SystemClock),
            recorder: Arc::new(NullRecorder),
            office: None,
        }
    }
}

pub trait SupervisorServices {
    /// Sleeps at most `limit`, less if the board's directory has changed.
    fn rest(&mut self, limit: Duration);

    /// Whether to end: a signal came, or the agent must leave its team.
    fn is_over(&mut self) -> bool;

    fn print_line(&mut self, line: &str);
}

/// Supervises until it is asked to end, or cannot continue. Blocks in the meantime; it starts one process
/// at a time and no thread.
///
/// `worktrees` may be `None` for a planner.
///
/// # Errors
/// [`Error::Locked`](ensemble_core::Error::Locked) if another process supervises this id: nothing was
/// changed then. [`BoardError::NotAllowed`](crate::board::BoardError::NotAllowed) if another program has registered
/// the id. Or the board cannot be read. Later failures are recorded and retried.
pub fn supervise(
    board: &Board,
    worktrees: Option<&Worktrees>,
    order: &SuperviseOrder,
    surroundings: &mut dyn SupervisorServices,
) -> Result<EndReason> {
    run::SupervisorRun::begin(board, worktrees, order)?.run(surroundings)
}
