//! Reasons why a task's event was refused.

use std::fmt;

use super::TaskHolder;
use ensemble_core::message::Name;

/// Why an event was refused; the task is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskRefusal {
    /// The table has no such step.
    NotNow {
        status: &'static str,
    },
    /// Another agent holds the task, or none does: the lease has ended.
    NotHolder {
        presented: TaskHolder,
        holder: Option<TaskHolder>,
    },
    /// There is a later claim.
    OldEpoch {
        presented: u64,
        /// The current epoch; 0 for none.
        now: u64,
    },
    /// Another agent reviews the task.
    Taken {
        holder: TaskHolder,
    },
    /// An agent must not review its own work.
    OwnWork,
    /// The verdict is about another commit than the submitted one.
    OtherCommit {
        submitted: String,
        presented: String,
    },
    /// Too many coders failed.
    Exhausted {
        failed_by: Vec<Name>,
    },
    HasFailed {
        agent: Name,
    },
}

impl fmt::Display for TaskRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNow { status } => write!(f, "its status is {status}"),
            Self::NotHolder { presented, holder: Some(holder) } => write!(
                f,
                "`{}` (epoch {}) does not hold it: `{}` (epoch {}) does. Stop working on it",
                presented.by, presented.epoch, holder.by, holder.epoch
            ),
            Self::NotHolder { presented, holder: None } => write!(
                f,
                "`{}` (epoch {}) no longer holds it. Stop working on it",
                presented.by, presented.epoch
            ),
            Self::OldEpoch { presented, now } => {
                write!(f, "epoch {presented} has ended; {now} is current")
            }
            Self::Taken { holder } => {
                write!(f, "`{}` (epoch {}) reviews it", holder.by, holder.epoch)
            }
            Self::OwnWork => f.write_str("an agent may not review its own work"),
            Self::OtherCommit { submitted, presented } => {
                write!(f, "{submitted} was submitted, the verdict is about {presented}")
            }
            Self::Exhausted { failed_by } => {
                let names: Vec<_> = failed_by.iter().map(Name::as_str).collect();
                write!(f, "its failed coders are {}: block it and supersede it", names.join(", "))
            }
            Self::HasFailed { agent } => write!(f, "`{agent}` has failed at it"),
        }
    }
}

impl std::error::Error for TaskRefusal {}
