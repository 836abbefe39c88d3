//! The fields of the blackboard, in the order in which they are written, and their kinds.
//!
//! The fields are those of seed 001 and its siblings; `revision`, `epoch`, `lease_epoch`,
//! `review_epoch` and `beat` are Ensemble's own. Other fields are kept and not checked.

use serde_json::{Map, Value};

/// Kind of a field's value; every field may also be null.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A valid name ([`ensemble_core::message::Name`]).
    Name,
    /// Text, or a number that is read as text.
    Text,
    /// A whole number of at least 0.
    Count,
    /// `true` or `false`.
    Flag,
    /// An RFC 3339 timestamp. Nothing depends on times.
    Time,
    /// One of these words. Of two adjacent synonyms, the first is written.
    Word(&'static [&'static str]),
    /// Usually one of these words; another text is kept.
    Label(&'static [&'static str]),
    /// A list of names.
    Names,
    /// A list of texts.
    Texts,
    /// A mapping with these fields.
    Object(&'static [Field]),
    /// A list of mappings with these fields.
    Objects(&'static [Field]),
    /// A mapping from names to mappings with these fields.
    Named(&'static [Field]),
    /// A list of any values.
    Values,
    /// Any value.
    Any,
}

/// A field of the blackboard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    /// Whether nothing depends on it. Then a value that does not fit is a warning, and stops no one.
    pub(crate) is_note: bool,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, is_required: false, is_note: false }
}

const fn required(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, is_required: true, is_note: false }
}

/// A field that nothing depends on.
const fn note(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, is_required: false, is_note: true }
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

/// Fields of the top level.
pub(crate) const BOARD: &[Field] = &[
    required("version", Kind::Count),
    field("revision", Kind::Count),
    field("epoch", Kind::Count),
    field("goal", Kind::Object(GOAL)),
    required("tasks", Kind::Objects(TASK)),
    field("agents", Kind::Named(AGENT)),
    field("former_agents", Kind::Named(&[])),
    note("discovered", Kind::Objects(DISCOVERY)),
    note("handoff", Kind::Named(HANDOFF)),
    note("human_notes", Kind::Objects(HUMAN_NOTE)),
    note("spec_changes", Kind::Values),
    note("anomalies", Kind::Objects(ANOMALY)),
    field("sprint", Kind::Object(SPRINT)),
    note("sprint_history", Kind::Values),
    note("circuit_breaker", Kind::Object(CIRCUIT_BREAKER)),
    field("config", Kind::Object(CONFIG)),
];

pub(crate) const GOAL: &[Field] = &[
    required("id", Kind::Name),
    field("description", Kind::Text),
    field("spec_ref", Kind::Text),
    field("created", Kind::Time),
    field("status", Kind::Word(&["PLANNING", "IN_PROGRESS", "COMPLETED", "ABORTED"])),
    field("alignment_history", Kind::Values),
];

pub(crate) const TASK: &[Field] = &[
    required("id", Kind::Name),
    note("description", Kind::Text),
    required("status", Kind::Word(TASK_WORDS)),
    note("priority", Kind::Count),
    field("created", Kind::Time),
    field("assigned_to", Kind::Name),
    field("worktree", Kind::Text),
    field("host", Kind::Text),
    field("base_commit", Kind::Text),
    field("lease_expires", Kind::Time),
    field("lease_epoch", Kind::Count),
    note("iteration", Kind::Count),
    note("max_iterations", Kind::Count),
    note("review_cycles_current", Kind::Count),
    note("review_cycles_total", Kind::Count),
    field("review_commit", Kind::Text),
    field("reviewing_by", Kind::Name),
    field("review_lease_expires", Kind::Time),
    field("review_epoch", Kind::Count),
    field("approved_by", Kind::Name),
    field("merge_commit", Kind::Text),
    note("merge_error", Kind::Text),
    note("claim_error", Kind::Text),
    field("spec_ref", Kind::Text),
    field("done_when", Kind::Text),
    note("scope", Kind::Text),
    field("depends_on", Kind::Names),
    note("supersedes", Kind::Name),
    note("rejection_reason", Kind::Text),
    note("blocked_reason", Kind::Text),
    note("blocked_questions", Kind::Texts),
    field("attempted", Kind::Any),
    field("failed_by", Kind::Names),
    note("superseded_by", Kind::Names),
    note("rescope_reason", Kind::Text),
    note("integration_fix", Kind::Flag),
    note("handoff_pending", Kind::Flag),
    note("history", Kind::Objects(HISTORY)),
];

