//! The events and effects of a supervisor.

use std::time::Duration;

use super::pace::WorkTrouble;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramEnding {
    Done,
    /// Exit 42: its context is full.
    HandOver,
    Failed(i32),
    /// A signal, by its number.
    Killed(i32),
}

impl std::fmt::Display for ProgramEnding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("exit 0"),
            Self::HandOver => f.write_str("exit 42"),
            Self::Failed(code) => write!(f, "exit {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// The board's state after an agent's program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentExit {
    pub ending: ProgramEnding,
    /// Whether its task or review is unfinished and still its own.
    pub holds: bool,
    /// Whether there was progress: a step of the task, a commit, a change of the plan.
    pub progress: bool,
    /// Whether it left hand-over notes (only a coder needs any).
    pub notes: bool,
    /// Whether there are DRAFT tasks that a planner must finish.
    pub drafts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlGate {
    /// PAUSE or CHECKPOINT: no new work starts.
    Closed,
    /// ABORT: all agents end.
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SupervisorLoss {
    /// The task or the review: another agent has it, or no agent.
    Work,
    /// The same, since the agent did nothing until the lease of its work ran out. It is still registered.
    Claim,
    /// The registration, and everything held under it.
    Registration,
    /// The same, since the agent did nothing until its lease ran out.
    Lease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Start,
    Registered,
    /// The requested action failed for a temporary reason: a lock, a disk.
    Failed,
    Nothing,
    /// Another agent claimed first; look again after this time.
    Contended {
        /// Between 1 s and 5 s, drawn by the driver.
        wait: Duration,
    },
    /// The supervisor holds work.
    Claimed {
        /// Whether it is other work than before.
        is_new: bool,
    },
    Open,
    Gated(ControlGate),
    Woken,
    Spawned,
    SpawnFailed,
    Exited(AgentExit),
    /// A write was refused, or the board shows the loss.
    Fenced(SupervisorLoss),
    /// The supervisor must end: it got a signal, or its agent must leave the team.
    Stop,
    /// A request for the shutdown of the agent waits for an answer.
    Asked,
    /// The deadline of that request is near.
    Pressed,
    /// No such request waits any more: it was withdrawn or has expired.
    Withdrawn,
    HandedOver,
    Agreed,
    /// The agent and all processes that it started have ended.
    Terminated,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Stopped,
    Agreed,
    Aborted,
    /// There was no work for its whole patience.
    NoWork,
    /// Agents failed repeatedly, and there is no task to block.
    GaveUp,
    Refused,
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Agreed => "agreed to shut down",
            Self::Aborted => "the team is aborted",
            Self::NoWork => "no work",
            Self::GaveUp => "agents failed again and again",
            Self::Refused => "another supervisor has this name",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuperviseAnomaly {
    Crashed {
        ending: ProgramEnding,
        count: u32,
    },
    /// The agent did nothing until its lease ran out.
    Hung {
        count: u32,
    },
    NotStarted {
        count: u32,
    },
    /// The agent exited with 0, but its work is unfinished on the board.
    Unfinished {
        count: u32,
    },
    NoNotes {
        count: u32,
    },
}

/// An action for the driver. For each of the first eight the driver reports the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Register the agent, once no process of an earlier one lives.
    Register,
    /// Read the control files and the board, and claim work.
    Look,
    /// Check the control files and the claim before an agent is started for it.
    Check,
    Spawn,
    /// End the agent and all processes that it started.
    Terminate,
    /// Leave notes for the next agent at the held work, and hold it no longer.
    HandOver,
    Agree,
    Unregister,
    Note(SuperviseAnomaly),
    /// Block the task, and continue with another one.
    Block(WorkTrouble),
    /// The supervisor has ended. Exactly once.
    Ended(EndReason),
}
