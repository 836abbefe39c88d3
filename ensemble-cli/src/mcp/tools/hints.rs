//! Commands of hints, as calls of tools: a model that has tools needs no shell.

use ensemble_app::door_hints::HintCall;
use ensemble_core::proto::request::{PLAN_APPROVAL, SHUTDOWN};
use serde_json::{Map, Value};

use crate::mcp::ToolContext;

/// A tool for a command, and its arguments by those of the command.
type CommandTool = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const COMMAND_TOOLS: &[CommandTool] = &[
    ("recv", "recv", &[]),
    ("inbox", "inbox", &[("limit", "limit")]),
    (
        "send",
        "send",
        &[("to", "to"), ("text", "message"), ("replaces", "replaces"), ("task", "task_id")],
    ),
    ("reply", "reply", &[("id", "id"), ("text", "message")]),
    ("settle", "settle", &[("id", "id")]),
    ("mailbox release", "release", &[("id", "id")]),
    ("recall", "recall", &[("id", "id")]),
    // It renews all that is held, for as long as the mailbox says.
    ("mailbox extend", "heartbeat", &[("id", ""), ("duration", "")]),
    (
        "report",
        "report",
        &[("task", "task_id"), ("status", "status"), ("summary", "summary"), ("reason", "reason")],
    ),
    ("assign", "assign", &[("worker", "worker"), ("text", "instruction"), ("task", "task_id")]),
    ("request plan", "plan_approval", &[("file", "plan"), ("task", "task_id"), ("to", "to")]),
    ("request shutdown", "shutdown_request", &[("name", "agent"), ("reason", "reason")]),
    ("task claim", "claim_task", &[("id", "task_id"), ("review", "review")]),
    ("task submit", "submit_task", &[("id", "task_id"), ("unchanged", "unchanged")]),
    (
        "task block",
        "block_task",
        &[("id", "task_id"), ("reason", "reason"), ("question", "questions")],
    ),
    ("step next", "next_step", &[("task", "task_id")]),
    ("agent pong", "pong", &[("attempt", "attempt")]),
    ("agent whoami", "whoami", &[]),
    ("team", "list_agents", &[]),
    ("mailbox list", "list_agents", &[]),
];

/// Answers to requests, by their kind: the tool, and what it calls a reason.
const ANSWER_TOOLS: [(&str, &str, &str); 2] =
    [(SHUTDOWN, "shutdown_response", "reason"), (PLAN_APPROVAL, "plan_approval", "feedback")];
/// Arguments of commands that the session of a tool knows.
const KNOWN: [&str; 3] = ["as", "json", "mailbox"];

/// A command as the call of a tool; `None` if no tool does the same.
pub(in crate::mcp) fn render_call(desk: &ToolContext, call: &HintCall) -> Option<String> {
    if call.method == "request answer" {
        return render_answer(desk, &call.params);
    }
    let (_, tool, names) = COMMAND_TOOLS.iter().find(|(command, ..)| *command == call.method)?;
    let mut arguments = Map::new();
    for (param, value) in call.params.iter().filter(|(param, _)| !KNOWN.contains(&&***param)) {
        let (_, argument) = names.iter().find(|(known, _)| known == param)?;
        if !argument.is_empty() {
            // The tool takes the text, not the file.
            let value = if param == "file" { "TEXT".into() } else { value.clone() };
            arguments.insert((*argument).to_owned(), value);
        }
    }
    Some(said(tool, arguments))
}

fn render_answer(desk: &ToolContext, params: &Map<String, Value>) -> Option<String> {
    let id = params.get("id")?;
    let entry = desk.requests().ok()?.find(id.as_str()?).ok()??;
    let kind = entry.request.kind.as_str();
    let (_, tool, reason) = ANSWER_TOOLS.iter().find(|(known, ..)| *known == kind)?;
    let mut arguments = Map::new();
    arguments.insert("request_id".to_owned(), id.clone());
    if params.contains_key("approve") || params.contains_key("reject") {
        arguments.insert("approve".to_owned(), params.contains_key("approve").into());
    }
    if let Some(text) = params.get("reason") {
        arguments.insert((*reason).to_owned(), text.clone());
    }
    Some(said(tool, arguments))
}

fn said(tool: &str, arguments: Map<String, Value>) -> String {
    match arguments.is_empty() {
        true => tool.to_owned(),
        false => format!("{tool} {}", Value::Object(arguments)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tools::schemas;

    #[test]
    fn each_tool_of_a_command_has_its_arguments() {
        let schemas = schemas();
        for (command, tool, names) in COMMAND_TOOLS {
            let (_, schema) = schemas.iter().find(|(name, _)| name == tool).expect(command);
            for (_, argument) in names.iter().filter(|(_, argument)| !argument.is_empty()) {
                assert!(schema["properties"].get(*argument).is_some(), "{command}: {argument}");
            }
        }
    }
}
