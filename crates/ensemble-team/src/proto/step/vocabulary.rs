//! The states of a step, what happens to it, and what its machine asks for.

use serde::{Deserialize, Serialize};

use super::StepRefusal;
use ensemble_core::message::Name;

/// State of a step: the seed's five states with their data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    InProgress {
        holder: Name,
    },
    Completed(StepResolution),
    /// Its worker could not continue; a person or the orchestrator must intervene.
    Blocked {
        /// Reasons; never empty.
        reasons: Vec<String>,
    },
    Failed {
        error: String,
        /// Whether a worker will fix it, or an intervention is needed.
        fix: FixState,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResolution {
    Success,
    /// A person or the orchestrator skipped it.
    Skipped,
    /// Smaller steps have replaced it.
    Split,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FixState {
    /// A worker takes it up again, with the error.
    Due,
    /// Its fix step must be done first; then its own agent takes it up again.
    Ordered,
    Exhausted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepReport {
    Success,
    Failure { error: String },
    Blocked { reasons: Vec<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Taken {
        by: Name,
    },
    /// A worker reports. Its identity was checked before.
    Reported {
        by: Name,
        /// Epoch of the hand-out; `None` from a worker that does not know it.
        epoch: Option<u64>,
        report: StepReport,
    },
    Beat {
        by: Name,
        epoch: Option<u64>,
    },
    /// The holder was silent for its whole lease.
    LeaseEnded {
        epoch: u64,
    },
    /// No fix step of it is left to be done.
    FixDone,
    Unblocked,
    /// The step restarts; its current holder loses it.
    Retried,
    Skipped,
    Split,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand the step to a worker, with a lease and its files.
    Hand {
        to: Name,
        /// Number of the attempt, starting at 1.
        attempt: u32,
        /// The fencing epoch, starting at 1.
        epoch: u64,
        error: Option<String>,
    },
    /// No worker holds the step any more: unlock its files.
    Free,
    /// The lease starts again.
    Beaten,
    RequestFix {
        error: String,
        next_attempt: u32,
    },
    /// Insert a fix step for its fixer. The failed step waits for it.
    OrderFix {
        error: String,
        next_attempt: u32,
    },
    /// An intervention is needed: notify the orchestrator, and stop the queue or pass the step
    /// over.
    Stop {
        reasons: Vec<String>,
    },
    Remind,
    /// The queue can continue.
    Advance,
    /// The event was refused; nothing changed.
    Refused(StepRefusal),
}
