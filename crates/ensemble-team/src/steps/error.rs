//! Errors of step queues.

use std::path::PathBuf;

use ensemble_core::message::Name;
use ensemble_core::{AreaError, Error};

use super::StepKey;
use crate::proto::step::StepRefusal;

/// An error of a step queue. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// No queue has this task.
    #[error("there is no task {task_id}")]
    NoTask {
        /// The task.
        task_id: String,
    },
    /// The task has no such step.
    #[error("there is no {key}")]
    NoStep {
        /// The step.
        key: StepKey,
    },
    /// The state of the step does not allow the event; nothing was changed.
    #[error("{key} was not changed: {refusal}")]
    Refused {
        /// The step.
        key: StepKey,
        /// The reason.
        refusal: StepRefusal,
    },
    /// A worker reported a step in another worker's name; nothing was changed.
    #[error(
        "{key} was not changed: you are {by}, but `agent` is {agent}: report only your own steps"
    )]
    OtherAgent {
        /// The step.
        key: StepKey,
        /// The worker that reports.
        by: Name,
        /// The agent that the report names.
        agent: Name,
    },
    /// A step was to be split into fewer than two parts; nothing was changed.
    #[error("{key} was not changed: {parts} parts: name at least two")]
    TooFewParts {
        /// The step.
        key: StepKey,
        /// Number of parts.
        parts: usize,
    },
    /// Another plan of the task is stored; nothing was changed.
    #[error(
        "task {task_id} was not changed: another plan of this task is stored: give it another task_id, or change its steps"
    )]
    OtherPlan {
        /// The task.
        task_id: String,
    },
    /// The database failed.
    #[error("cannot {operation} {}: {detail}{}", path.display(), again(*transient))]
    Database {
        /// The failed operation, in the infinitive.
        operation: &'static str,
        /// The file, or the address of the server.
        path: PathBuf,
        /// The message of the database.
        detail: String,
        /// Whether trying again may help.
        transient: bool,
    },
    /// The server did not answer when the change was to become final.
    #[error("cannot {operation} {}: {detail} (the change may have been made: try again, it is made once)", path.display())]
    Unanswered {
        /// The operation, in the infinitive.
        operation: &'static str,
        /// The address of the server.
        path: PathBuf,
        /// The message of the connection.
        detail: String,
    },
}

impl AreaError for StepError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Database { transient: true, .. } | Self::Unanswered { .. })
    }
}

impl StepError {
    /// Whether the task or the step is unknown.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::NoTask { .. } | Self::NoStep { .. })
    }

    /// Whether the queue does not allow the change.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::OtherAgent { .. }
                | Self::TooFewParts { .. }
                | Self::OtherPlan { .. }
        )
    }
}

/// Whether this error says that the task or the step is unknown.
pub(super) fn is_unknown(error: &Error) -> bool {
    error.area().is_some_and(StepError::is_unknown)
}

/// Whether this error says that the queue does not allow the change.
pub(super) fn is_refusal(error: &Error) -> bool {
    error.area().is_some_and(StepError::is_refusal)
}

const fn again(transient: bool) -> &'static str {
    if transient { " (nothing changed: try again)" } else { "" }
}
