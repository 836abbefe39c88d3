//! The tools, one function each. A new one is its function and its line in the table.

use std::fmt;

use ensemble_app::failure::Failure;
use ensemble_core::requests::Undecided;
use ensemble_core::{Error, message};
use ensemble_team::steps::{COMPLETION_TOOL, completion_schema};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Desk;

mod assign;
mod board;
pub(super) mod mail;
pub(super) mod outputs;
mod reading;
mod requests;
mod steps;
mod team;
pub(super) mod waiting;

pub(super) use reading::read_arguments;

/// What a tool answers, or what its caller has to change.
pub(super) type Answer = Result<Value, Trouble>;

/// Why a tool did not do it, for the model to read.
#[derive(Debug)]
pub(super) struct Trouble(String);

impl Trouble {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error.area::<Undecided>() {
            Some(_) => Failure::from(error).into(),
            None => Self(error.to_string()),
        }
    }
}

impl From<message::NameError> for Trouble {
    fn from(error: message::NameError) -> Self {
        Self(error.to_string())
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Told { text, hint: Some(hint), .. } => Self(format!("{text} ({hint})")),
            Failure::Told { text, .. } | Failure::Block { text, .. } => Self(text),
            Failure::ClosedPipe => Self("the output is closed".to_owned()),
        }
    }
}

/// A tool.
pub(super) struct ToolSpec {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) is_read_only: bool,
    pub(super) schema: fn(&Desk) -> Value,
    pub(super) call: fn(&Desk, Value) -> Answer,
}

macro_rules! tool {
    ($name:expr, $title:literal, $read_only:literal, $arguments:ty, $call:path, $description:literal) => {
        ToolSpec {
            name: $name,
            title: $title,
            description: $description,
            is_read_only: $read_only,
            schema: |_| schema_of::<$arguments>(),
            call: |desk, value| $call(desk, arguments::<$arguments>(value)?),
        }
    };
}

const TOOLS: [ToolSpec; 25] = [
    ToolSpec {
        name: COMPLETION_TOOL,
        title: "Report a step",
        description: "Submits the result of the assigned step. Updates the DB task_steps table.",
        is_read_only: false,
        schema: steps::schema,
        call: steps::submit,
    },
    tool!(
        "next_step",
        "Take the next step",
        false,
        steps::Next,
        steps::next,
        "Takes the next step that is due for you, with all that its prompt says. Report it with submit_step_completion."
    ),
    tool!(
        "plan_approval",
        "Submit or review a plan",
        false,
        requests::PlanApproval,
        requests::plan_approval,
        "Two modes. Without request_id: submit `plan` for approval, and do not begin before it is approved. With request_id: approve or reject a plan that was submitted to you."
    ),
    tool!(
        "shutdown_request",
        "Ask an agent to shut down",
        false,
        requests::ShutdownRequest,
        requests::shutdown_request,
        "Asks another agent to shut down. It approves, finishes and goes, or rejects with a reason. Needs authority, which a worker has only if the configuration says so."
    ),
    tool!(
        "shutdown_response",
        "Answer a shutdown request",
        false,
        requests::ShutdownResponse,
        requests::shutdown_response,
        "Approve or reject a request to shut down that you have received. Give a reason when you reject."
    ),
    tool!(
        "send",
        "Send a message",
        false,
        mail::Send,
        mail::send,
        "Sends a message to another agent's mailbox, and waits for its answer if you ask for that."
    ),
    tool!(
        "recall",
        "Take back a message",
        false,
        mail::Recall,
        mail::recall,
        "Takes back a message that you have sent, as long as it was not read: it is never delivered then."
    ),
    tool!(
        "assign",
        "Hand a task to a ready worker",
        false,
        assign::Assign,
        assign::assign,
        "Asks a worker whether it is ready, and if it is, puts the task into its mailbox. The watcher sees to it that it is taken, and tells the conductor if it is not. Does not wait for that."
    ),
    tool!(
        "inbox",
        "Look at your mail",
        true,
        mail::Fetch,
        mail::fetch,
        "Shows your mail that waits or is in your hands, without taking it."
    ),
    tool!(
        "recv",
        "Take a message",
        false,
        mail::Acknowledge,
        mail::acknowledge,
        "Takes a message, the next one if no id is given. From then on it is yours until you complete it or its lease ends."
    ),
    tool!(
        "recv_wait",
        "Wait for a message and take it",
        false,
        waiting::Wait,
        waiting::wait,
        "Waits for your next message and takes it. Returns without one when the time is up; call it again then."
    ),
    tool!(
        "reply",
        "Answer a message",
        false,
        mail::Reply,
        mail::reply,
        "Answers a message that you have taken: goes to its sender. A plain message is completed by it; other work stays yours."
    ),
    tool!(
        "settle",
        "Say that a message's work is done",
        false,
        mail::Complete,
        mail::complete,
        "Says that the work of a message that you have taken is done. A step's message is completed by submit_step_completion."
    ),
    tool!(
        "release",
        "Give a message back",
        false,
        mail::Release,
        mail::release,
        "Returns a message that you have taken and cannot work on, so that it is delivered again, perhaps later."
    ),
    tool!(
        "dead_letter",
        "Put a message aside",
        false,
        mail::DeadLetter,
        mail::dead_letter,
        "Puts aside a message that you have taken and that no agent can work on. A person sees it with your reason."
    ),
    tool!(
        "report",
        "Write a report",
        false,
        team::Report,
        team::report,
        "Writes a report on a task into queue/reports, from where it is routed to the coordinating agent."
    ),
    tool!(
        "claim_task",
        "Take a task",
        false,
        board::Claim,
        board::claim,
        "Takes a task from the blackboard, with its own worktree to work in. It is yours as long as you show that you live; no other agent can take it until then."
    ),
    tool!(
        "submit_task",
        "Submit your task",
        false,
        board::Submit,
        board::submit,
        "Submits the task that you have claimed for review: the commits in its worktree, where nothing may be left uncommitted."
    ),
    tool!(
        "verdict_task",
        "Approve or reject a task",
        false,
        board::Judge,
        board::judge,
        "Gives your verdict on a task whose review you have claimed. Reject with every point and its place."
    ),
    tool!(
        "block_task",
        "Say that your task cannot continue",
        false,
        board::Block,
        board::block,
        "Blocks the task that you have claimed: its planner must answer your questions first. Your work is kept."
    ),
    tool!(
        "handoff",
        "Hand your task over",
        false,
        board::Handoff,
        board::hand_off,
        "For a context that is used up: leaves notes on your task for the fresh agent that continues it. End afterwards."
    ),
    tool!(
        "pong",
        "Answer a ping",
        false,
        team::Pong,
        team::pong,
        "Answers AGENT_TEAM_PING <you> <attempt>: says that you are ready."
    ),
    tool!(
        "heartbeat",
        "Show that you are at work",
        false,
        team::Heartbeat,
        team::heartbeat,
        "Renews the leases of everything in your hands, messages and steps. Call it every few minutes during long work."
    ),
    tool!(
        "whoami",
        "Who you are",
        true,
        team::Nothing,
        team::whoami,
        "Says who you are here, how that is known, and what is in your hands."
    ),
    tool!(
        "list_agents",
        "Who belongs to the team",
        true,
        team::Nothing,
        team::list_agents,
        "Lists the agents of the team with their roles, mailboxes and states."
    ),
];

