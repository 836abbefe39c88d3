//! Reasons why a decision was refused.

use super::{Decision, Outcome};
use crate::message::Name;

/// Why a decision was refused. Its text is the answer to the agent that tried.
///
/// ```
/// use ensemble_core::proto::request::DecisionRefusal;
/// let refusal = DecisionRefusal::Unknown { id: "abc".to_owned() };
/// assert_eq!(refusal.to_string(), "Error: Unknown request_id 'abc'");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefusal {
    /// There is no such request. The text is the seed's.
    #[error("Error: Unknown request_id '{id}'")]
    Unknown {
        /// The given id.
        id: String,
    },
    /// The request was decided before.
    #[error("Error: request_id '{id}' was {} by {} at {}: the first decision counts", .decision.outcome.word(), .decision.by, .decision.at)]
    Decided {
        /// Id of the request.
        id: String,
        /// The first decision, which counts.
        decision: Decision,
    },
    /// Only the addressee may decide the request.
    #[error("Error: request_id '{id}' is addressed to {to}: {by} may not decide it")]
    NotAddressee {
        /// Id of the request.
        id: String,
        /// The addressee.
        to: Name,
        /// The agent that tried.
        by: Name,
    },
    /// A requester must not decide its own request.
    #[error(
        "Error: request_id '{id}' was made by {by}: a requester may not decide its own request"
    )]
    OwnRequest {
        /// Id of the request.
        id: String,
        /// The requester.
        by: Name,
    },
    /// Only the requester may cancel the request.
    #[error("Error: request_id '{id}' was made by {from}: {by} may not cancel it")]
    NotRequester {
        /// Id of the request.
        id: String,
        /// The requester.
        from: Name,
        /// The agent that tried.
        by: Name,
    },
    /// A request expires only after its deadline.
    #[error("Error: request_id '{id}' cannot expire yet: its deadline is not over")]
    NotOver {
        /// Id of the request.
        id: String,
    },
    /// No such kind of request is defined.
    #[error("Error: Unknown kind of request '{kind}': there are {}", .known.join(", "))]
    UnknownKind {
        /// The given kind.
        kind: String,
        /// The defined kinds.
        known: Vec<String>,
    },
    /// Another request has this id.
    #[error("Error: request_id '{id}' is taken by another request: choose another id")]
    Taken {
        /// The id.
        id: String,
    },
    /// The task waits for the answer to an earlier plan.
    #[error(
        "Error: the plan of {by} for task '{task}' is pending as request_id '{id}': wait for {to}, or cancel it first"
    )]
    PlanPending {
        /// Id of the earlier plan's request.
        id: String,
        /// The task.
        task: String,
        /// The addressee of the earlier plan.
        to: Name,
        /// The author of the earlier plan.
        by: Name,
    },
}

impl DecisionRefusal {
    /// Id of the request concerned; empty if there is none.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Unknown { id }
            | Self::Decided { id, .. }
            | Self::NotAddressee { id, .. }
            | Self::OwnRequest { id, .. }
            | Self::NotRequester { id, .. }
            | Self::NotOver { id }
            | Self::Taken { id }
            | Self::PlanPending { id, .. } => id,
            Self::UnknownKind { .. } => "",
        }
    }

    /// The stable word for it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown",
            Self::Decided { .. } => "decided",
            Self::NotAddressee { .. } => "not_addressee",
            Self::OwnRequest { .. } => "own_request",
            Self::NotRequester { .. } => "not_requester",
            Self::NotOver { .. } => "not_over",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Taken { .. } => "taken",
            Self::PlanPending { .. } => "plan_pending",
        }
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Outcome {
    /// The stable word for it, as in the file of a decision: see [`PendingRequest`](crate::PendingRequest).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}
