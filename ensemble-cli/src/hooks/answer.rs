use ensemble_app::agent_program::AgentProgram;
use serde_json::{Value, json};

use super::Event;

/// The answer that says `text` to the agent and `shown` to the person at its screen, which costs no tokens. `name` is the
/// event as the agent calls it.
pub(super) fn object(
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
        let said = |program, event| object(program, event, None, "x", "");
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
            object(AgentProgram::Claude, Event::Tool, Some("PostToolUseFailure"), "x", "");
        assert_eq!(renamed["hookSpecificOutput"]["hookEventName"], "PostToolUseFailure");
        // At the end of a turn all programs show the reason itself.
        let shown = |event, text| object(AgentProgram::Claude, event, None, text, "y");
        assert_eq!(shown(Event::Tool, "x")["systemMessage"], "y");
        assert_eq!(shown(Event::Prompt, ""), json!({ "systemMessage": "y" }));
        assert_eq!(shown(Event::Stop, "x"), json!({ "decision": "block", "reason": "x" }));
    }
}
