//! Reasons why a task's event was refused.

use super::TaskHolder;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskRefusal {
    /// The table has no such step.
    #[error("its status is {status}")]
    NotNow { status: &'static str },
    /// Another agent holds the task, or none does: the lease has ended.
    #[error("{}", not_held(presented, holder.as_ref()))]
    NotHolder { presented: TaskHolder, holder: Option<TaskHolder> },
    #[error("epoch {presented} has ended; {now} is current")]
    OldEpoch {
        presented: u64,
        /// The current epoch; 0 for none.
        now: u64,
    },
    #[error("`{}` (epoch {}) reviews it", holder.by, holder.epoch)]
    Taken { holder: TaskHolder },
    #[error("an agent may not review its own work")]
    OwnWork,
    #[error("{submitted} was submitted, the verdict is about {presented}")]
    OtherCommit { submitted: String, presented: String },
    #[error(
        "its failed coders are {}: block it and supersede it",
        failed_by.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
    )]
    Exhausted { failed_by: Vec<Name> },
    #[error("`{agent}` has failed at it")]
    HasFailed { agent: Name },
}

fn not_held(presented: &TaskHolder, holder: Option<&TaskHolder>) -> String {
    let TaskHolder { by, epoch } = presented;
    match holder {
        Some(TaskHolder { by: other, epoch: now }) => format!(
            "`{by}` (epoch {epoch}) does not hold it: `{other}` (epoch {now}) does. Stop working on it"
        ),
        None if *epoch == 0 => format!("`{by}` has not claimed it, and no agent holds it"),
        None => format!("`{by}` (epoch {epoch}) no longer holds it. Stop working on it"),
    }
}
