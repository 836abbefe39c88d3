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
    #[error("Error: Unknown request_id '{id}'")]
    Unknown { id: String },
    #[error("Error: request_id '{id}' was {} by {} at {}: the first decision counts", .decision.outcome.word(), .decision.by, .decision.at)]
    Decided { id: String, decision: Decision },
    #[error("Error: request_id '{id}' is addressed to {to}: {by} may not decide it")]
    NotAddressee { id: String, to: Name, by: Name },
    #[error(
        "Error: request_id '{id}' was made by {by}: a requester may not decide its own request"
    )]
    OwnRequest { id: String, by: Name },
    #[error("Error: {by} cannot ask itself: a requester may not decide its own request")]
    AsksItself { by: Name },
    #[error("Error: request_id '{id}' was made by {from}: {by} may not cancel it")]
    NotRequester { id: String, from: Name, by: Name },
    #[error("Error: request_id '{id}' cannot expire yet: its deadline is not over")]
    NotOver { id: String },
    #[error("Error: Unknown kind of request '{kind}': there are {}", .known.join(", "))]
    UnknownKind { kind: String, known: Vec<String> },
    #[error("Error: request_id '{id}' is taken by another request: choose another id")]
    Taken { id: String },
    #[error(
        "Error: the plan of {by} for task '{task}' is pending as request_id '{id}': wait for {to}, or cancel it first"
    )]
    PlanPending {
        /// Id of the earlier plan's request.
        id: String,
        task: String,
        to: Name,
        by: Name,
    },
}

impl DecisionRefusal {
    /// Id of the request concerned; empty if there is none.
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
            Self::UnknownKind { .. } | Self::AsksItself { .. } => "",
        }
    }

    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown",
            Self::Decided { .. } => "decided",
            Self::NotAddressee { .. } => "not_addressee",
            Self::OwnRequest { .. } | Self::AsksItself { .. } => "own_request",
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
