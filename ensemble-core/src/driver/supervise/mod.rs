//! The supervisor of one agent: [`proto::supervise`](crate::proto::supervise) over a blackboard,
//! worktrees and real processes (seed 001).
//!
//! ```text
//! Seat       one supervisor an id; what it leaves behind is found by the next one
//! Work       what is claimed, by role, and what became of it
//! Running    the agent's program: prompt, environment, mark, exit
//! Pulse      beats for as long as there is evidence of life; the agent's own signs
//! BoardLeases  everybody's leases, watched by everybody
//! ```
//!
//! *Evidence of life.* With an agent running, its supervisor beats only if since the last beat the agent
//! gave a sign (`ensemble agent heartbeat`), or any process of it used the processor, began or ended.
//! An agent that is stopped or waits for ever gets no beats, loses its leases when they run out, and is
//! ended and replaced. For what takes longer without a trace it says so before (`--long`).
//!
//! *A crash* of the supervisor: see [`seated`]. Of the agent: an exit like others.

mod agent;
mod pulse;
mod repair;
mod run;
mod seat;
mod steps;
mod work;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Result;
use crate::board::prompt::Role;
use crate::board::{Board, Config};
use crate::env::{Clock, SystemClock};
use crate::event_log::{NullRecorder, Recorder};
use crate::message::Name;
use crate::proto::supervise::{Pace, Reason};
use crate::worktree::Worktrees;

pub use agent::{PROMPT, PROMPT_FILE};
pub use seat::{SEATS, Seated, end_orphan, seated};

/// The registration's number, for the agent's commands.
pub const EPOCH_VARIABLE: &str = "ENSEMBLE_AGENT_EPOCH";
/// The task or the review that an agent was started for.
pub const TASK_VARIABLE: &str = "ENSEMBLE_TASK_ID";
/// The number of that claim or review.
pub const TASK_EPOCH_VARIABLE: &str = "ENSEMBLE_TASK_EPOCH";
/// Where it is to be done, absolute.
pub const WORKTREE_VARIABLE: &str = "ENSEMBLE_WORKTREE";
/// A file with the prompt.
pub const PROMPT_VARIABLE: &str = "ENSEMBLE_PROMPT_FILE";

/// How long an agent may go on after its work is finished on the board, before it is ended.
pub const LINGER_MAX: Duration = Duration::from_secs(60);
/// How often a running agent, its signs and the control files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whom to supervise, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct Order {
    /// The agent.
    pub id: Name,
    /// What it is there for.
    pub role: Role,
    /// Its program; see [`PROMPT`] and [`PROMPT_FILE`].
    pub command: Vec<String>,
    /// What is added to its environment.
    pub env: BTreeMap<String, OsString>,
    /// Where it is shown: `/dev/pts/0`, or `unknown`.
    pub terminal: String,
    /// How fast and how patient.
    pub pace: Pace,
    /// What time it is.
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// Where it is recorded.
    pub recorder: Arc<dyn Recorder>,
}

impl Order {
    /// With the pace that the board's `config` asks for.
    #[must_use]
    pub fn with_config(mut self, config: &Config) -> Self {
        let (poll, wait) = match self.role {
            Role::Planner => (config.planner_poll_interval, None),
            Role::Coder => (config.coder_poll_interval, config.coder_max_wait),
            Role::CodeReviewer => (config.reviewer_poll_interval, None),
        };
        if let Some(seconds) = poll {
            self.pace.poll = Duration::from_secs(seconds.max(1));
        }
        self.pace.patience = wait.map(Duration::from_secs);
        self
    }

    /// The usual pace of a role, recording nothing.
    #[must_use]
    pub fn new(id: Name, role: Role, command: Vec<String>) -> Self {
        let pace = match role {
            Role::Planner => Pace::planner(),
            Role::Coder => Pace::coder(),
            Role::CodeReviewer => Pace::reviewer(),
        };
        Self {
            id,
            role,
            command,
            env: BTreeMap::new(),
            terminal: "unknown".to_owned(),
            pace,
            clock: Arc::new(SystemClock),
            recorder: Arc::new(NullRecorder),
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("id", &self.id)
            .field("role", &self.role)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// What a supervisor asks of whoever runs it.
pub trait Surroundings {
    /// Sleeps for at most `limit`, less if the board's directory has changed.
    fn rest(&mut self, limit: Duration);

    /// Whether to end: a signal, or the agent is to leave its team.
    fn is_over(&mut self) -> bool;

    /// Tells a person what happens, in one line.
    fn tell(&mut self, line: &str);
}

/// Supervises until it is told to end, or cannot go on. Blocks meanwhile; starts one process at a time
/// and no thread.
///
/// `worktrees` may be missing for a planner.
///
/// # Errors
/// [`Error::Locked`](crate::Error::Locked) if another process supervises this id: nothing was touched then.
/// [`Error::NotAllowed`](crate::Error::NotAllowed) if the id is registered by somebody else. Or the board
/// cannot be read. What fails later is recorded and tried again.
pub fn supervise(
    board: &Board,
    worktrees: Option<&Worktrees>,
    order: &Order,
    surroundings: &mut dyn Surroundings,
) -> Result<Reason> {
    run::Run::begin(board, worktrees, order)?.run(surroundings)
}
