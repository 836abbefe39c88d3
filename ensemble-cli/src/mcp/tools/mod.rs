//! The tools, one function each. A new one is its function and its line in the table.

use std::fmt;

use ensemble_app::door_hints::{HintRenderer, render_hints};
use ensemble_app::failure::Failure;
use ensemble_core::{Error, message};
use ensemble_team::steps::{COMPLETION_TOOL, completion_schema};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ToolContext;

mod board;
pub(super) mod hints;
pub(super) mod mail;
pub(super) mod outputs;
mod reading;
mod requests;
mod steps;
mod team;
pub(super) mod waiting;

pub(super) use reading::{read_arguments, unknown_tool, without_wrapper};

pub(super) type ToolAnswer = Result<Value, ToolError>;

#[derive(Debug)]
pub(super) struct ToolError {
    text: String,
    pub(super) details: Option<Value>,
}

impl ToolError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), details: None }
    }

    pub(super) fn with_hints(self, render: HintRenderer<'_>) -> Self {
        Self { text: render_hints(&self.text, render), ..self }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<message::NameError> for ToolError {
    fn from(error: message::NameError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Told { text, hint: Some(hint), .. } => Self::new(format!("{text} ({hint})")),
            Failure::Told { text, .. } | Failure::Block { text, .. } => Self::new(text),
            Failure::ClosedPipe => Self::new("the output is closed"),
        }
    }
}

pub(super) struct ToolSpec {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) is_read_only: bool,
    pub(super) schema: fn(&dyn Fn() -> Vec<message::Name>) -> Value,
    pub(super) call: fn(&ToolContext, Value) -> ToolAnswer,
}

/// A tool that changes something. The parameter of its function says what arguments it has.
macro_rules! tool {
    ($name:literal, $title:literal, $call:path, $description:literal) => {
        ToolSpec {
            name: $name,
            title: $title,
            description: $description,
            is_read_only: false,
            schema: |_| schema_of_call($call),
            call: |desk, value| $call(desk, arguments(value)?),
        }
    };
}

const TOOLS: [ToolSpec; 25] = [
    ToolSpec {
        name: COMPLETION_TOOL,
        title: "Report a step",
        description: "Submits the result of the assigned step. Updates the DB task_steps table.",
        is_read_only: false,
        schema: |names| completion_schema(&names()),
        call: steps::submit,
    },
    tool!(
        "next_step",
        "Take the next step",
        steps::next,
        "Takes your next step with its whole prompt. Report it with submit_step_completion."
    ),
    tool!(
        "plan_approval",
        "Submit or review a plan",
        requests::plan_approval,
        "Without request_id: submits `plan`; do not begin before it is approved. With request_id: decides a plan that you review."
    ),
    tool!(
        "shutdown_request",
        "Ask an agent to shut down",
        requests::shutdown_request,
        "Asks an agent to finish and end. Needs authority."
    ),
    tool!(
        "shutdown_response",
        "Answer a shutdown request",
        requests::shutdown_response,
        "Answers a request to shut down. To reject, give a reason."
    ),
    tool!("send", "Send a message", mail::send, "Sends a message to an agent."),
    tool!(
        "recall",
        "Take back a message",
        mail::recall,
        "Takes back a message that you sent and that was not read yet."
    ),
    tool!(
        "assign",
        "Hand a task to a ready worker",
        team::assign,
        "Gives a task to a worker that says it is ready. The watcher follows it up."
    ),
    ToolSpec {
        is_read_only: true,
        ..tool!(
            "inbox",
            "Look at your mail",
            mail::fetch,
            "Shows your waiting and held mail, without taking it."
        )
    },
    tool!(
        "recv",
        "Take a message",
        mail::acknowledge,
        "Takes your next message. It is yours until you end it or its lease expires."
    ),
    tool!(
        "recv_wait",
        "Wait for a message and take it",
        waiting::wait,
        "Waits for your next message and takes it. If none came in time, call it again."
    ),
    tool!(
        "reply",
        "Answer a message",
        mail::reply,
        "Answers the sender of a message. Settles a plain message; other work stays yours."
    ),
    tool!(
        "settle",
        "Say that a message's work is done",
        mail::complete,
        "Ends a message that you took. A step ends with submit_step_completion."
    ),
    tool!(
        "release",
        "Give a message back",
        mail::release,
        "Returns a message that you cannot work on, to be delivered again."
    ),
    tool!(
        "dead_letter",
        "Put a message aside",
        mail::dead_letter,
        "Puts aside a message that no agent can work on. A person sees your reason."
    ),
    tool!(
        "report",
        "Write a report",
        team::report,
        "Reports the result of a task to the agent that coordinates it."
    ),
    tool!(
        "claim_task",
        "Take a task",
        board::claim,
        "Takes a task of the blackboard, with its own worktree. It is yours while you show signs of life."
    ),
    tool!(
        "submit_task",
        "Submit your task",
        board::submit,
        "Submits your task for review: the commits of its worktree, with nothing left uncommitted."
    ),
    tool!(
        "verdict_task",
        "Approve or reject a task",
        board::judge,
        "Approves or rejects the task whose review you claimed."
    ),
    tool!(
        "block_task",
        "Say that your task cannot continue",
        board::block,
        "Blocks your task until its planner has answered your questions. Your work is kept."
    ),
    tool!(
        "handoff",
        "Hand your task over",
        board::hand_off,
        "When your context is used up: leaves notes for the agent that continues your task. End afterwards."
    ),
    tool!("pong", "Answer a ping", team::pong, "Answers AGENT_TEAM_PING <you> <attempt>."),
    tool!(
        "heartbeat",
        "Show that you are at work",
        team::heartbeat,
        "Renews the leases of all that you hold. Call it every few minutes during long work."
    ),
    ToolSpec {
        is_read_only: true,
        ..tool!("whoami", "Who you are", team::whoami, "Shows who you are and what you hold.")
    },
    ToolSpec {
        is_read_only: true,
        ..tool!(
            "list_agents",
            "Who belongs to the team",
            team::list_agents,
            "Lists the agents of the team, with their states."
        )
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static ToolSpec> {
    TOOLS.iter()
}

/// The tool of a name, which some clients pass with the server's before it: `mcp__ensemble__send`.
pub(super) fn named(name: &str) -> Option<&'static ToolSpec> {
    let (_, own) = name.rsplit_once("ensemble").unwrap_or(("", name));
    all().find(|tool| tool.name == own.trim_start_matches(['_', '-', '.', '/', ':']))
}

const BOARD_TOOLS: [&str; 5] =
    ["claim_task", "submit_task", "verdict_task", "block_task", "handoff"];
/// The tools that a client is offered: those of the blackboard only where the project has one, as each tool costs its
/// model tokens in every session. Calls of the others are served, too. Those of steps are always offered: a step
/// comes as mail into a session that runs, and agents were seen to ask their model about it before they list the
/// tools again.
pub(super) fn offered(desk: &ToolContext) -> Vec<&'static ToolSpec> {
    let has_board = desk.has_board();
    all().filter(|tool| has_board || !BOARD_TOOLS.contains(&tool.name)).collect()
}

