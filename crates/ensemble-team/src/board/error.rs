//! Errors of the blackboard.

use std::path::PathBuf;

use super::{BoardObstacle, LostLease, Violation};
use ensemble_core::AreaError;
use ensemble_core::Error;

/// An error of the blackboard. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    #[error("there is no blackboard at {path}")]
    Missing { path: PathBuf },
    #[error("nothing was changed, since {path} would break its rules:{}", listed(violations))]
    WouldBreak { path: PathBuf, violations: Vec<Violation> },
    #[error("{path} breaks its rules:{}", listed(violations))]
    Invalid { path: PathBuf, violations: Vec<Violation> },
    #[error("cannot {what}: {why}")]
    NotAllowed { what: String, why: BoardObstacle },
    #[error("cannot {what}: {why}")]
    Fenced { what: String, why: LostLease },
    #[error(
        "the blackboard at {path} has changed in between, and nothing was written: do it again"
    )]
    Changed { path: PathBuf },
    #[error("there is no {what} `{id}` on the blackboard{}", alternatives(nearest))]
    Unknown {
        what: &'static str,
        id: String,
        /// Similar names, best first.
        nearest: Vec<String>,
    },
}

impl BoardError {
    pub(super) fn not_allowed(what: impl Into<String>, why: BoardObstacle) -> Error {
        Self::NotAllowed { what: what.into(), why }.into()
    }
}

impl AreaError for BoardError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

pub fn is_missing(error: &Error) -> bool {
    matches!(error.area(), Some(BoardError::Missing { .. }))
}

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
