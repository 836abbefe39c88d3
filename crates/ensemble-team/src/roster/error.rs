//! Errors of the roster.

use ensemble_core::AreaError;
use ensemble_core::message::Name;

/// The roster was not changed. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    #[error("the roster has no agent `{agent}`")]
    Unknown { agent: Name },
    #[error("member `{member}` cannot be written as `{name}`")]
    OtherName { name: Name, member: Name },
    #[error("`{agent}` is an agent of the team on host {host}")]
    Elsewhere { agent: Name, host: Name },
    #[error("pane {pane} belongs to {owner}: each agent needs its own pane")]
    PaneTaken { pane: String, owner: Name },
}

impl AreaError for RosterError {
    fn is_invariant_broken(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. } | Self::PaneTaken { .. })
    }
}
