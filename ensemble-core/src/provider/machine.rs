//! What agents tell to programs.

use super::profile::AgentState;

/// An agent's own word about its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What it says it is doing.
    pub state: AgentState,
    /// In its own words: `busy`, `permission prompt` …
    pub detail: String,
}
