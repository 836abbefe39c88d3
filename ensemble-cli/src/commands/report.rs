//! `ensemble report`: writes a report into the drop box.

use std::path::PathBuf;

use ensemble_core::dropbox::{ReportKind, TaskReport, put_report};
use ensemble_core::env::{Clock as _, SystemClock};
use serde_json::json;

use super::send::content_of;
use crate::args;
use crate::context::Context;
use crate::exit::{Failure, Outcome};

/// Report on a task: the end of its work, or the result of a review
///
/// Writes `queue/reports/<TASK>-completed.yaml` or `-review.yaml` whole, from where the watcher sends
/// it to whoever coordinates. Writing such a file by hand does the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble report task-001 success -m '3 files, 12 tests pass'
  ensemble report task-001 rejected --review - < findings.txt")]
pub(crate) struct Arguments {
    /// The task
    #[arg(value_parser = args::header)]
    task: String,
    /// How it went, in one word: success, failure, blocked, approved, rejected
    status: String,
    /// A file with the summary; `-` for stdin
    #[arg(value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    #[arg(required_unless_present = "message", conflicts_with = "message")]
    file: Option<PathBuf>,
    /// The summary itself
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// A file that was made or changed; may be given again
    #[arg(long = "artifact", value_name = "FILE")]
    artifacts: Vec<String>,
    /// It is the result of a review
    #[arg(long)]
    review: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let worker = context.agent_required()?;
        let summary = match (self.message, self.file) {
            (Some(text), _) => text,
            (None, Some(file)) => String::from_utf8(content_of(&file)?)
                .map_err(|_| Failure::refused(format!("{}: is no UTF-8", file.display())))?,
            (None, None) => String::new(),
        };
        let report = TaskReport::new(self.task, worker, self.status, summary, SystemClock.wall())
            .with_artifacts(self.artifacts);
        let kind = if self.review { ReportKind::Review } else { ReportKind::Completed };
        let spool = context.spool()?;
        let durability = context.project()?.config.durability.unwrap_or_default();
        let file = put_report(spool.root(), kind, &report, durability)?;
        if context.out.is_json() {
            let task = &report.task_id;
            return context.out.object(&json!({ "file": file, "task_id": task }));
        }
        context.out.line(file)
    }
}
