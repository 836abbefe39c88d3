use super::OutputShape;

pub(in crate::printed) const BOARD: &[OutputShape] = &[
    ("BoardCreated", "A blackboard that was made", "path: text"),
    (
        "Board",
        "The blackboard",
        "path: text; controls: [object]; version: count; revision: count; epoch: count; \
        goal: @Goal?; tasks: [@BoardTask]; agents: {object}; discovered: [@Discovery]; handoff: {object}; \
        human_notes: [object]; anomalies: [@Anomaly]; sprint: @Sprint?; circuit_breaker: object?; config: object",
    ),
    (
        "Validated",
        "Broken rules of a blackboard",
        "path: text; valid: flag; count: count; violations: [@Violation]; warnings: [@Violation]",
    ),
    ("Violation", "A broken rule", "path: text; problem: text"),
    ("Edited", "A blackboard after an editor", "revision: count?; changed: flag"),
    (
        "Goal",
        "The goal",
        "id: name; description: text?; spec_ref: text?; \
        status: word(PLANNING IN_PROGRESS COMPLETED ABORTED)?",
    ),
    (
        "Sprint",
        "A sprint",
        "id: name; goal_ref: name?; scope: object; timeline: object; \
        status: word(IN_PROGRESS CHECKPOINT COMPLETED ABORTED)?",
    ),
    ("SprintShown", "A sprint with its numbers", "..Sprint; metrics: object"),
    ("Discovery", "A discovery", "id: name; urgency: text?; converted_to_task: name?; ..."),
    (
        "Anomaly",
        "An anomaly",
        "timestamp: stamp?; task: name?; reporter: text?; type: text; details: any",
    ),
    (
        "Analysis",
        "What the anomalies say",
        "verdict: word(OK TRIGGERED); triggers: [@Trigger]; anomalies: count; \
        acknowledged: count",
    ),
    (
        "Trigger",
        "A pattern of anomalies",
        "pattern: text; flaw: text; about: text; count: count; tasks: [name]",
    ),
    (
        "BoardTask",
        "A task of the blackboard",
        "id: name; description: text?; status: word(DRAFT UNCLAIMED CLAIMED \
        READY_FOR_REVIEW APPROVED REJECTED MERGED INTEGRATION_FAILED BLOCKED SUPERSEDED ABANDONED); priority: count?; \
        assigned_to: name?; worktree: text?; host?: text; base_commit: text?; lease_expires: stamp?; lease_epoch: count?; \
        iteration: count?; max_iterations: count?; review_cycles_current: count?; review_cycles_total: count?; \
        review_commit: text?; reviewing_by: name?; review_lease_expires: stamp?; review_epoch: count?; \
        approved_by: name?; merge_commit: text?; merge_error: text?; claim_error: text?; spec_ref: text?; done_when: text?; scope: text?; \
        depends_on: [name]; supersedes: name?; rejection_reason: text?; blocked_reason: text?; \
        blocked_questions: [text]; failed_by: [name]; superseded_by: [name]?; rescope_reason: text?; \
        integration_fix: flag?; handoff_pending: flag?; history: [object]",
    ),
    ("TaskShown", "A task and what it waits for", "..BoardTask; waits_for: [name]"),
    (
        "Claimed",
        "A task that was claimed, to work on it or to review it",
        "task: name; \
        status: word(CLAIMED READY_FOR_REVIEW); agent: name; epoch: count; lease_seconds: count; path: text; \
        branch?: text; base_commit?: text?; integration_fix?: flag; salvage?: text?; commit?: text; author?: text?",
    ),
    ("HandedIn", "Work that was handed in or judged", "task: name; status: text; commit: text"),
    (
        "Merged",
        "A merge, done or failed",
        "task: name; status?: word(MERGED INTEGRATION_FAILED); commit?: text; \
        salvage?: text?; kept?: text?; reason?: text",
    ),
    (
        "Template",
        "The template of a prompt",
        "role: text; path: text; is_own: flag; template: text",
    ),
    (
        "Prompt",
        "The prompt of an agent",
        "agent: text?; role: text; wake: [object]; documents: [object]; prompt: text",
    ),
    ("StepsAdded", "Steps that were stored", "task_id: text; steps: count; already_stored: flag"),
    (
        "Handed",
        "A step in the hands of an agent",
        "task_id: text; step_index: count; agent: name; attempt: count; \
        attempts_max: count; epoch: count; lease_seconds: count; again: flag; goal: text; fixes?: count; needs_plan?: flag",
    ),
    (
        "HandedPrompt",
        "A step with its prompt",
        "..Handed; prompt: text; prompt_sha256: text; files: [object]",
    ),
    (
        "Submitted",
        "A report of a step",
        "task_id: text; step_index: count; epoch: count; status: text; \
        already_submitted: flag; next_attempt?: count; fix_step?: count; fix_by?: name; paused: flag; \
        queue_done: flag; prompt_message?: text",
    ),
    (
        "Queue",
        "A step queue",
        "task_id: text; title: text; orchestrator: name?; parallel: count; pauses: text; \
        policy: text; attempts_max: count; lease_seconds: count; constraints: [text]; template?: text; open: count; \
        held: count; stuck: count; done: count",
    ),
    (
        "Step",
        "A step",
        "task_id: text; step_index: count; status: text; resolution?: text; fix_due: flag; \
        waits_for_fix?: flag; fixes?: count; fix_files?: [text]; needs_plan?: flag; agent: name; fix_by?: name; \
        goal: text; instructions: [text]; constraints: [text]; phase?: text; cycle?: text; attempt: count; \
        epoch: count; beat: count; holder?: name; last_error?: text; blockers: [text]; summary?: text; \
        artifacts: [text]; parent_index?: count; note?: text; updated_at: text",
    ),
    ("StepShown", "A step with its runs", "..Step; runs: [object]"),
    ("Split", "A step that was split", "task_id: text; step_index: count; parts: [count]"),
    (
        "StepPrompted",
        "A step that was handed out by `step run`",
        "event: =prompted; ..Handed; message: id",
    ),
    ("StepStuck", "A step that stops `step run`", "event: =stuck; ..Step"),
    ("StepsDone", "A queue whose steps are done", "event: =done; ..Queue"),
];