/// Name and schema of every tool's arguments, for documents; `agent` has the seed's names.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let names = || ["Tara", "Devon"].into_iter().flat_map(message::Name::new).collect();
    all().map(|tool| (tool.name, for_clients((tool.schema)(&names)))).collect()
}

fn schema_of_call<T: JsonSchema>(_: fn(&ToolContext, T) -> ToolAnswer) -> Value {
    schema_of::<T>()
}

/// A schema in one piece: some clients cannot follow references.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    for key in ["$schema", "title", "description"] {
        schema.remove(key);
    }
    let mut value = schema.to_value();
    without_null(&mut value);
    if value.get("properties").is_none() {
        value["properties"] = json!({});
    }
    value
}

/// What checks the value of an argument again. A model reads each such word in every session, and its call is checked
/// where it arrives.
const CHECKS: [&str; 6] =
    ["additionalProperties", "default", "format", "maxLength", "minimum", "pattern"];

pub(super) fn for_clients(mut schema: Value) -> Value {
    remove_checks(&mut schema);
    schema
}

fn remove_checks(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.retain(|key, value| value.is_object() || !CHECKS.contains(&key.as_str()));
            object.values_mut().for_each(remove_checks);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_checks),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An optional argument has one type and not "or null": that is all that some clients understand.
/// Null is treated as absent in any case.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|word| word != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| *choice != json!({ "type": "null" }));
                if let [Value::Object(only)] = &choices[..] {
                    let only = only.clone();
                    object.remove("anyOf");
                    // What the argument itself says goes before what its type says.
                    for (key, value) in only {
                        object.entry(key).or_insert(value);
                    }
                }
            }
            object.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn arguments<T: DeserializeOwned>(value: Value) -> Result<T, ToolError> {
    serde_json::from_value(value)
        .map_err(|error| ToolError::new(format!("nothing was done: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_schema_in_one_piece() {
        for (name, schema) in schemas() {
            let text = schema.to_string();
            let is_plain = !["$ref", "anyOf", "null"].iter().any(|word| text.contains(word));
            assert!(is_plain && schema["type"] == "object", "{name}: {text}");
            let output = outputs::schema(name).unwrap_or_else(|| panic!("{name} has no output"));
            assert!(!output.to_string().contains("$ref"), "{name}: {output}");
        }
    }
}
