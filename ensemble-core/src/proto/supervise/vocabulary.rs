//! The words of the machine: what happens to a supervisor and what it wants done.

use std::time::Duration;

use super::pace::Trouble;

/// How an agent's program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Exit 0.
    Done,
    /// Exit 42: its context is used up.
    HandOver,
    /// Any other exit.
    Failed(i32),
    /// A signal, by its number.
    Killed(i32),
}

/// What the board says after an agent's program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// How it ended.
    pub ending: Ending,
    /// Its task or review is still its own: it is not finished.
    pub holds: bool,
    /// Something came of it: a step of its task, a commit, a change to the plan.
    pub progress: bool,
    /// It left hand-over notes (only a coder needs any).
    pub notes: bool,
    /// There are DRAFT tasks that a planner must finish.
    pub drafts: bool,
}

/// What stands in the way of anything new, as the control files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// PAUSE or CHECKPOINT: nothing is begun.
    Closed,
    /// ABORT: everything ends.
    Abort,
}

/// What is no longer the supervisor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The task or the review: somebody else has it, or nobody.
    Work,
    /// The registration, and with it everything.
    Registration,
}

/// What happens to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It begins.
    Start,
    /// Its agent is on the board.
    Registered,
    /// Another one supervises this id, or has registered it.
    Refused,
    /// The step it asked for failed for a reason that may pass: a lock, a disk.
    Failed,
    /// There is nothing to do for it.
    Nothing,
    /// Somebody else was faster; look again after this time.
    Contended {
        /// Between 1 s and 5 s, drawn by the driver.
        wait: Duration,
    },
    /// It holds something to do.
    Claimed {
        /// Something else than the last time.
        is_new: bool,
    },
    /// No control file is there.
    Open,
    /// A control file is there.
    Gated(Gate),
    /// The board has changed.
    Woken,
    /// The agent runs.
    Spawned,
    /// The agent's program could not be started.
    SpawnFailed,
    /// The agent's program has ended by itself.
    Exited(Exit),
    /// A write was refused, or a look at the board says so.
    Fenced(Lost),
    /// It is told to end: a signal, or its agent is to leave the team.
    Stop,
    /// The agent and all that it started are gone.
    Terminated,
    /// The registration is gone from the board.
    Left,
}

/// Why a supervisor has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It was told to.
    Stopped,
    /// Because of ABORT.
    Aborted,
    /// There was nothing to do for as long as it was to wait.
    NoWork,
    /// Agents failed again and again, and no task can be blocked for it.
    GaveUp,
    /// Another supervisor has this id.
    Refused,
}

/// What a person should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// The agent failed, for the nth time without progress.
    Crashed {
        /// How it ended.
        ending: Ending,
        /// How often in a row.
        count: u32,
    },
    /// It could not be started, for the nth time.
    NotStarted {
        /// How often in a row.
        count: u32,
    },
    /// It said that its work is done, and the board says otherwise.
    Unfinished {
        /// How often nothing came of an agent, in a row.
        count: u32,
    },
    /// It handed over without a word.
    NoNotes {
        /// How often nothing came of an agent, in a row.
        count: u32,
    },
}

/// What is to be done. Whoever performs one of the first six reports what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Register the agent, once nothing of an earlier one lives.
    Register,
    /// Look at control files and board, and claim what is there to do.
    Look,
    /// Look at the control files and at the claim, before an agent is spawned for it.
    Check,
    /// Start a fresh agent for what is held.
    Spawn,
    /// End the agent and all that it started.
    Terminate,
    /// Give everything back and unregister.
    Unregister,
    /// Write down what a person should know.
    Note(Anomaly),
    /// The task cannot go on like this: block it, and go on with another one.
    Block(Trouble),
    /// The supervisor has ended. Exactly once.
    Ended(Reason),
}
