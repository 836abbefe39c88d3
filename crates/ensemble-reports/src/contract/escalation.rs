//! Escalation of a task that needs a person: `reports/escalation-<task>.yaml`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, ContractKind};
use super::reader::FieldReader;
use ensemble_core::message::fields::{TASK_FIELDS, WORKER_FIELDS};

/// A report to Conductor on a task that needs intervention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EscalationReport {
    /// The task.
    pub task_id: String,
    /// The worker that had the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// The highest phase that was reached, 0 to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u64>,
    /// Reason: `unanswered`, `not_pressable`, `crashed`, `undeliverable`, `review_loop` …
    pub reason: String,
    /// Further detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The agent that escalated the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Time of the escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_at: Option<String>,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl EscalationReport {
    pub fn new(task_id: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { task_id: task_id.into(), reason: reason.into(), ..Self::default() }
    }
}

impl Contract for EscalationReport {
    const KIND: ContractKind = ContractKind::Escalation;
    const SIGNATURE: &'static [&'static str] = &["task_id", "phase", "escalated_at"];

    fn read(file: &str, fields: &mut FieldReader<'_>) -> Self {
        let named = file.strip_prefix("escalation-").and_then(|rest| rest.strip_suffix(".yaml"));
        // Trim it as every other text is trimmed.
        let named = named.map(str::trim);
        let task_id = fields.text(&TASK_FIELDS);
        Self {
            task_id: task_id.or_else(|| named.map(str::to_owned)).unwrap_or_default(),
            worker: fields.text(&WORKER_FIELDS),
            attempt: fields.count(&["attempt", "attempts"]),
            phase: fields.count(&["phase", "max_phase"]),
            reason: fields.text(&["reason", "error"]).unwrap_or_else(|| "unanswered".to_owned()),
            detail: fields.prose(&["detail", "summary", "description", "message"]),
            from: fields.text(&["from", "escalated_by"]),
            escalated_at: fields.text(&["escalated_at", "at", "timestamp"]),
            action: fields.text(&["action", "recommendation"]),
            extra: fields.rest(),
        }
    }
}
