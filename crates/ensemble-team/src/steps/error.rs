//! Errors of step queues.

use std::path::PathBuf;

use ensemble_core::AreaError;
use ensemble_core::message::Name;

use super::StepKey;
use crate::proto::step::StepRefusal;

/// An error of a step queue. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("there is no task {task_id}")]
    NoTask { task_id: String },
    #[error("there is no {key}")]
    NoStep { key: StepKey },
    #[error("{key} was not changed: {refusal}")]
    Refused { key: StepKey, refusal: StepRefusal },
    #[error(
        "{key} was not changed: you are {by}, but `agent` is {agent}: report only your own steps"
    )]
    OtherAgent { key: StepKey, by: Name, agent: Name },
    #[error(
        "{key} was not changed: {by} works on this task: its orchestrator or a person may do that"
    )]
    OwnQueue { key: StepKey, by: Name },
    #[error("{key} was not changed: {parts} parts: name at least two")]
    TooFewParts { key: StepKey, parts: usize },
    #[error(
        "task {task_id} was not changed: another plan of this task is stored: give it another task_id, or change its steps"
    )]
    OtherPlan { task_id: String },
    #[error("cannot {operation} {}: {detail}{}", path.display(), again(*transient))]
    Database { operation: &'static str, path: PathBuf, detail: String, transient: bool },
    /// The file could not be opened. SQLite does not say why.
    #[error(
        "cannot {operation} {}: {detail} (it and its directory must be writable, and there must be descriptors left: `ulimit -n`)",
        path.display()
    )]
    Unopened { operation: &'static str, path: PathBuf, detail: String },
    #[error("cannot {operation} {}: {detail} (the change may have been made: try again, it is made once)", path.display())]
    Unanswered { operation: &'static str, path: PathBuf, detail: String },
}

impl AreaError for StepError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Database { transient: true, .. } | Self::Unanswered { .. })
    }
}

impl StepError {
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::NoTask { .. } | Self::NoStep { .. })
    }

    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::OtherAgent { .. }
                | Self::OwnQueue { .. }
                | Self::TooFewParts { .. }
                | Self::OtherPlan { .. }
        )
    }
}

const fn again(transient: bool) -> &'static str {
    if transient { " (nothing changed: try again)" } else { "" }
}
