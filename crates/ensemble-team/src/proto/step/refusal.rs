//! Reasons why a step did not change, each with a remedy.

use std::fmt;

use serde::Serialize;

use super::{FixState, State, StepResolution};
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum StepRefusal {
    NotTaken,
    HeldByAnother {
        holder: Name,
    },
    /// The step was handed out again since.
    Outdated {
        epoch: u64,
        current: u64,
    },
    Completed {
        resolution: StepResolution,
    },
    Blocked,
    Failed {
        /// Whether a worker will take it up again.
        fix_due: bool,
    },
    /// The step has failed, and its fix step must be done first.
    WaitsForFix,
    /// A block without a reason.
    NoReasons,
    /// A failure without an error.
    NoError,
}

impl StepRefusal {
    /// The refusal for a state without a holder.
    pub(super) fn of(state: &State) -> Self {
        match state {
            State::Pending => Self::NotTaken,
            State::InProgress { holder } => Self::HeldByAnother { holder: holder.clone() },
            State::Completed(resolution) => Self::Completed { resolution: *resolution },
            State::Blocked { .. } => Self::Blocked,
            State::Failed { fix: FixState::Ordered, .. } => Self::WaitsForFix,
            State::Failed { fix, .. } => Self::Failed { fix_due: *fix == FixState::Due },
        }
    }
}

impl fmt::Display for StepRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken => write!(
                f,
                "it is PENDING and has no holder (its lease may have ended): take the next step first"
            ),
            Self::HeldByAnother { holder } => write!(
                f,
                "it is IN_PROGRESS and held by {holder}: only {holder} may report it, and no other \
                 agent may change it; `step retry` takes it away"
            ),
            Self::Outdated { epoch, current } => write!(
                f,
                "it was handed out again since (epoch {current}, this is about {epoch}): read the \
                 newest prompt, check what has changed, and report again"
            ),
            Self::Completed { resolution: StepResolution::Success } => {
                write!(f, "it is COMPLETED already: continue with the next step")
            }
            Self::Completed { resolution: StepResolution::Skipped } => {
                write!(f, "it was skipped: continue with the next step")
            }
            Self::Completed { resolution: StepResolution::Split } => {
                write!(f, "it was split: continue with its parts")
            }
            Self::Blocked => {
                write!(f, "it is BLOCKED: `step unblock`, `split` or `skip` it first")
            }
            Self::Failed { fix_due: true } => {
                write!(f, "it is FAILED and waits for its next attempt: take the next step")
            }
            Self::Failed { fix_due: false } => {
                write!(f, "it is FAILED for good: `step retry`, `split` or `skip` it first")
            }
            Self::WaitsForFix => write!(
                f,
                "it is FAILED and waits for its fix step: take the next step; it comes again after \
                 that"
            ),
            Self::NoReasons => write!(
                f,
                "`blocked` needs a reason: list in `blockers` what is missing, one text each"
            ),
            Self::NoError => write!(
                f,
                "`failure` needs a reason: write in `summary` what failed, where, and the text of \
                 the error"
            ),
        }
    }
}
