//! The outcome of a batch: `reports/completion-summary.yaml`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, ContractKind};
use super::node::{DocumentNode, NodeValue};
use super::reader::{FieldReader, line_of, node_count};
use super::words::{Status, SummaryStatus};
use ensemble_core::message::Timestamp;
use ensemble_core::message::fields::{EXECUTOR_FIELDS, WORKER_FIELDS, plain_field};

/// Dispatch's report to Conductor on a batch of tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// The session or workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The batch within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// Outcome of the batch.
    pub status: SummaryStatus,
    /// Number of tasks.
    pub total_tasks: u64,
    /// Number of tasks that were done.
    pub completed_tasks: u64,
    /// Number of tasks that failed or are blocked.
    pub failed_tasks: u64,
    /// Tasks without a report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_tasks: Vec<String>,
    /// Summary in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Outcome of each task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_results: Vec<TaskResult>,
    /// Errors during the batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Time of completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// Outcome of one task of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskResult {
    /// The task.
    pub task_id: String,
    /// `success`, `failed`, `blocked`, `needs_fix` or `missing`.
    pub status: String,
    /// The worker that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// Summary from the task's report, or a description of a task without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Summary {
    pub fn new(total_tasks: u64) -> Self {
        Self { total_tasks, ..Self::default() }
    }

    /// Sets the status and the sentence that follow from the counts. `late` and `missing` are added to the sentence.
    pub fn conclude(&mut self, late: &str, missing: &str, at: Timestamp) {
        let Self { total_tasks: total, completed_tasks: done, failed_tasks: failed, .. } = *self;
        self.status = match done {
            done if done == total => SummaryStatus::Success,
            0 => SummaryStatus::Failed,
            _ => SummaryStatus::Partial,
        };
        let share = (done * 100).checked_div(total).unwrap_or(100);
        self.summary = Some(format!(
            "{done} of {total} tasks ({share}%) are done{late}, {failed} failed{missing}"
        ));
        self.completed_at = Some(at.to_string());
    }
}

impl TaskResult {
    pub fn new(task_id: impl Into<String>, status: impl Into<String>) -> Self {
        Self { task_id: task_id.into(), status: status.into(), ..Self::default() }
    }

    fn read(name: String, node: &DocumentNode, fields: &mut FieldReader<'_>) -> Self {
        let Some(below) = node.fields() else {
            let task = line_of(node).trim().to_owned();
            if task.is_empty() {
                let field = format!("{name}.task_id");
                fields.problem(node.line, &field, "is missing", "name the task");
            }
            return Self::new(task, "success");
        };
        let mut fields = FieldReader::below(format!("{name}."), below, fields.problems());
        Self {
            task_id: fields.required_text(&["task_id", "id", "task"], "name the task"),
            status: fields.text(&["status", "result"]).unwrap_or_default(),
            worker_id: fields.text(&[&WORKER_FIELDS[..], &EXECUTOR_FIELDS[..]].concat()),
            summary: fields.prose(&["summary", "detail", "description", "message"]),
        }
    }
}

impl Contract for Summary {
    const KIND: ContractKind = ContractKind::Summary;
    const SIGNATURE: &'static [&'static str] = &[
        "status",
        "total_tasks",
        "completed_tasks",
        "failed_tasks",
        "task_results",
        "task_summary",
        "workflow_id",
        "summary",
        "succeeded",
    ];

    fn read(_file: &str, fields: &mut FieldReader<'_>) -> Self {
        // The older of the two shapes: done and failed tasks, as lists or as a mapping.
        let overview = fields.take_field(&["task_summary"]).map(|field| &field.node);
        let nested = |name: &str| overview.and_then(|node| number_in(node, name));
        let total = fields.count(&["total_tasks", "tasks", "total"]).or_else(|| nested("total"));
        let completed = fields.count(&["completed_tasks", "succeeded", "completed"]);
        let completed = completed.or_else(|| nested("completed")).or_else(|| nested("succeeded"));
        let failed = fields.count(&["failed_tasks", "failed"]).or_else(|| nested("failed"));
        let status = fields.choice(&["status", "result"], SummaryStatus::SPELLINGS);
        let results = fields.items(&["task_results", "results"]);
        let mut task_results: Vec<TaskResult> =
            results.into_iter().map(|(name, node)| TaskResult::read(name, node, fields)).collect();
        if let Some(NodeValue::List(items)) = overview.map(|node| &node.value) {
            let read =
                |(index, node)| TaskResult::read(format!("task_summary[{index}]"), node, fields);
            task_results.extend(items.iter().enumerate().map(read).collect::<Vec<_>>());
        }
        let done = |status: &str| Status::read(status);
        let count = |wanted| {
            let all = task_results.iter().filter(|r| done(&r.status) == Some(wanted));
            all.count() as u64
        };
        let completed_tasks = completed.unwrap_or_else(|| count(Status::Success));
        let failed_tasks = failed.unwrap_or_else(|| count(Status::Failed));
        let known = completed_tasks + failed_tasks;
        let total_tasks = total.unwrap_or_else(|| known.max(task_results.len() as u64));
        let missing_tasks = fields.texts(&["missing_tasks", "missing"]);
        let status = status.unwrap_or(match (completed_tasks, failed_tasks) {
            (1.., 0) if missing_tasks.is_empty() => SummaryStatus::Success,
            (0, _) => SummaryStatus::Failed,
            _ => SummaryStatus::Partial,
        });
        if known > total_tasks {
            let detail = format!("is {total_tasks}, but {known} tasks are accounted for");
            fields.problem(0, "total_tasks", detail, "count every task once");
        }
        Self {
            session_id: fields.text(&["session_id", "workflow_id", "session"]),
            batch_id: fields.text(&["batch_id", "batch"]),
            status,
            total_tasks,
            completed_tasks,
            failed_tasks,
            missing_tasks,
            summary: fields
                .text(&["summary", "description", "message"])
                .or_else(|| text_of(overview)),
            task_results,
            errors: fields.texts(&["errors", "error"]),
            completed_at: fields.text(&["completed_at", "finished_at", "at", "timestamp"]),
            extra: fields.rest(),
        }
    }
}

fn number_in(node: &DocumentNode, wanted: &str) -> Option<u64> {
    let field = node.fields()?.iter().find(|field| plain_field(&field.name) == wanted)?;
    node_count(&field.node)
}

fn text_of(node: Option<&DocumentNode>) -> Option<String> {
    match &node?.value {
        NodeValue::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    }
}
