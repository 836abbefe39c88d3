//! States, events and effects of a task.

use super::LimitKind;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskHolder {
    pub by: Name,
    /// Fencing epoch of the claim or review.
    pub epoch: u64,
}

/// The status to which a task returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOrigin {
    Unclaimed,
    Rejected,
    IntegrationFailed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its planner is still writing it.
    Draft,
    /// Any coder may claim it.
    Unclaimed,
    Claimed {
        holder: TaskHolder,
        from: TaskOrigin,
    },
    ReadyForReview {
        author: Name,
        commit: String,
        review: Option<TaskHolder>,
    },
    Approved,
    Rejected {
        author: Option<Name>,
    },
    Merged,
    /// Its merge failed, or the tests after it.
    IntegrationFailed,
    /// It waits for its planner.
    Blocked,
    Superseded,
    Abandoned,
}

impl State {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Draft => "DRAFT",
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed { .. } => "CLAIMED",
            Self::ReadyForReview { .. } => "READY_FOR_REVIEW",
            Self::Approved => "APPROVED",
            Self::Rejected { .. } => "REJECTED",
            Self::Merged => "MERGED",
            Self::IntegrationFailed => "INTEGRATION_FAILED",
            Self::Blocked => "BLOCKED",
            Self::Superseded => "SUPERSEDED",
            Self::Abandoned => "ABANDONED",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Finalize,
    /// A coder claims it; its dependencies were checked before.
    Claim(TaskHolder),
    Iterate(TaskHolder),
    Submit {
        holder: TaskHolder,
        commit: String,
    },
    /// The lease of this epoch has expired or was released.
    Expire {
        /// Epoch of the claim or review.
        epoch: u64,
    },
    Review(TaskHolder),
    Approve {
        holder: TaskHolder,
        commit: String,
    },
    Reject {
        holder: TaskHolder,
        commit: String,
    },
    Merge,
    FailIntegration,
    /// It is blocked by its holder, or by a planner or supervisor, which hold nothing.
    Block(Option<TaskHolder>),
    Unblock,
    Supersede,
    Abandon,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make a fresh worktree at the integration branch.
    FreshWorktree,
    /// Continue in the existing worktree.
    KeepWorktree,
    Near(LimitKind),
    /// The coder has failed at the task.
    GivenUp {
        by: Name,
        limit: LimitKind,
        /// Whether the task is exhausted now: no coder can claim it any more.
        is_exhausted: bool,
    },
}

impl From<TaskOrigin> for State {
    fn from(origin: TaskOrigin) -> Self {
        match origin {
            TaskOrigin::Unclaimed => Self::Unclaimed,
            TaskOrigin::Rejected => Self::Rejected { author: None },
            TaskOrigin::IntegrationFailed => Self::IntegrationFailed,
        }
    }
}