pub(crate) const HISTORY: &[Field] = &[
    required("time", Kind::Time),
    required("event", Kind::Text),
    field("agent", Kind::Text),
    field("epoch", Kind::Count),
    field("commit", Kind::Text),
    field("reason", Kind::Text),
];

pub(crate) const AGENT: &[Field] = &[
    note("role", Kind::Label(&["planner", "coder", "code-reviewer"])),
    Field {
        name: "status",
        kind: Kind::Word(&["IDLE", "STARTING", "WORKING", "REVIEWING", "WAITING", "HANDOFF"]),
        is_required: true,
        is_note: true,
    },
    field("epoch", Kind::Count),
    note("current_task", Kind::Name),
    field("lease_expires", Kind::Time),
    field("heartbeat", Kind::Time),
    note("beat", Kind::Text),
    note("terminal", Kind::Text),
    note("iterations_total", Kind::Count),
    note("context_percent", Kind::Count),
];

const DISCOVERY: &[Field] = &[
    required("id", Kind::Name),
    field("by", Kind::Text),
    field("during", Kind::Text),
    field("description", Kind::Text),
    field("severity", Kind::Text),
    field("urgency", Kind::Label(&["deferred", "immediate"])),
    field("recommendation", Kind::Text),
    field("created", Kind::Time),
    field("converted_to_task", Kind::Name),
];

const HANDOFF: &[Field] = &[
    field("agent", Kind::Text),
    field("context_used", Kind::Any),
    field("timestamp", Kind::Time),
    required("summary", Kind::Text),
    required("next_action", Kind::Text),
    field("approach", Kind::Text),
    field("blockers", Kind::Any),
    field("files_modified", Kind::Any),
    field("next_steps", Kind::Any),
];

const HUMAN_NOTE: &[Field] =
    &[field("timestamp", Kind::Time), field("message", Kind::Text), field("for", Kind::Any)];

const ANOMALY: &[Field] = &[
    field("timestamp", Kind::Time),
    field("task", Kind::Name),
    field("reporter", Kind::Text),
    required("type", Kind::Label(ANOMALY_TYPES)),
    field("details", Kind::Any),
];

/// Types of anomaly: those that the siblings define, then Ensemble's own for work that stands still.
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

const SPRINT: &[Field] = &[
    required("id", Kind::Name),
    field("goal_ref", Kind::Name),
    field("scope", Kind::Object(SCOPE)),
    field("timeline", Kind::Object(TIMELINE)),
    field("status", Kind::Word(&["IN_PROGRESS", "CHECKPOINT", "COMPLETED", "ABORTED"])),
    field("metrics", Kind::Any),
    field("retrospective", Kind::Any),
];

const SCOPE: &[Field] = &[field("planned", Kind::Names), field("stretch", Kind::Names)];

const TIMELINE: &[Field] = &[
    field("started", Kind::Time),
    field("deadline", Kind::Time),
    field("checkpoint_at", Kind::Time),
    field("ended", Kind::Time),
];

const CIRCUIT_BREAKER: &[Field] = &[
    field("last_check", Kind::Time),
    field("status", Kind::Label(&["OK", "TRIGGERED"])),
    field("current_trigger", Kind::Any),
    field("history", Kind::Values),
];

const CONFIG: &[Field] = &[
    field("max_coder_iterations", Kind::Count),
    field("max_review_cycles", Kind::Count),
    field("heartbeat_interval", Kind::Count),
    field("lease_duration", Kind::Count),
    field("coder_poll_interval", Kind::Count),
    field("coder_max_wait", Kind::Count),
    field("planner_poll_interval", Kind::Count),
    field("reviewer_poll_interval", Kind::Count),
    field("integration_branch", Kind::Text),
];

/// Sets a field at its place in the order of `fields`. Does not write null to a missing field.
pub(crate) fn set(
    object: &mut Map<String, Value>,
    fields: &[Field],
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
