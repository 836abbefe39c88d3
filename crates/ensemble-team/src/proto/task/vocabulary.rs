//! States, events and effects of a task.

use super::Limit;
use ensemble_core::message::Name;

/// The holder of a task or of its review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The agent.
    pub by: Name,
    /// Fencing epoch of the claim or review.
    pub epoch: u64,
}

/// The status to which a task returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The task was new.
    Unclaimed,
    /// The task had been rejected.
    Rejected,
    /// The merge of the task had failed.
    IntegrationFailed,
}

/// State of a task, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its planner is still writing it.
    Draft,
    /// Any coder may claim it.
    Unclaimed,
    /// A coder works on it.
    Claimed {
        /// The holder.
        holder: Holder,
        /// The status to which it returns.
        from: Origin,
    },
    /// Its coder has submitted it.
    ReadyForReview {
        /// The author.
        author: Name,
        /// The commit to review.
        commit: String,
        /// The reviewer, if there is one.
        review: Option<Holder>,
    },
    /// The task may be merged.
    Approved,
    /// The reviewer rejected the task.
    Rejected {
        /// The author, if known.
        author: Option<Name>,
    },
    /// It is in the integration branch.
    Merged,
    /// Its merge failed, or the tests after it.
    IntegrationFailed,
    /// It waits for its planner.
    Blocked,
    /// Other tasks replaced it.
    Superseded,
    /// The task was abandoned.
    Abandoned,
}

impl State {
    /// The seed's name for the state.
    #[must_use]
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

/// An event of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its planner has finished writing it.
    Finalize,
    /// A coder claims it; its dependencies were checked before.
    Claim(Holder),
    /// Its holder begins another iteration.
    Iterate(Holder),
    /// The holder submits the task.
    Submit {
        /// The holder.
        holder: Holder,
        /// The commit to review.
        commit: String,
    },
    /// Its holder gives up for lack of further ideas.
    GiveUp(Holder),
    /// The lease of this epoch is over, or was released.
    Expire {
        /// Epoch of the claim or review.
        epoch: u64,
    },
    /// A reviewer takes it.
    Review(Holder),
    /// The reviewer approves the task.
    Approve {
        /// The reviewer.
        holder: Holder,
        /// The reviewed commit.
        commit: String,
    },
    /// The reviewer rejects the task.
    Reject {
        /// The reviewer.
        holder: Holder,
        /// The reviewed commit.
        commit: String,
    },
    /// The task was merged.
    Merge,
    /// The merge of the task failed.
    FailIntegration,
    /// It is blocked by its holder, or by a planner or supervisor, which hold nothing.
    Block(Option<Holder>),
    /// The obstacle is gone.
    Unblock,
    /// Other tasks replace it.
    Supersede,
    /// It is no longer needed.
    Abandon,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make a fresh worktree at the integration branch.
    FreshWorktree,
    /// Continue in the existing worktree.
    KeepWorktree,
    /// A warning: the limit is near.
    Near(Limit),
    /// The coder has failed at the task.
    GivenUp {
        /// The coder.
        by: Name,
        /// The limit that was reached, if any.
        limit: Option<Limit>,
        /// Whether the task is exhausted now: no coder can claim it any more.
        is_exhausted: bool,
    },
}

impl From<Origin> for State {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Unclaimed => Self::Unclaimed,
            Origin::Rejected => Self::Rejected { author: None },
            Origin::IntegrationFailed => Self::IntegrationFailed,
        }
    }
}
