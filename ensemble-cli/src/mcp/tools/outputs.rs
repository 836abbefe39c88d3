//! Members of each tool's structured result, in the notation of `printed`.

use serde_json::Value;

use crate::printed;

const OUTPUTS: &[(&str, &str)] = &[
    ("submit_step_completion", "..Submitted; message: text"),
    ("next_step", "..HandedPrompt"),
    ("plan_approval", "..Request; message: text"),
    ("shutdown_request", "..Request; message: text"),
    ("shutdown_response", "..Request; message: text"),
    (
        "send",
        "id: id; mailbox: name; state: =stored; already_stored: flag; outbox?: flag; warning?: text; replaced?: flag; reply?: object?",
    ),
    ("recall", "copies: [object]"),
    (
        "assign",
        "id: id; mailbox: name; state: =stored; task_id: text; worker: name; attempt: count; ready_attempt: count; \
         watched: flag",
    ),
    ("inbox", "mailbox: name; messages: [object]; more?: text"),
    ("recv", "..Received"),
    ("recv_wait", "received: flag; waited_seconds: count; message?: object"),
    ("reply", "id: id; mailbox: name; answered: id; settled: flag; waiting: count; warning?: text"),
    ("settle", "id: id; state: =settled; already_settled: flag; waiting?: count"),
    ("release", "id: id; mailbox: name; state: word(queued acked settled dead gone)"),
    ("dead_letter", "id: id; mailbox: name; state: =dead"),
    ("report", "file: text; task_id: text; settled: [id]"),
    ("claim_task", "..Claimed; message: text"),
    ("submit_task", "task: name; status: text; commit: text?; message: text"),
    ("verdict_task", "task: name; status: text; commit: text?"),
    ("block_task", "task: name; status: text; message: text"),
    ("handoff", "task: name?; task_id: name?; exit: count; message: text"),
    ("pong", "worker: name; attempt: count; asked: count?; is_waited_for: flag"),
    ("heartbeat", "steps: [object]; messages: [id]; lease_seconds: count; board: count?"),
    (
        "whoami",
        "agent: name; known_by: text; mailbox: name; role: text?; generation: count?; steps: [object]; \
         messages: [id]; tasks: [object]; holds: [object]",
    ),
    (
        "list_agents",
        "agents: [object]; unreadable: [text]; mailboxes: [name]; named_in_plans: [name]",
    ),
];

pub(in crate::mcp) fn schema(tool: &str) -> Option<Value> {
    let (_, members) = OUTPUTS.iter().find(|(name, _)| *name == tool)?;
    Some(printed::object_schema(members))
}