pub(in crate::printed) const PROJECT: &[OutputShape] = &[
    (
        "MailboxStatus",
        "A mailbox",
        "mailbox: name; waiting: count; delayed: count; held: count; dead: count; \
        oldest_millis: count?; oldest_seconds: count?; overflow: object?; counted_up_to: count",
    ),
    (
        "Status",
        "The state of the team, after its mailboxes",
        "watcher: @Watcher; board: object; ladders: [object]; \
        steps: object; holds: {[@Holding]}; needs: [@Need]; servers_away: any",
    ),
    (
        "Watcher",
        "The watcher",
        "running: flag; hangs: flag; silent_seconds: count?; holder: any; status: any; overdue: [object]",
    ),
    (
        "Need",
        "Something that needs a person",
        "need: text; agent: name?; about: text?; text: text; since: stamp?; help: text",
    ),
    ("TmuxStatus", "What a status line shows", "urgent: any; text: text?; needs: [@Need]"),
    (
        "Why",
        "All that is known of an id",
        "id: text; names: [text]; records: [@Record]; now: [object]; took: object?",
    ),
    (
        "Record",
        "A line of the event log",
        "timestamp: stamp; session_id: text; seq: count; type: text; actor: text; \
        data: object; unordered?: flag",
    ),
    ("Recorded", "A record that was written", "type: text; actor: name; data: object"),
    ("Gap", "A gap of the log", "log: object; text: text"),
    ("Unread", "A part of the project that cannot be read", "unread: text; text: text"),
    (
        "Difference",
        "A difference between log and disk",
        "kind: word(unrecorded contradiction); about: text; id: text; \
        path: text; log: text; disk: text; record: text",
    ),
    (
        "Replayed",
        "What the log tells, counted",
        "contradictions: count; unrecorded: count; records: count; \
        log_is_whole: flag; ...",
    ),
    ("Page", "A written file", "file: text; bytes: count"),
    ("Traces", "Spans, as OTLP/JSON has them", "resourceSpans: [object]"),
    (
        "NewTask",
        "A task that was handed out, and how",
        "task: name; kind: word(mail step board); id?: id; mailbox?: name; status?: text",
    ),
    ("Sent", "What a collector has taken", "url: text; spans: count"),
    (
        "Sample",
        "A value of a metric",
        "name: text; type: word(counter gauge histogram); labels: {text}; value: number",
    ),
    ("Address", "An address for a browser or a client", "url: text; token?: text"),
    (
        "Created",
        "A queue and its surroundings",
        "queue: text; state: text; config: text; mailboxes: [name]; \
        mailboxes_added: [name]; config_created: flag; from?: object",
    ),
    (
        "Check",
        "A check of the environment",
        "check: text; level: word(ok warn fail missing); text: text; remedy?: text",
    ),
    (
        "DemoHop",
        "A message of the demo and its times",
        "id: id; mailbox: name; type: name; task_id: text?; from: name; \
        stored_to_submitted_ms: number?; submitted_to_acked_ms: number?; acked_to_settled_ms: number?",
    ),
    (
        "DemoSprint",
        "A sprint of the demo",
        "dir: text; task_id: text; status: text; agents: count; crashes: count; \
        hand_overs: count; seconds: number",
    ),
    (
        "Installed",
        "A file of an agent that was changed or not",
        "provider: text; file: text; changed: flag",
    ),
    ("ConfigEntry", "An entry for the file of an agent", "provider: text; entry: text"),
    (
        "Notified",
        "A test of a rule of `notify`",
        "rule: count; channels: any; sent: flag; reached: count?; error: text?",
    ),
    (
        "Migrated",
        "Messages that were moved",
        "mailboxes: any; moved: count; dead: count; held: count; crowded: any; \
        kept: [object]",
    ),
    (
        "QueueFinding",
        "A finding in the queue",
        "path: text; problem: text; repair: word(none dead_letter set_aside remove \
        write_reason); repaired: flag",
    ),
    (
        "WorktreeFinding",
        "A finding in a worktree",
        "task: name?; path: text; problem: text; repaired: flag; is_note: flag",
    ),
    (
        "BoardFinding",
        "A finding on the blackboard",
        "path: text; problem: text; is_note: flag; is_repairable: flag; \
        repaired: flag",
    ),
    (
        "StepFault",
        "A finding in the database of the steps",
        "path: text; problem: text; repaired: flag",
    ),
    ("FsckNote", "Something that is not a fault", "path: text; note: text"),
    (
        "Linted",
        "A finding in a document",
        "file: text; level: text; rule: text; line: count; column: count; \
        end_column: count; text: text; message: text; instead: text",
    ),
    (
        "Conformed",
        "A check of a client",
        "client: text; stage: text; name: text; verdict: word(passed refused skipped \
        failed); section: text; rule: text; detail?: text",
    ),
    ("Loaded", "Clients under load", "seed: count; load: object"),
    ("ManPages", "Manual pages", "dir: text; pages: count"),
];
