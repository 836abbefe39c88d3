//! Permissions that an agent without a terminal asks for: our everyday verbs are allowed, and everything else is a
//! request to the person who runs the team.
//!
//! A request that its agent does not wait for any more is cancelled: the turn has ended, or the agent was started again.

use ensemble_app::asking;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::printable;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::proto::request::{Outcome as Answer, PERMISSION, RequestKind};
use ensemble_core::requests::NewRequest;
use ensemble_core::spool::Spool;
use ensemble_tmux::provider::everyday_verbs;
use serde_json::{Value, json};

use crate::context::{Context, Outcome};

/// Characters that a shell reads outside of quotes, and that none of our plain commands needs.
const SHELL_CHARACTERS: &str = "|<>()$`{}\n\\*?[]#~!&";

const RESPONSE_END: &str = ".response";
const RESPONSES_MAX: usize = 100;

pub(super) struct AskedPermission {
    pub(super) call: Value,
    pub(super) options: Value,
    request: Name,
}

impl AskedPermission {
    pub(super) fn ask(
        context: &Context,
        queue: &ProjectQueue,
        agent: &Name,
        (call, params): (&Value, &Value),
    ) -> Outcome<Self> {
        let tool = &params["toolCall"];
        let mut text = printable(title_of(tool)).into_owned();
        if let Some(command) = command_of(tool).filter(|it| !text.contains(*it)) {
            text.push_str(&format!("\n{}", printable(command)));
        }
        let content = tool["content"].as_array().into_iter().flatten();
        for said in content.filter_map(|it| it["content"]["text"].as_str()) {
            text.push_str(&format!("\n{}", printable(said)));
        }
        let ask = NewRequest::new(PERMISSION, agent.clone(), Name::operator(), text);
        let entry = asking::ask(context, queue, ask)?;
        let (call, options) = (call.clone(), params["options"].clone());
        Ok(Self { call, options, request: entry.request.request_id })
    }

    /// Whether the person allows it; `None` before there is an answer.
    pub(super) fn answer(&self, context: &Context, queue: &ProjectQueue) -> Outcome<Option<bool>> {
        let entry = asking::requests(context, queue)?.expire(&self.request)?;
        let decision = entry.and_then(|entry| entry.decision);
        Ok(decision.map(|decision| decision.outcome == Answer::Approved))
    }

    pub(super) fn withdraw(
        &self,
        context: &Context,
        queue: &ProjectQueue,
        agent: &Name,
    ) -> Outcome {
        let requests = asking::requests(context, queue)?;
        requests.cancel(self.request.as_str(), agent, "its turn has ended")?;
        Ok(())
    }
}

/// Withdraws what the agent asked before it was restarted.
pub(super) fn withdraw_earlier(context: &Context, queue: &ProjectQueue, agent: &Name) -> Outcome {
    let requests = asking::requests(context, queue)?;
    for entry in requests.list()?.0 {
        let asked = &entry.request;
        let is_its = asked.from == *agent && asked.kind.as_str() == PERMISSION;
        if is_its && entry.decision.is_none() {
            requests.cancel(asked.request_id.as_str(), agent, "it was started again")?;
        }
    }
    Ok(())
}

/// Whether a message brings the answer to such a question. The agent learns it from its call.
pub(in crate::hooks) fn is_response(spool: &Spool, mailbox: &Name, id: &MessageId) -> bool {
    let kind =
        |envelope: Envelope| envelope.kind.as_str() == RequestKind::permission().response_type;
    id.as_str().ends_with(RESPONSE_END) && spool.peek(mailbox, id).is_ok_and(kind)
}

pub(super) fn settle_responses(queue: &ProjectQueue, agent: &Name, mailbox: &Name) -> Outcome {
    let Some(spool) = queue.directory() else { return Ok(()) };
    for id in spool.due_ids_for(mailbox, agent, RESPONSES_MAX)? {
        if is_response(spool, mailbox, &id)
            && let Some(delivery) = spool.receive_id(mailbox, &id, agent)?
        {
            spool.settle(&delivery.lease)?;
        }
    }
    Ok(())
}

pub(crate) fn outcome(options: &Value, is_allowed: bool) -> Value {
    let kinds = match is_allowed {
        true => ["allow_once", "allow_always"],
        false => ["reject_once", "reject_always"],
    };
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let of_kind = |kind: &str| options.iter().find(|option| option["kind"] == kind);
    match kinds.into_iter().find_map(of_kind) {
        Some(option) => {
            json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } })
        }
        None => json!({ "outcome": { "outcome": "cancelled" } }),
    }
}

pub(super) fn title_of(tool: &Value) -> &str {
    tool["title"].as_str().unwrap_or("a tool")
}

/// Whether a tool does nothing but what agents do every day: it runs our verbs, or it is our tool.
pub(crate) fn is_everyday(tool: &Value) -> bool {
    command_of(tool).map_or_else(|| is_our_tool(title_of(tool)), are_everyday)
}

