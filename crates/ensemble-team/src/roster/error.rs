//! Errors of the roster.

use ensemble_core::AreaError;
use ensemble_core::message::Name;

/// The roster was not changed. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosterError {
    /// The roster has no such agent.
    #[error("the roster has no agent `{agent}`")]
    Unknown {
        /// The agent.
        agent: Name,
    },
    /// A member was to be written into another member's file.
    #[error("member `{member}` cannot be written as `{name}`")]
    OtherName {
        /// Name of the file.
        name: Name,
        /// Name in the member.
        member: Name,
    },
    /// Another host of the team has an agent of this name.
    #[error("`{agent}` is an agent of the team on host {host}")]
    Elsewhere {
        /// The agent.
        agent: Name,
        /// The host.
        host: Name,
    },
}

impl AreaError for RosterError {
    fn is_invariant_broken(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. })
    }
}
