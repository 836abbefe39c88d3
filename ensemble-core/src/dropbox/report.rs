//! Writing a report as the drop boxes want it: whole, under a name that a route knows.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable::{Dir, Durability, Modes};
use crate::message::{Name, Timestamp, yaml};
use crate::{Error, Result};

/// The longest task id in a file's name, in bytes.
const TASK_BYTES_MAX: usize = 128;
/// The longest status word, and the longest summary, in bytes.
const STATUS_BYTES_MAX: usize = 64;
const SUMMARY_BYTES_MAX: usize = 256 * 1024;

/// What a report is about; it decides who gets it (seed 002's table).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReportKind {
    /// The end of a task: `reports/<task>-completed.yaml`.
    #[default]
    Completed,
    /// The result of a review: `reports/<task>-review.yaml`.
    Review,
}

/// A report of a worker on a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TaskReport {
    /// The task.
    pub task_id: String,
    /// Who reports.
    pub worker: Name,
    /// How it went, in one word.
    pub status: String,
    /// What was done.
    pub summary: String,
    /// Files that were made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// When, by the worker's clock.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reported_at: Timestamp,
}

impl TaskReport {
    /// A report without artifacts.
    #[must_use]
    pub fn new(
        task_id: impl Into<String>,
        worker: Name,
        status: impl Into<String>,
        summary: impl Into<String>,
        reported_at: Timestamp,
    ) -> Self {
        Self {
            task_id: task_id.into(),
            worker,
            status: status.into(),
            summary: summary.into(),
            artifacts: Vec::new(),
            reported_at,
        }
    }

    /// With the files that were made or changed.
    #[must_use]
    pub fn with_artifacts(mut self, artifacts: impl IntoIterator<Item = String>) -> Self {
        self.artifacts.extend(artifacts);
        self
    }
}

/// Puts a report into the drop box of the queue at `root`, whole, in the place of an older one of the
/// same task; the watcher makes a message of it. Returns its path below the queue.
///
/// ```
/// use ensemble_core::dropbox::{ReportKind, TaskReport, put_report};
/// use ensemble_core::durable::Durability;
/// use ensemble_core::message::{Name, Timestamp};
/// # let home = tempfile::tempdir()?;
/// # let root = home.path();
/// # for dir in ["tmp", "reports"] { std::fs::create_dir(root.join(dir))?; }
/// let now = Timestamp::from_unix_millis(0);
/// let report = TaskReport::new("task-001", Name::new("worker-1")?, "success", "3 tests pass", now);
/// let file = put_report(root, ReportKind::Completed, &report, Durability::Power)?;
/// assert_eq!(file, "reports/task-001-completed.yaml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Malformed`] names the field that is wrong; or the disk failed.
pub fn put_report(
    root: &Path,
    kind: ReportKind,
    report: &TaskReport,
    durability: Durability,
) -> Result<String> {
    check(report)?;
    let end = match kind {
        ReportKind::Completed => "completed",
        ReportKind::Review => "review",
    };
    let name = format!("{}-{end}.yaml", report.task_id);
    let queue = Dir::open(root)?;
    let tmp = queue.ensure_child("tmp", Modes::default())?;
    let reports = queue.ensure_child("reports", Modes::default())?;
    let text = yaml::render(report);
    reports.replace(&name, text.as_bytes(), &tmp, Modes::default(), durability)?;
    Ok(format!("reports/{name}"))
}

fn check(report: &TaskReport) -> Result<()> {
    let wrong = |field: &str, detail: String| Err(Error::malformed("the report", field, detail));
    let task = report.task_id.as_str();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if task.is_empty() || task.len() > TASK_BYTES_MAX || !task.chars().all(is_name) {
        let detail = format!("has to be a file's name: 1 to {TASK_BYTES_MAX} of A-Z a-z 0-9 . _ -");
        return wrong("task_id", detail);
    }
    if task.starts_with(['.', '-']) {
        return wrong("task_id", "begins with a dot or a dash".to_owned());
    }
    for (field, text, most) in [
        ("status", &report.status, STATUS_BYTES_MAX),
        ("summary", &report.summary, SUMMARY_BYTES_MAX),
    ] {
        if text.trim().is_empty() {
            return wrong(field, "is empty: say how it went".to_owned());
        }
        if text.len() > most {
            return wrong(field, format!("has {} bytes, the limit is {most}", text.len()));
        }
    }
    Ok(())
}
