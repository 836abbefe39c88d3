//! What an agent has used, where its program keeps no record that could be read. The plugin says it with its hooks, or the agent with the end of a turn, and
//! this writes the record, `.ensemble/sessions/NAME.usage.ndjson`.

use std::io::Write as _;
use std::path::PathBuf;

use ensemble_app::agent_program::AgentProgram;
use ensemble_core::durable::{Dir, FileModes};
use ensemble_core::env::{Clock as _, SystemClock};
use serde_json::json;

use super::{Event, Hook};

/// The largest record, in bytes; what comes after is not counted.
const RECORD_BYTES_MAX: u64 = 32 * 1024 * 1024;

pub(super) fn is_said(hook: &Hook<'_>) -> bool {
    matches!(hook.program, AgentProgram::Opencode | AgentProgram::Acp)
        && (hook.event == Event::Prompt || !hook.input.usage.is_empty())
}

/// Adds what the event says. The path of the record; none if nothing was added.
pub(super) fn append(hook: &Hook<'_>) -> Option<PathBuf> {
    if !is_said(hook) {
        return None;
    }
    let name = format!("{}.usage.ndjson", hook.agent);
    let sessions = Dir::open(hook.sessions.dir()).ok()?;
    let mut file = sessions.open_append(&name, FileModes::default()).ok()?;
    if file.metadata().ok()?.len() > RECORD_BYTES_MAX {
        return None;
    }
    let mut lines = String::new();
    if hook.event == Event::Prompt {
        lines.push_str(&format!("{}\n", json!({ "at": SystemClock.wall(), "turn": true })));
    }
    for message in &hook.input.usage {
        lines.push_str(&format!("{message}\n"));
    }
    file.write_all(lines.as_bytes()).ok()?;
    Some(sessions.path().join(name))
}
