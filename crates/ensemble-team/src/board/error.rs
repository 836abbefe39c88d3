//! Errors of the blackboard.

use std::path::PathBuf;

use super::{BoardObstacle, LostLease, Violation};
use ensemble_core::AreaError;
use ensemble_core::Error;

/// An error of the blackboard. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// There is no blackboard here.
    #[error("there is no blackboard at {path}")]
    Missing {
        /// The path where the board was expected.
        path: PathBuf,
    },
    /// A change was not made, since the blackboard would break its rules after it.
    #[error("nothing was changed, since {path} would break its rules:{}", listed(violations))]
    WouldBreak {
        /// The blackboard.
        path: PathBuf,
        /// All that would be wrong.
        violations: Vec<Violation>,
    },
    /// The blackboard breaks its rules.
    #[error("{path} breaks its rules:{}", listed(violations))]
    Invalid {
        /// The blackboard.
        path: PathBuf,
        /// All that is wrong.
        violations: Vec<Violation>,
    },
    /// The blackboard does not allow this now; nothing was changed.
    #[error("cannot {what}: {why}")]
    NotAllowed {
        /// The refused operation.
        what: String,
        /// Why not.
        why: BoardObstacle,
    },
    /// The caller has lost the lease that it acts under; nothing was changed.
    #[error("cannot {what}: {why}")]
    Fenced {
        /// The refused operation.
        what: String,
        /// How the lease was lost.
        why: LostLease,
    },
    /// Another process has written the board since it was read; nothing was changed.
    #[error(
        "the blackboard at {path} has changed in between, and nothing was written: do it again"
    )]
    Changed {
        /// The blackboard.
        path: PathBuf,
    },
    /// There is no such task, agent or plan on the blackboard.
    #[error("there is no {what} `{id}` on the blackboard{}", alternatives(nearest))]
    Unknown {
        /// Kind of the missing entry.
        what: &'static str,
        /// Id of the missing entry.
        id: String,
        /// Similar names, best first.
        nearest: Vec<String>,
    },
}

impl AreaError for BoardError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

/// Whether this error says that there is no blackboard.
pub fn is_missing(error: &Error) -> bool {
    matches!(error.area(), Some(BoardError::Missing { .. }))
}

/// Whether this error says that the caller has lost its lease.
pub fn is_fenced(error: &Error) -> bool {
    matches!(error.area(), Some(BoardError::Fenced { .. }))
}

fn alternatives(nearest: &[String]) -> String {
    if nearest.is_empty() {
        String::new()
    } else {
        format!(": did you mean {}?", nearest.join(" or "))
    }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}
