//! What fuzzers and their regressions reach (feature `fuzzing`): readers of hostile input that are
//! otherwise private. Nothing here is promised to other programs.

use ensemble_core::agent::AgentState;
use ensemble_core::pane::PaneState;

use crate::provider::Profile;
use crate::tmux;

pub use crate::tmux::ControlAnswer;

/// The most bytes of a line and the most lines of a block that the parser keeps.
pub const CONTROL_LIMITS: (usize, usize) = tmux::CONTROL_LIMITS;

/// Reads what a tmux server has written to a control client, line by line.
pub fn control_answers(bytes: &[u8]) -> Vec<ControlAnswer> {
    tmux::control_answers(bytes)
}

/// Reads the lines of one look at a pane: how high it says that it is, and how many lines of screen
/// were found. `None` if they describe no pane.
pub fn pane_snapshot(lines: &[String]) -> Option<(usize, usize)> {
    tmux::pane_snapshot(lines)
}

/// The states of all rules of a profile that match what a pane shows, whichever decides.
pub fn matching_rules(profile: &Profile, pane: &PaneState) -> Vec<AgentState> {
    profile.matching(pane)
}
