//! Shapes of the objects that `--json` prints, by name.
//!
//! ```text
//! name: text       always there        id, name, stamp, text, count, number, flag, any, object
//! name?: text      may be missing      word(a b)   one of these words      =a   this word
//! name: text?      may be null         [text]      a list                  {text}   values by names
//! ..Shape          its members, too    @Shape      such an object          ...   and others
//! ```

mod work;

pub(super) use work::{BOARD, PROJECT};

/// One shape: its name, its summary, and its members.
pub(super) type OutputShape = (&'static str, &'static str, &'static str);

pub(super) const MAIL: &[OutputShape] = &[
    (
        "Stored",
        "A message after `send`, for each recipient",
        "id: id; mailbox: name; \
        state: word(stored notified submitted acked settled refused); already_stored: flag; outbox?: flag; \
        warning?: text; error?: text; project?: name; replaced?: flag; reply?: @Read",
    ),
    (
        "RecalledCopy",
        "A message that its sender wanted back, in one mailbox",
        "id: id; mailbox: name; recalled: flag; read_by: name?",
    ),
    (
        "MessageHeader",
        "The header of a message; none of it where the message cannot be read",
        "type?: name; from?: name; proof?: word(pass pane person); project?: name; to?: name; created_at?: stamp; \
        correlation_id?: text; causation_id?: text; replaces?: id; task_id?: text; attempt?: count; \
        priority?: count; when?: word(interrupt tool turn); \
        expires_at?: stamp; source?: text; traceparent?: text; attachment?: object; bytes?: count; error?: text",
    ),
    (
        "Listed",
        "A message in a mailbox, with the beginning of its text",
        "id: id; mailbox: name; state: word(queued acked settled dead); \
        epoch?: count; not_before?: count; holder?: name; ..MessageHeader; preview?: text",
    ),
    (
        "Read",
        "A message with its content: `body` is a mapping where the text is one",
        "id: id; mailbox: name; state?: word(queued acked settled dead); epoch?: count; \
        not_before?: count; holder?: name; ..MessageHeader; body: any; body_text: text; \
        attachment_path?: text; commands?: {text}",
    ),
    (
        "Received",
        "A message in the hands of its holder",
        "..Read; holder: name; epoch: count; lease_seconds: count; held: text; waiting: count; \
        head: text; commands: {text}; plan?: text; remark?: text",
    ),
    ("KnownProject", "A project of this user, as in NAME@PROJECT", "name: name; queue: text"),
    (
        "Moved",
        "A message and its new state",
        "id: id; mailbox: name; state: word(queued acked settled dead dropped); \
        already_settled?: flag; lease_seconds?: count; waiting?: count",
    ),
    (
        "Replied",
        "An answer, and the state of the answered message",
        "id: id; mailbox: name; answered: id; settled: flag; waiting: count; warning?: text",
    ),
    (
        "DeadLetter",
        "A dead letter",
        "id: id; mailbox: name; reason: text; at: stamp?; holder: name?; epoch: count; \
        place: text",
    ),
    (
        "DeadShown",
        "A dead letter with its message, or why that cannot be read",
        "..DeadLetter; state: =dead; ..MessageHeader; body?: any; body_text?: text; attachment_path?: text",
    ),
    (
        "MailboxSettings",
        "A mailbox",
        "mailbox: name; capacity: count?; attempts_max: count; lease_seconds: count; \
        done_days: count",
    ),
    ("MailboxRemoved", "A mailbox that was removed", "mailbox: name; unfinished: count"),
    (
        "Bound",
        "A pane whose agent is notified",
        "agent: name; mailbox: name; pane: text; provider: text",
    ),
    ("Unbound", "An agent that is not notified any more", "agent: name"),
    (
        "Assigned",
        "A task in the hands of its worker",
        "id: id; mailbox: name; state: word(stored acked settled escalated); \
        attempt: count; phase: count; task: text; task_id: text; worker: name",
    ),
    (
        "Instructed",
        "A batch for dispatch",
        "batch_id: text; mailbox: name; state: =stored; tasks: [text]",
    ),
    (
        "BatchEscalated",
        "A batch that no ready worker could take",
        "batch_id: text; escalation: @Escalation",
    ),
    (
        "Escalation",
        "An escalation",
        "task_id: text; worker?: text; attempt?: count; phase?: count; reason: text; \
        detail?: text; from?: text; escalated_at?: text; action?: text; ...",
    ),
    (
        "EscalationRow",
        "An escalation of the queue, the log or a ladder, or a file that cannot be read",
        "source?: text; ...",
    ),
    (
        "Summarised",
        "Summary of a batch",
        "batch_id: text; told: flag; file: text; session_id?: text; \
        status: text; total_tasks: count; completed_tasks: count; failed_tasks: count; missing_tasks?: [text]; \
        summary?: text; task_results?: [object]; errors?: [text]; completed_at?: text; ...",
    ),
    (
        "Reported",
        "A report that was dropped",
        "task_id: text; status: text; worker_id: text?; file: text; settled: [id]",
    ),
    (
        "Reviewed",
        "A verdict on a report",
        "task_id: text; status: text; file: text; cycles: count; \
        cycles_max: count?; stopped: flag",
    ),
    ("ReviewBegun", "A review that began", "task_id: text; reviewer: name; cycles: count"),
    ("ReviewLifted", "A resumed review", "task_id: text; cycles: count; stopped: =false"),
    (
        "Request",
        "A request",
        "request_id: text; kind: text; state: text; from: name; to: name; created_at: stamp; \
        deadline_at: stamp; task_id?: text; round?: count; previous?: text; decided_by?: name; decided_at?: stamp; \
        comment?: text",
    ),
    ("RequestShown", "A request with its content, under the kind's own name", "..Request; ..."),
    (
        "RequestRefused",
        "A refusal, on stdout beside the failure",
        "request_id: text; refused: text; error: text; \
        state?: text; decided_by?: name; decided_at?: stamp; comment?: text",
    ),
    (
        "Lifted",
        "What a team resumes from",
        "resumed: =true; by: text; lifted?: [text]; acknowledged?: flag",
    ),
    (
        "Control",
        "A control file",
        "file: word(PAUSE CHECKPOINT ABORT); since: stamp; reason: text; put: flag",
    ),
];

pub(super) const AGENTS: &[OutputShape] = &[
    (
        "Brought",
        "An agent and how it came up",
        "agent: name; how: word(running started restarted adopted joined \
        leaving lost); ended: flag; generation: count; role: text; provider: text; mailbox: name; pane: text?; \
        pid: count?; waits_for_person: text?; still_starting: flag",
    ),
    (
        "Session",
        "The session of the team",
        "session: text; socket?: text; session_state: text; watcher_state: text",
    ),
    ("GoingDown", "A team that is ended in the background", "going_down: =true; log: text"),
    (
        "Fate",
        "An agent that was asked to go",
        "agent: name; request_id: text?; state: text; detail: text",
    ),
    (
        "FoundPane",
        "A pane with an agent in its foreground",
        "pane: text; provider: text; session: text; window: count; \
        title: text; agent: name?",
    ),
    (
        "Member",
        "An agent of the team",
        "agent: name; role: text; provider: text; \
        state: word(idle working starting unknown waiting blocked limited shutdown gone); since: stamp?; why: text; \
        tasks: [text]; holds: [@Holding]; mailbox: name; unread: count?; overdue: flag; \
        recorded: word(up leaving shutdown); generation: count; ended: object?; pane: text?; pid: count?; \
        came: text; host: text; way_in: text?; supervisor: count?; waited_seconds: count?; watcher_running: flag; \
        watcher_hangs: flag; servers_away: any; \
        last_sign_of_life: stamp?",
    ),
    (
        "Holding",
        "A task that an agent holds",
        "task_id: text; as: word(message task review step); epoch: count; \
        worktree?: text",
    ),
    (
        "Whoami",
        "The identity of the caller",
        "agent: name; known_by: word(pass process_tree hidden_pane claimed); \
        role: text?; mailbox: name?; generation: count?; tasks: [@Duty]; holds: [@Holding]",
    ),
    (
        "Duty",
        "A task of the blackboard that an agent works on or reviews",
        "task: text; duty: text; epoch: count; worktree?: text?",
    ),
    ("Prime", "What an agent reads when it starts", "agent: name; text: text"),
    (
        "Pane",
        "A pane and what may be typed there",
        "pane: text; socket: text; agent: name?; provider: text; \
        command: text; title: text; state: text; source: text; evidence: [object]; deferral: object?; \
        resets_at?: text; limited_until?: stamp; would: {object}",
    ),
    (
        "Nudged",
        "A nudge",
        "agent: name; mailbox: name; pane: text?; sent: flag; reason: text?; detail: text?; \
        text_stands: flag",
    ),
    ("Ready", "A worker that answered", "worker: name; ready: =true; attempt: count"),
    (
        "NotReady",
        "A worker that did not answer",
        "worker: name; ready: =false; worker-id: name; attempt: count; \
        error_type: text; window_inspected: flag; open_command_sent: flag; observation: text; action: text",
    ),
    ("Pong", "An answer to a ping", "worker: name; attempt: count"),
    ("Told", "A line of a supervisor", "agent: name; told: text"),
    (
        "Usage",
        "What an agent or a task took",
        "task_id: text?; agent: name?; turns: count; requests: count; \
        seconds: count; tokens: @Tokens; cost_usd: number; unpriced_tokens: count; models: {@Tokens}; parked: object?",
    ),
    (
        "Tokens",
        "Tokens by their kind",
        "input: count; cache_write: count; cache_write_hour: count; cache_read: count; \
        output: count",
    ),
    ("Allowed", "An allowance", "scope: text; more: object"),
    ("Registered", "An agent on the blackboard", "agent: name; role: text; epoch: count"),
    (
        "Verified",
        "An agent that is fit to work",
        "agent: name; role: text?; registration: count; lease_until: stamp; \
        duty: word(none work review); task?: name; epoch?: count; path?: text; commit?: text",
    ),
    (
        "Beat",
        "A sign of life",
        "agent: name; epoch: count; sequence: count; lease_seconds: count; context_percent: count?",
    ),
    ("HandedOff", "Notes for the next agent", "task_id: text?; exit: count"),
    ("Exited", "An agent that ends", "agent: name; code: count; at: stamp; supervised: flag"),
    (
        "Unregistered",
        "An agent that was taken off",
        "agent: name; epoch: count; released: [name]; processes: count?",
    ),
];
