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
