//! What an event says about the state of its agent, for `team`.
//!
//! | event | state |
//! |---|---|
//! | `start` | idle; after a compaction, as before |
//! | `prompt`, `tool` | working |
//! | `stop` | idle; if the hook continues with the turn, working |
//! | `permission` | blocked, with the tool |
//! | `notification` | blocked by a permission or a question; idle; working; or as before |
//! | `failure` | limited, or failed with the error |
//! | `end` | ended; after `/clear`, as before: a new session follows |
//!
//! What an agent has used, where its program keeps no record that could be read: the plugin says it with its hooks, or
//! the agent with the end of a turn, and this writes the record, `.ensemble/sessions/NAME.usage.ndjson`.

use std::io::Write as _;
use std::path::PathBuf;

use ensemble_app::agent_program::AgentProgram;
use ensemble_core::durable::{Dir, FileModes};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::MessageId;
use ensemble_tmux::session::{Activity, AgentSession};
use serde_json::json;

use super::{Event, EventInput, Hook};

/// The state after this event; `None` if the event does not change it.
fn activity(hook: &Hook<'_>) -> Option<(Activity, Option<String>)> {
    let input = &hook.input;
    let source = input.source.as_deref();
    match hook.event {
        Event::Start => (source != Some("compact")).then_some((Activity::Idle, None)),
        Event::Prompt | Event::Tool => Some((Activity::Working, None)),
        Event::Stop => Some((Activity::Idle, None)),
        Event::Permission => {
            let tool = input.tool_name.as_deref().unwrap_or("a tool");
            Some((Activity::Blocked, Some(format!("permission: {tool}"))))
        }
        Event::Notification => {
            let kind = input.notification_type.as_deref().unwrap_or_default().to_lowercase();
            let said = || input.message.clone().or_else(|| Some(kind.clone()));
            match kind.as_str() {
                "idle_prompt" => Some((Activity::Idle, None)),
                // OpenCode after an answer of the person, or after a pause for a limit.
                "working" => Some((Activity::Working, None)),
                kind if kind.contains("permission") => Some((Activity::Blocked, said())),
                kind if kind.contains("dialog") => Some((Activity::Blocked, said())),
                _ => None,
            }
        }
        Event::Failure => {
            let error = input.error.clone().unwrap_or_else(|| "unknown error".to_owned());
            let is_limit = ["rate_limit", "billing", "overloaded", "quota"]
                .iter()
                .any(|limit| error.contains(limit));
            let state = if is_limit { Activity::Limited } else { Activity::Failed };
            Some((state, Some(error)))
        }
        Event::End => (input.reason.as_deref() != Some("clear")).then_some((Activity::Ended, None)),
        Event::Wait => None,
    }
}

pub(super) fn changes_nothing(hook: &Hook<'_>, session: &AgentSession, due: &[MessageId]) -> bool {
    let same_state = activity(hook).is_none_or(|(activity, detail)| {
        (activity, &detail) == (session.activity, &session.detail)
    });
    let same_session = session.id == hook.input.session_id && is_same_process(hook, session);
    let record = hook.input.transcript_path.as_ref();
    let is_known = record.is_none_or(|record| session.records.contains(record));
    let used_nothing = !is_usage_said(hook);
    same_state
        && same_session
        && is_known
        && used_nothing
        && due.is_empty()
        && session.unshown.is_empty()
        && session.carrying.is_empty()
}

fn is_same_process(hook: &Hook<'_>, session: &AgentSession) -> bool {
    (session.pid, session.started) == hook.process.unzip()
}

/// Whether the agent has left the conversation in which it got what it holds. A program that was started again and
/// resumes a conversation may know it. OpenCode continues a conversation while it shows another.
pub(super) fn leaves_conversation(hook: &Hook<'_>, session: &AgentSession) -> bool {
    let EventInput { source, session_id, .. } = &hook.input;
    hook.event == Event::Start
        && match source.as_deref() {
            Some("clear") => true,
            Some("resume") => {
                hook.program != AgentProgram::Opencode
                    && session.id.is_some()
                    && session.id != *session_id
                    && is_same_process(hook, session)
            }
            _ => false,
        }
}

pub(super) fn record_event(hook: &Hook<'_>, session: &mut AgentSession) {
    let input = &hook.input;
    if session.id != input.session_id || !is_same_process(hook, session) {
        // The new session knows nothing of earlier messages.
        session.hinted.clear();
        session.blocked_for.clear();
        session.reminded.clear();
        session.asked.clear();
        // OpenCode opens a session for the mail that its waiter was given before.
        if session.id.is_some() {
            session.unconfirmed.clear();
        }
    }
    if hook.event == Event::Stop {
        session.end_turn();
    }
    if hook.event == Event::Start {
        session.introduced = None;
        session.hinted.clear();
    }
    session.id.clone_from(&input.session_id);
    hook.program.word().clone_into(&mut session.provider);
    (session.pid, session.started) = hook.process.unzip();
    if let Some(record) = &input.transcript_path {
        session.add_record(record);
    }
    if let Some(record) = append_usage(hook) {
        session.add_record(&record);
    }
    if let Some((activity, detail)) = activity(hook) {
        session.set(activity, detail);
    }
}

/// The largest record, in bytes; what comes after is not counted.
const RECORD_BYTES_MAX: u64 = 32 * 1024 * 1024;

fn is_usage_said(hook: &Hook<'_>) -> bool {
    matches!(hook.program, AgentProgram::Opencode | AgentProgram::Acp)
        && (hook.event == Event::Prompt || !hook.input.usage.is_empty())
}

/// Adds what the event says. The path of the record; none if nothing was added.
fn append_usage(hook: &Hook<'_>) -> Option<PathBuf> {
    if !is_usage_said(hook) {
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
