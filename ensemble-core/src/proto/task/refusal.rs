//! Why something was not done to a task.

use std::fmt;

use super::Holder;
use crate::message::Name;

/// Why; the task is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table has no such step.
    NotNow {
        /// Where the task is.
        status: &'static str,
    },
    /// Somebody else holds it, or nobody does: the lease is over.
    NotHolder {
        /// Who wanted to act.
        presented: Holder,
        /// Who holds it.
        holder: Option<Holder>,
    },
    /// Another claim has come since.
    OldEpoch {
        /// What was presented.
        presented: u64,
        /// What it is; 0 for none.
        now: u64,
    },
    /// Somebody reviews it.
    Taken {
        /// Who.
        holder: Holder,
    },
    /// Nobody reviews what they wrote.
    OwnWork,
    /// A verdict about something else than what was submitted.
    OtherCommit {
        /// What was submitted.
        submitted: String,
        /// What the verdict is about.
        presented: String,
    },
    /// Too many coders failed.
    Exhausted {
        /// Who.
        failed_by: Vec<Name>,
    },
    /// This coder has failed at it.
    HasFailed {
        /// Who.
        agent: Name,
    },
}

impl fmt::Display for Refusal {
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
                "`{}` (epoch {}) does not hold it any more. Stop working on it",
                presented.by, presented.epoch
            ),
            Self::OldEpoch { presented, now } => {
                write!(f, "epoch {presented} is over, it is {now} now")
            }
            Self::Taken { holder } => {
                write!(f, "`{}` (epoch {}) reviews it", holder.by, holder.epoch)
            }
            Self::OwnWork => f.write_str("nobody reviews their own work"),
            Self::OtherCommit { submitted, presented } => {
                write!(f, "{submitted} was submitted, the verdict is about {presented}")
            }
            Self::Exhausted { failed_by } => {
                let names: Vec<_> = failed_by.iter().map(Name::as_str).collect();
                write!(f, "{} failed at it: block it and supersede it", names.join(" and "))
            }
            Self::HasFailed { agent } => write!(f, "`{agent}` has failed at it"),
        }
    }
}
