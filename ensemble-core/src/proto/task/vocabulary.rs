//! Where a task is, what happens to it, and what is to be done.

use super::{Limit, Refusal};
use crate::message::Name;

/// Who has a task, or the review of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which agent.
    pub by: Name,
    /// Its fencing number: that of the claim.
    pub epoch: u64,
}

/// Where a task is given back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was new.
    Unclaimed,
    /// It had been rejected.
    Rejected,
    /// Its merge had failed.
    IntegrationFailed,
}

/// Where a task is, with what is known there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its planner still writes it.
    Draft,
    /// Anybody may claim it.
    Unclaimed,
    /// A coder works on it.
    Claimed {
        /// Who.
        holder: Holder,
        /// Where it goes back to.
        from: Origin,
    },
    /// Its coder is done.
    ReadyForReview {
        /// Who wrote it.
        author: Name,
        /// What is to be reviewed.
        commit: String,
        /// Who reviews it.
        review: Option<Holder>,
    },
    /// It may be merged.
    Approved,
    /// Its reviewer said no.
    Rejected {
        /// Who wrote it.
        author: Option<Name>,
    },
    /// It is in the integration branch.
    Merged,
    /// It could not be merged, or tests failed after it was.
    IntegrationFailed,
    /// It waits for its planner.
    Blocked,
    /// Other tasks took its place.
    Superseded,
    /// It was given up.
    Abandoned,
}

impl State {
    /// The seed's name.
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

/// What happens to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its planner has written all of it.
    Finalize,
    /// A coder takes it; what it depends on was looked at before.
    Claim(Holder),
    /// Its holder begins another iteration.
    Iterate(Holder),
    /// Its holder is done.
    Submit {
        /// Who.
        holder: Holder,
        /// What is to be reviewed.
        commit: String,
    },
    /// Its holder does not know what else to try.
    GiveUp(Holder),
    /// The lease of this epoch is over, or was given back.
    Expire {
        /// Which claim or review.
        epoch: u64,
    },
    /// A reviewer takes it.
    Review(Holder),
    /// Its reviewer says yes.
    Approve {
        /// Who.
        holder: Holder,
        /// What was reviewed.
        commit: String,
    },
    /// Its reviewer says no.
    Reject {
        /// Who.
        holder: Holder,
        /// What was reviewed.
        commit: String,
    },
    /// It was merged.
    Merge,
    /// It could not be.
    FailIntegration,
    /// It cannot go on: says its holder, or the planner or a supervisor, who hold nothing.
    Block(Option<Holder>),
    /// What blocked it is gone.
    Unblock,
    /// Other tasks take its place.
    Supersede,
    /// Nobody needs it.
    Abandon,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The holder starts from the integration branch.
    FreshWorktree,
    /// The holder goes on in the worktree that is there.
    KeepWorktree,
    /// A warning: the limit is near.
    Near(Limit),
    /// This coder has failed; the number of coders that did.
    GivenUp {
        /// Who.
        by: Name,
        /// Why.
        limit: Option<Limit>,
        /// Now exhausted: nobody can claim it any more.
        is_exhausted: bool,
    },
    /// Nothing was changed.
    Refused(Refusal),
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
