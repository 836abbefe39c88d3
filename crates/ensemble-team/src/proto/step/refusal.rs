//! Reasons why a step did not change, each with a remedy.

use serde::Serialize;

use super::{FixState, State, StepResolution};
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum StepRefusal {
    #[error("it is PENDING and has no holder (its lease may have ended): take the next step first")]
    NotTaken,
    #[error(
        "it is IN_PROGRESS and held by {holder}: only {holder} may report it, and no other \
         agent may change it; `step retry` takes it away"
    )]
    HeldByAnother { holder: Name },
    #[error(
        "it was handed out again since (epoch {current}, this is about {epoch}): read the \
         newest prompt, check what has changed, and report again"
    )]
    Outdated { epoch: u64, current: u64 },
    #[error("{}", completed(*resolution))]
    Completed { resolution: StepResolution },
    #[error("it is BLOCKED: `step unblock`, `split` or `skip` it first")]
    Blocked,
    #[error(
        "it is FAILED {}",
        if *fix_due {
            "and waits for its next attempt: take the next step"
        } else {
            "for good: `step retry`, `split` or `skip` it first"
        }
    )]
    Failed {
        /// Whether a worker will take it up again.
        fix_due: bool,
    },
    #[error(
        "it is FAILED and waits for its fix step: take the next step; it comes again after \
         that"
    )]
    WaitsForFix,
    #[error("`blocked` needs a reason: list in `blockers` what is missing, one text each")]
    NoReasons,
    #[error(
        "`failure` needs a reason: write in `summary` what failed, where, and the text of \
         the error"
    )]
    NoError,
}

const fn completed(resolution: StepResolution) -> &'static str {
    match resolution {
        StepResolution::Success => "it is COMPLETED already: continue with the next step",
        StepResolution::Skipped => "it was skipped: continue with the next step",
        StepResolution::Split => "it was split: continue with its parts",
    }
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
