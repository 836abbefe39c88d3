//! How our words reach an agent: as the answer of its hook, or through its server.

use std::io::Write as _;

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::failure::Outcome;
use ensemble_tmux::session::DeliveryWay;
use serde_json::{Value, json};

use super::carry::CarriedMail;
use super::{Event, Hook};

pub(super) trait Voice {
    /// Says `said` to the agent and `shown` to the person at its screen. Once this has returned, the words have left
    /// this process.
    fn say(&self, hook: &Hook<'_>, said: &str, shown: &str) -> Outcome;

    /// Pid and start of the agent's process, where this process need not be below it.
    fn process(&self) -> Option<(u32, u64)> {
        None
    }

    /// Whether messages themselves may be said this way, or only that they wait.
    fn hands_over(&self, _: DeliveryWay) -> bool {
        true
    }

    /// Takes mail that was said and that the agent may still miss; returns mail that has arrived.
    fn await_arrival(&self, _: &Hook<'_>, mail: CarriedMail) -> Option<CarriedMail> {
        Some(mail)
    }
}

/// The answer of a hook on stdout. A waiter speaks on stderr.
pub(super) struct HookAnswer;

impl Voice for HookAnswer {
    fn say(&self, hook: &Hook<'_>, said: &str, shown: &str) -> Outcome {
        if hook.event == Event::Wait {
            let mut stderr = std::io::stderr().lock();
            stderr.write_all(said.as_bytes())?;
            return Ok(stderr.flush()?);
        }
        let name = hook.input.name.as_deref();
        let object = answer_object(hook.program, hook.event, name, said, shown);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{object}")?;
        Ok(stdout.flush()?)
    }
}

/// The answer that says `text` to the agent and `shown` to the person at its screen, which costs no tokens. `name` is the
/// event as the agent calls it.
fn answer_object(
    program: AgentProgram,
    event: Event,
    name: Option<&str>,
    text: &str,
    shown: &str,
) -> Value {
    if event == Event::Stop {
        // Codex takes no other fields beside these, and all programs show the reason.
        return json!({ "decision": "block", "reason": text });
    }
    let mut answer = json!({});
    if !text.is_empty() {
        let name = name.unwrap_or_else(|| own_name(program, event));
        answer["hookSpecificOutput"] = json!({ "hookEventName": name, "additionalContext": text });
    }
    if !shown.is_empty() {
        answer["systemMessage"] = shown.into();
    }
    answer
}

const fn own_name(program: AgentProgram, event: Event) -> &'static str {
    match (program, event) {
        (AgentProgram::Gemini, Event::Prompt) => "BeforeAgent",
        (AgentProgram::Gemini, Event::Tool) => "AfterTool",
        (AgentProgram::Opencode, Event::Prompt) => "chat.message",
        (AgentProgram::Opencode, Event::Tool) => "tool.execute.after",
        (_, Event::Prompt) => "UserPromptSubmit",
        (_, Event::Tool) => "PostToolUse",
        _ => "SessionStart",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_is_answered_in_its_own_words() {
        let said = |program, event| answer_object(program, event, None, "x", "");
        let context = |name: &str| json!({ "hookSpecificOutput": { "hookEventName": name, "additionalContext": "x" } });
        for program in [AgentProgram::Claude, AgentProgram::Codex, AgentProgram::Gemini] {
            assert_eq!(said(program, Event::Start), context("SessionStart"));
            assert_eq!(said(program, Event::Stop), json!({ "decision": "block", "reason": "x" }));
        }
        assert_eq!(said(AgentProgram::Claude, Event::Tool), context("PostToolUse"));
        assert_eq!(said(AgentProgram::Codex, Event::Prompt), context("UserPromptSubmit"));
        assert_eq!(said(AgentProgram::Gemini, Event::Tool), context("AfterTool"));
        assert_eq!(said(AgentProgram::Gemini, Event::Prompt), context("BeforeAgent"));
        let renamed =
            answer_object(AgentProgram::Claude, Event::Tool, Some("PostToolUseFailure"), "x", "");
        assert_eq!(renamed["hookSpecificOutput"]["hookEventName"], "PostToolUseFailure");
        // At the end of a turn all programs show the reason itself.
        let shown = |event, text| answer_object(AgentProgram::Claude, event, None, text, "y");
        assert_eq!(shown(Event::Tool, "x")["systemMessage"], "y");
        assert_eq!(shown(Event::Prompt, ""), json!({ "systemMessage": "y" }));
        assert_eq!(shown(Event::Stop, "x"), json!({ "decision": "block", "reason": "x" }));
    }
}
