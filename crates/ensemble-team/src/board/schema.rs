//! The fields of the blackboard, in the order in which they are written, and their kinds.
//!
//! The fields are those of seed 001 and its siblings; `revision`, `epoch`, `lease_epoch`,
//! `review_epoch` and `beat` are Ensemble's own. Other fields are kept and not checked.

use serde_json::{Map, Value};

/// Kind of a field's value; every field may also be null.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldKind {
    Name,
    /// Text, or a number that is read as text.
    Text,
    Count,
    /// The same of seconds, or a duration such as `5m`.
    Seconds,
    Flag,
    /// An RFC 3339 timestamp. Nothing depends on times.
    Time,
    /// One of these words. Of two adjacent synonyms, the first is written.
    Word(&'static [&'static str]),
    /// Usually one of these words; another text is kept.
    Label(&'static [&'static str]),
    Names,
    Texts,
    Object(&'static [BoardField]),
    Objects(&'static [BoardField]),
    Named(&'static [BoardField]),
    Values,
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BoardField {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    pub(crate) is_required: bool,
    /// Whether nothing depends on it. Then a value that does not fit is a warning, and stops no one.
    pub(crate) is_note: bool,
}

const fn field(name: &'static str, kind: FieldKind) -> BoardField {
    BoardField { name, kind, is_required: false, is_note: false }
}

const fn required(name: &'static str, kind: FieldKind) -> BoardField {
    BoardField { name, kind, is_required: true, is_note: false }
}

const fn note_field(name: &'static str, kind: FieldKind) -> BoardField {
    BoardField { name, kind, is_required: false, is_note: true }
}

/// The seed's words for a task's status, and later synonyms.
pub(crate) const TASK_WORDS: &[&str] = &[
    "DRAFT",
    "UNCLAIMED",
    "READY",
    "CLAIMED",
    "IMPLEMENTING",
    "READY_FOR_REVIEW",
    "APPROVED",
    "REJECTED",
    "MERGED",
    "INTEGRATION_FAILED",
    "BLOCKED",
    "SUPERSEDED",
    "ABANDONED",
];

pub(crate) const BOARD: &[BoardField] = &[
    required("version", FieldKind::Count),
    field("revision", FieldKind::Count),
    field("epoch", FieldKind::Count),
    field("goal", FieldKind::Object(GOAL)),
    required("tasks", FieldKind::Objects(TASK)),
    field("agents", FieldKind::Named(AGENT)),
    field("former_agents", FieldKind::Named(&[])),
    note_field("discovered", FieldKind::Objects(DISCOVERY)),
    note_field("handoff", FieldKind::Named(HANDOFF)),
    note_field("human_notes", FieldKind::Objects(HUMAN_NOTE)),
    note_field("spec_changes", FieldKind::Values),
    note_field("anomalies", FieldKind::Objects(ANOMALY)),
    field("sprint", FieldKind::Object(SPRINT)),
    note_field("sprint_history", FieldKind::Values),
    note_field("circuit_breaker", FieldKind::Object(CIRCUIT_BREAKER)),
    field("config", FieldKind::Object(CONFIG)),
];

pub(crate) const GOAL: &[BoardField] = &[
    required("id", FieldKind::Name),
    note_field("description", FieldKind::Text),
    field("spec_ref", FieldKind::Text),
    field("created", FieldKind::Time),
    field("status", FieldKind::Word(&["PLANNING", "IN_PROGRESS", "COMPLETED", "ABORTED"])),
    field("alignment_history", FieldKind::Values),
];

pub(crate) const TASK: &[BoardField] = &[
    required("id", FieldKind::Name),
    note_field("description", FieldKind::Text),
    required("status", FieldKind::Word(TASK_WORDS)),
    note_field("priority", FieldKind::Count),
    field("created", FieldKind::Time),
    field("assigned_to", FieldKind::Name),
    field("worktree", FieldKind::Text),
    field("host", FieldKind::Text),
    field("base_commit", FieldKind::Text),
    field("lease_expires", FieldKind::Time),
    field("lease_epoch", FieldKind::Count),
    note_field("iteration", FieldKind::Count),
    note_field("max_iterations", FieldKind::Count),
    note_field("review_cycles_current", FieldKind::Count),
    note_field("review_cycles_total", FieldKind::Count),
    field("review_commit", FieldKind::Text),
    field("reviewing_by", FieldKind::Name),
    field("review_lease_expires", FieldKind::Time),
    field("review_epoch", FieldKind::Count),
    field("approved_by", FieldKind::Name),
    field("merge_commit", FieldKind::Text),
    note_field("merge_error", FieldKind::Text),
    note_field("claim_error", FieldKind::Text),
    field("spec_ref", FieldKind::Text),
    note_field("done_when", FieldKind::Text),
    note_field("scope", FieldKind::Text),
    field("depends_on", FieldKind::Names),
    note_field("supersedes", FieldKind::Name),
    note_field("rejection_reason", FieldKind::Text),
    note_field("blocked_reason", FieldKind::Text),
    note_field("blocked_questions", FieldKind::Texts),
    field("attempted", FieldKind::Any),
    field("failed_by", FieldKind::Names),
    note_field("superseded_by", FieldKind::Names),
    note_field("rescope_reason", FieldKind::Text),
    note_field("integration_fix", FieldKind::Flag),
    note_field("handoff_pending", FieldKind::Flag),
    note_field("history", FieldKind::Objects(HISTORY)),
];

pub(crate) const HISTORY: &[BoardField] = &[
    required("time", FieldKind::Time),
    required("event", FieldKind::Text),
    field("agent", FieldKind::Text),
    field("epoch", FieldKind::Count),
    field("commit", FieldKind::Text),
    field("reason", FieldKind::Text),
];

pub(crate) const AGENT: &[BoardField] = &[
    note_field("role", FieldKind::Label(&["planner", "coder", "code-reviewer"])),
    BoardField {
        name: "status",
        kind: FieldKind::Word(&["IDLE", "STARTING", "WORKING", "REVIEWING", "WAITING", "HANDOFF"]),
        is_required: true,
        is_note: true,
    },
    field("epoch", FieldKind::Count),
    note_field("current_task", FieldKind::Name),
    field("lease_expires", FieldKind::Time),
    field("heartbeat", FieldKind::Time),
    note_field("beat", FieldKind::Text),
    note_field("terminal", FieldKind::Text),
    note_field("iterations_total", FieldKind::Count),
    note_field("context_percent", FieldKind::Count),
];

const DISCOVERY: &[BoardField] = &[
    required("id", FieldKind::Name),
    field("by", FieldKind::Text),
    field("during", FieldKind::Text),
    field("description", FieldKind::Text),
    field("severity", FieldKind::Text),
    field("urgency", FieldKind::Label(&["deferred", "immediate"])),
    field("recommendation", FieldKind::Text),
    field("created", FieldKind::Time),
    field("converted_to_task", FieldKind::Name),
];

const HANDOFF: &[BoardField] = &[
    field("agent", FieldKind::Text),
    field("context_used", FieldKind::Any),
    field("timestamp", FieldKind::Time),
    required("summary", FieldKind::Text),
    required("next_action", FieldKind::Text),
    field("approach", FieldKind::Text),
    field("blockers", FieldKind::Any),
    field("files_modified", FieldKind::Any),
    field("next_steps", FieldKind::Any),
];

const HUMAN_NOTE: &[BoardField] = &[
    field("timestamp", FieldKind::Time),
    field("message", FieldKind::Text),
    field("for", FieldKind::Any),
];

const ANOMALY: &[BoardField] = &[
    field("timestamp", FieldKind::Time),
    field("task", FieldKind::Name),
    field("reporter", FieldKind::Text),
    required("type", FieldKind::Label(ANOMALY_TYPES)),
    field("details", FieldKind::Any),
];

/// Types of anomaly: those that the siblings define, then Ensemble's own for work that pauses.
pub(crate) const ANOMALY_TYPES: &[&str] = &[
    "retry_loop",
    "trade_off",
    "spec_ambiguity",
    "external_blocker",
    "assumption_violated",
    "scope_deviation",
    "workaround",
    "debt_created",
    "spec_changed",
    "hypothesis_exhaustion",
    "spec_gap",
    "review_deadlock",
    "system_ambiguity",
    "task_blocked",
    "merge_impossible",
    "no_coder_left",
    "agent_gone",
];

const SPRINT: &[BoardField] = &[
    required("id", FieldKind::Name),
    field("goal_ref", FieldKind::Name),
    field("scope", FieldKind::Object(SCOPE)),
    field("timeline", FieldKind::Object(TIMELINE)),
    field("status", FieldKind::Word(&["IN_PROGRESS", "CHECKPOINT", "COMPLETED", "ABORTED"])),
    field("metrics", FieldKind::Any),
    field("retrospective", FieldKind::Any),
];

const SCOPE: &[BoardField] =
    &[field("planned", FieldKind::Names), field("stretch", FieldKind::Names)];

const TIMELINE: &[BoardField] = &[
    field("started", FieldKind::Time),
    field("deadline", FieldKind::Time),
    field("checkpoint_at", FieldKind::Time),
    field("ended", FieldKind::Time),
];

const CIRCUIT_BREAKER: &[BoardField] = &[
    field("last_check", FieldKind::Time),
    field("status", FieldKind::Label(&["OK", "TRIGGERED"])),
    field("current_trigger", FieldKind::Any),
    field("history", FieldKind::Values),
];

const CONFIG: &[BoardField] = &[
    field("max_coder_iterations", FieldKind::Count),
    field("max_review_cycles", FieldKind::Count),
    field("heartbeat_interval", FieldKind::Seconds),
    field("lease_duration", FieldKind::Seconds),
    field("coder_poll_interval", FieldKind::Seconds),
    field("coder_max_wait", FieldKind::Seconds),
    field("planner_poll_interval", FieldKind::Seconds),
    field("reviewer_poll_interval", FieldKind::Seconds),
    field("integration_branch", FieldKind::Text),
];

/// Sets a field at its place in the order of `fields`. Does not write null to a missing field.
pub(crate) fn set(
    object: &mut Map<String, Value>,
    fields: &[BoardField],
    name: &str,
    value: impl Into<Value>,
) {
    let value = value.into();
    if let Some(current) = object.get_mut(name) {
        *current = value;
        return;
    }
    if value.is_null() {
        return;
    }
    let rank = |key: &str| fields.iter().position(|field| field.name == key);
    let own = rank(name);
    let comes_before = |key: &String| rank(key).is_some_and(|rank| Some(rank) < own);
    let keys: Vec<&String> = object.keys().collect();
    let place = keys.iter().rposition(|key| comes_before(key)).map_or(keys.len(), |at| at + 1);
    object.shift_insert(place, name.to_owned(), value);
}