/// All tools.
pub(super) fn all() -> impl Iterator<Item = &'static ToolSpec> {
    TOOLS.iter()
}

/// The tool of a name.
pub(super) fn named(name: &str) -> Option<&'static ToolSpec> {
    all().find(|tool| tool.name == name)
}

/// Name and schema of every tool's arguments, for documents; `agent` has the seed's names.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let names = ["Tara", "Devon"].map(message::Name::new);
    let names: Vec<_> = names.into_iter().filter_map(Result::ok).collect();
    let rest = [
        ("next_step", schema_of::<steps::Next>()),
        ("plan_approval", schema_of::<requests::PlanApproval>()),
        ("shutdown_request", schema_of::<requests::ShutdownRequest>()),
        ("shutdown_response", schema_of::<requests::ShutdownResponse>()),
        ("send", schema_of::<mail::Send>()),
        ("recall", schema_of::<mail::Recall>()),
        ("assign", schema_of::<assign::Assign>()),
        ("inbox", schema_of::<mail::Fetch>()),
        ("recv", schema_of::<mail::Acknowledge>()),
        ("recv_wait", schema_of::<waiting::Wait>()),
        ("reply", schema_of::<mail::Reply>()),
        ("settle", schema_of::<mail::Complete>()),
        ("release", schema_of::<mail::Release>()),
        ("dead_letter", schema_of::<mail::DeadLetter>()),
        ("report", schema_of::<team::Report>()),
        ("claim_task", schema_of::<board::Claim>()),
        ("submit_task", schema_of::<board::Submit>()),
        ("verdict_task", schema_of::<board::Judge>()),
        ("block_task", schema_of::<board::Block>()),
        ("handoff", schema_of::<board::Handoff>()),
        ("pong", schema_of::<team::Pong>()),
        ("heartbeat", schema_of::<team::Heartbeat>()),
        ("whoami", schema_of::<team::Nothing>()),
        ("list_agents", schema_of::<team::Nothing>()),
    ];
    std::iter::once((COMPLETION_TOOL, completion_schema(&names))).chain(rest).collect()
}

/// A schema in one piece: some clients cannot follow references.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    for key in ["$schema", "title", "description"] {
        schema.remove(key);
    }
    let mut value = schema.to_value();
    plain(&mut value);
    if value.get("properties").is_none() {
        value["properties"] = json!({});
    }
    value
}

/// What need not be there has one type and not "or null": that is all that some clients understand.
/// Null is taken for absent anyway.
fn plain(schema: &mut Value) {
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
            object.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads a tool's arguments.
fn arguments<T: DeserializeOwned>(value: Value) -> Result<T, Trouble> {
    serde_json::from_value(value)
        .map_err(|error| Trouble(format!("nothing was done: {error}; see the tool's schema")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_schema_in_one_piece() {
        let schemas = schemas();
        let names: Vec<&str> = schemas.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, all().map(|tool| tool.name).collect::<Vec<_>>());
        for (name, schema) in schemas {
            let text = schema.to_string();
            let is_plain = !["$ref", "anyOf", "null"].iter().any(|word| text.contains(word));
            assert!(is_plain && schema["type"] == "object", "{name}: {text}");
            let output = outputs::schema(name).unwrap_or_else(|| panic!("{name} has no output"));
            assert!(!output.to_string().contains("$ref"), "{name}: {output}");
        }
    }

    #[test]
    fn a_wrong_argument_is_named() {
        let error = arguments::<mail::Send>(json!({ "to": "a", "massage": "x" })).unwrap_err();
        assert!(error.to_string().contains("unknown field `massage`"), "{error}");
    }
}