pub(crate) fn command_of(tool: &Value) -> Option<&str> {
    // A description by the model is the title of Copilot.
    match &tool["rawInput"]["command"] {
        Value::String(line) => return Some(line),
        // Codex has the words of the program.
        Value::Array(words) => match &words[..] {
            [Value::String(shell), Value::String(flag), Value::String(line)]
                if shell.ends_with("sh") && flag == "-lc" =>
            {
                return Some(line);
            }
            _ => return Some(""),
        },
        _ => {}
    }
    match tool["kind"].as_str() {
        // Gemini CLI has the command as the title.
        Some("execute") => Some(title_of(tool)),
        // Kimi says neither the kind nor the arguments.
        None if title_of(tool) == "Bash" => {
            let said = tool["content"][0]["content"]["text"].as_str().unwrap_or_default();
            Some(said.strip_prefix("Requesting approval to Running: ").unwrap_or_default())
        }
        _ => None,
    }
}

/// Whether this is how an agent names a tool of `ensemble mcp`: `mcp__ensemble__send`, `send (ensemble MCP Server)`.
fn is_our_tool(title: &str) -> bool {
    let suffixed = title.strip_suffix(" (ensemble MCP Server)");
    let name = title.strip_prefix("mcp__ensemble__").or(suffixed).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

fn are_everyday(line: &str) -> bool {
    let verbs = everyday_verbs();
    let is_one = |command: &str| {
        let said = command.trim().strip_prefix("ensemble ");
        said.is_some_and(|said| {
            let mut ends = verbs.iter().filter_map(|verb| said.trim().strip_prefix(verb.as_str()));
            ends.any(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    };
    commands_of(line).is_some_and(|commands| commands.iter().all(|command| is_one(command)))
}

/// The commands of a line, one after another; `None` if a shell would do more with it than run them.
fn commands_of(line: &str) -> Option<Vec<String>> {
    let (mut commands, mut quote) = (vec![String::new()], None);
    let mut rest = line.trim().chars().peekable();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ';') => {
                commands.push(String::new());
                continue;
            }
            (None, '&') if rest.next_if_eq(&'&').is_some() => {
                commands.push(String::new());
                continue;
            }
            (None, c) if SHELL_CHARACTERS.contains(c) => return None,
            (Some('"'), '$' | '`' | '\\' | '!') => return None,
            _ => {}
        }
        commands.last_mut()?.push(c);
    }
    quote.is_none().then_some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_everyday_verbs_are_allowed() {
        for line in [
            "ensemble recv",
            "ensemble settle 01a",
            "ensemble reply 01a 'costs $5; (really) & more'",
            "ensemble send --to w2 \"it's done\"; ensemble settle 01a",
            "ensemble recv && ensemble request answer r1 --approve",
        ] {
            assert!(are_everyday(line), "{line}");
        }
        for line in [
            "ensemble down",
            "ensemble settled",
            "ensemble recv; rm -rf .",
            "ensemble recv | sh",
            "ensemble recv & rm x",
            "ensemble recv\nrm x",
            "ensemble send --to w2 \"$(cat key)\"",
            "ensemble send --to w2 'half",
            "ensemble recv > file",
            "rm x # ensemble recv",
            "/tmp/ensemble recv",
            "",
        ] {
            assert!(!are_everyday(line), "{line}");
        }
    }

    #[test]
    fn our_verbs_and_tools_are_known_as_each_agent_names_them() {
        let said = |text: &str| json!([{ "content": { "text": text } }]);
        for (tool, is_ours) in [
            (json!({ "kind": "execute", "title": "ensemble recv" }), true),
            (json!({ "kind": "execute", "title": "send (ensemble MCP Server)" }), false),
            (json!({ "title": "as told", "rawInput": { "command": "ensemble recv" } }), true),
            (json!({ "title": "ensemble recv", "rawInput": { "command": "rm x" } }), false),
            (json!({ "rawInput": { "command": ["/bin/bash", "-lc", "ensemble recv"] } }), true),
            (json!({ "title": "ensemble recv", "rawInput": { "command": ["rm", "x"] } }), false),
            (
                json!({ "title": "Bash", "content": said("Requesting approval to Running: ensemble recv") }),
                true,
            ),
            (json!({ "title": "Bash", "content": said("ensemble recv") }), false),
            (json!({ "kind": "other", "title": "mcp__ensemble__send" }), true),
            (json!({ "kind": "other", "title": "reply (ensemble MCP Server)" }), true),
            (json!({ "kind": "other", "title": "mcp__other__send" }), false),
            (json!({ "kind": "edit", "title": "ensemble recv" }), false),
        ] {
            assert_eq!(is_everyday(&tool), is_ours, "{tool}");
        }
    }

    #[test]
    fn an_answer_chooses_what_holds_for_this_once() {
        let option = |id: &str, kind: &str| json!({ "optionId": id, "kind": kind });
        let all = json!([
            option("a", "allow_always"),
            option("o", "allow_once"),
            option("r", "reject_once")
        ]);
        let chosen = |options: &Value, is_allowed| outcome(options, is_allowed)["outcome"].clone();
        assert_eq!(chosen(&all, true)["optionId"], "o");
        assert_eq!(chosen(&all, false)["optionId"], "r");
        assert_eq!(chosen(&json!([]), true)["outcome"], "cancelled");
    }
}
