//! A worker's report: `reports/<task>-completed.yaml`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, ContractKind, stem};
use super::reader::{FieldReader, read_count};
use super::words::Status;
use ensemble_core::message::fields::{EXECUTOR_FIELDS, WORKER_FIELDS, field_text};

/// A worker's report on a finished task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskReport {
    /// The task.
    pub task_id: String,
    /// Outcome of the task.
    pub status: Status,
    /// The reporting worker, as in `worker-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The agent that did the work, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<String>,
    /// The agent that delegated the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_from: Option<String>,
    /// Summary of the work: agent, count, share and place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Files that were modified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_modified: Vec<String>,
    /// Files that were created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_created: Vec<String>,
    /// Errors during the work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Test results: a text, a number or a mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_results: Option<Json>,
    /// Reason of a failure; required unless the status is `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Options that the worker considered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options_considered: Vec<String>,
    /// Time of completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

const STATUS: &[&str] = &["status", "result", "outcome"];
const ATTEMPT: &str = "attempt";

impl TaskReport {
    pub fn new(task_id: impl Into<String>, status: Status) -> Self {
        Self { task_id: task_id.into(), status, ..Self::default() }
    }

    pub fn author(&self) -> Option<&str> {
        self.worker_id.as_deref().or(self.executed_by.as_deref())
    }

    pub fn attempt(&self) -> Option<u32> {
        let text = field_text(&Json::Object(self.extra.clone()), &[ATTEMPT])?;
        read_count(&text)?.try_into().ok()
    }

    pub fn set_attempt(&mut self, attempt: Option<u32>) {
        self.extra.extend(attempt.map(|number| (ATTEMPT.to_owned(), number.into())));
    }
}

impl Contract for TaskReport {
    const KIND: ContractKind = ContractKind::Report;
    const SIGNATURE: &'static [&'static str] = &[
        "status",
        "task_id",
        "worker_id",
        "executed_by",
        "failure_reason",
        "files_modified",
        "completed_at",
    ];

    fn read(file: &str, fields: &mut FieldReader<'_>) -> Self {
        Self {
            task_id: fields.task_id(stem(file, "-completed")),
            status: fields.required_choice(STATUS, Status::SPELLINGS).unwrap_or_default(),
            worker_id: fields.text(&WORKER_FIELDS),
            executed_by: fields.text(&EXECUTOR_FIELDS),
            delegated_from: fields.text(&["delegated_from", "delegated_by"]),
            summary: fields.prose(&["summary", "description", "message", "work_summary"]),
            files_modified: fields.texts(&["files_modified", "modified_files", "files_changed"]),
            files_created: fields.texts(&["files_created", "created_files"]),
            errors: fields.texts(&["errors", "error"]),
            test_results: fields.any(&["test_results", "tests", "test_result"]),
            failure_reason: fields.prose(&["failure_reason", "reason", "blocked_reason"]),
            options_considered: fields.texts(&["options_considered", "options"]),
            completed_at: fields.text(&["completed_at", "finished_at", "at", "timestamp"]),
            extra: fields.rest(),
        }
    }
}
