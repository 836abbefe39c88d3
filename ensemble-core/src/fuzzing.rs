//! What fuzzers and their regressions reach (feature `fuzzing`): readers of hostile input that are
//! public for fuzzers only. Nothing here is promised to other programs.

use std::path::Path;

use serde_json::Value;

use crate::Result;
use crate::agent::AgentState;
use crate::board::text;
use crate::message::canonical_agrees;
use crate::pane::PaneState;
use crate::provider::Profile;
use crate::tmux;

pub use crate::tmux::ControlAnswer;

/// The most bytes of a line and the most lines of a block that the parser keeps.
pub const CONTROL_LIMITS: (usize, usize) = tmux::CONTROL_LIMITS;

/// Reads what a tmux server has written to a control client, line by line.
#[must_use]
pub fn control_answers(bytes: &[u8]) -> Vec<ControlAnswer> {
    tmux::control_answers(bytes)
}

/// Reads the lines of one look at a pane: how high it says that it is, and how many lines of screen
/// were found. `None` if they describe no pane.
#[must_use]
pub fn pane_snapshot(lines: &[String]) -> Option<(usize, usize)> {
    tmux::pane_snapshot(lines)
}

/// Whether the reader of canonical envelopes, if it reads this file at all, reads what the YAML parser
/// reads.
#[must_use]
pub fn envelope_readers_agree(file: &str) -> bool {
    canonical_agrees(file)
}

/// What a blackboard's text says, as the code reads it that changes it in place.
///
/// # Errors
/// The reader refuses the text.
pub fn board_value(source: &str) -> Result<Value> {
    Ok(text::Text::parse(source, Path::new("state.yaml"))?.value())
}

/// The blackboard's text, changed in place until it says `value`.
///
/// # Errors
/// It is refused, or cannot be changed as it is laid out.
pub fn board_update(source: &str, value: &Value) -> Result<String> {
    let path = Path::new("state.yaml");
    Ok(text::Text::parse(source, path)?.update(value, path)?.source().to_owned())
}

/// The comments of a blackboard's text, sorted.
///
/// # Errors
/// The reader refuses the text.
pub fn board_comments(source: &str) -> Result<Vec<String>> {
    let text = text::Text::parse(source, Path::new("state.yaml"))?;
    Ok(text.comments().into_iter().map(str::to_owned).collect())
}

/// The states of all rules of a profile that match what a pane shows, whichever decides.
#[must_use]
pub fn matching_rules(profile: &Profile, pane: &PaneState) -> Vec<AgentState> {
    profile.matching(pane)
}
