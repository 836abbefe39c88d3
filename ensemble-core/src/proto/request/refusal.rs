//! Why a decision was not taken.

use super::{Decision, Outcome};
use crate::message::Name;

/// Why a decision was not taken. Displayed as the answer to whoever tried.
///
/// ```
/// use ensemble_core::proto::request::Refusal;
/// let refusal = Refusal::Unknown { id: "abc".to_owned() };
/// assert_eq!(refusal.to_string(), "Error: Unknown request_id 'abc'");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such request. The seed's text.
    #[error("Error: Unknown request_id '{id}'")]
    Unknown {
        /// The id that was named.
        id: String,
    },
    /// It was decided before.
    #[error("Error: request_id '{id}' was {} by {} at {}: the first decision stands", .decision.outcome.word(), .decision.by, .decision.at)]
    Decided {
        /// Which request.
        id: String,
        /// By whom, what, when.
        decision: Decision,
    },
    /// Only its addressee may decide it.
    #[error("Error: request_id '{id}' is addressed to {to}: {by} may not decide it")]
    NotAddressee {
        /// Which request.
        id: String,
        /// Who may.
        to: Name,
        /// Who tried.
        by: Name,
    },
    /// Nobody may decide what they asked for themselves.
    #[error("Error: request_id '{id}' was made by {by}: nobody decides their own request")]
    OwnRequest {
        /// Which request.
        id: String,
        /// Who tried.
        by: Name,
    },
    /// Only whoever made it may cancel it.
    #[error("Error: request_id '{id}' was made by {from}: {by} may not cancel it")]
    NotRequester {
        /// Which request.
        id: String,
        /// Who may.
        from: Name,
        /// Who tried.
        by: Name,
    },
    /// Nobody has said what such a request is.
    #[error("Error: Unknown kind of request '{kind}': there are {}", .known.join(", "))]
    UnknownKind {
        /// The kind that was named.
        kind: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The id belongs to another request.
    #[error("Error: request_id '{id}' is taken by another request: choose another id")]
    Taken {
        /// Which id.
        id: String,
    },
    /// The task waits for the answer to an earlier plan.
    #[error(
        "Error: the plan of {by} for task '{task}' is pending as request_id '{id}': wait for {to}, or cancel it first with `ensemble request cancel {id}`"
    )]
    PlanPending {
        /// The earlier plan.
        id: String,
        /// For which task.
        task: String,
        /// Whose answer it waits for.
        to: Name,
        /// Whose plan it is.
        by: Name,
    },
}

impl Refusal {
    /// Which request it is about; empty if there is none.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Unknown { id }
            | Self::Decided { id, .. }
            | Self::NotAddressee { id, .. }
            | Self::OwnRequest { id, .. }
            | Self::NotRequester { id, .. }
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
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Taken { .. } => "taken",
            Self::PlanPending { .. } => "plan_pending",
        }
    }
}

impl Outcome {
    /// The stable word for it.
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
