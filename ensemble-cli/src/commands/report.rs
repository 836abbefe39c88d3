use ensemble_app::content::text_or_stdin;
use ensemble_app::mail::settling::{ReportContext, find_meant_task, refuse_stopped};
use ensemble_app::{drop, text};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::fields::is_absent;
use ensemble_reports::contract::{Status, TaskReport};
use ensemble_team::admission::TaskAct;
use ensemble_team::driver::file_stem;
use serde_json::json;

use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::flags::CheckFlags;

/// Report how a task ended
///
/// Writes `queue/reports/<task>-completed.yaml` by a rename; the watcher notifies Dispatch. Before that it is
/// linted: a report says who, how many, what share and where, without vague words. What is missing is
/// said, with how to say it, and nothing is written. A report settles the messages of its task that
/// the agent holds or was the last to hold. An agent that holds one by then is notified.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble report task-7 --status success --as worker-1 --modified src/auth.rs \\
      --summary '12 of 12 tests pass (100%), the token check is in src/auth.rs:45-52'
  ensemble report task-8 --status blocked --reason '0 of 3 keys (0%) are in config/keys.env:1' --summary -")]
pub(crate) struct Arguments {
    /// The task
    #[arg(value_name = "TASK", value_parser = args::header)]
    task: String,
    /// Result of the task: success, failed or blocked
    #[arg(long, value_name = "STATUS", value_parser = args::status)]
    status: Status,
    /// Summary of the work, in a sentence; `-` for stdin
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Why it was not done (needed unless the status is `success`)
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// A file that was changed; may be repeated
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    modified: Vec<String>,
    /// A file that was made; may be repeated
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    created: Vec<String>,
    /// Something that went wrong on the way; may be repeated
    #[arg(long = "error", value_name = "TEXT")]
    errors: Vec<String>,
    /// Output of the tests
    #[arg(long, value_name = "TEXT")]
    test_results: Option<String>,
    /// An alternative that was considered; may be repeated
    #[arg(long = "option", value_name = "TEXT")]
    options: Vec<String>,
    #[command(flatten)]
    checks: CheckFlags,
}

impl Arguments {
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        let status = self.status;
        let author = context.agent()?;
        if let Some(author) = &author {
            self.task = find_meant_task(context, &self.task, author);
        }
        if status != Status::Success && self.reason.as_deref().is_none_or(is_absent) {
            let text = format!("a report of the status `{status}` needs a reason");
            return Err(Failure::usage(text)
                .with_hint("add `--reason TEXT`: what is in the way, where, since when"));
        }
        if let (Status::Success, Some(agent)) = (status, &author) {
            context.project()?.doorkeeper().check(TaskAct::HandIn, &self.task, agent)?;
        }
        refuse_stopped(context, &self.task)?;
        let task = self.task.clone();
        let reporting = author.as_ref().map(|author| ReportContext::open(context, &task, author));
        let reporting = reporting.transpose()?;
        let mut report = TaskReport::new(self.task.clone(), status);
        report.worker_id = author.as_ref().map(ToString::to_string);
        report.set_attempt(reporting.as_ref().and_then(ReportContext::attempt));
        report.summary = self.summary.map(|text| text_or_stdin(&text)).transpose()?;
        report.failure_reason = self.reason;
        report.files_modified = self.modified;
        report.files_created = self.created;
        report.errors = self.errors;
        report.test_results = self.test_results.map(serde_json::Value::from);
        report.options_considered = self.options;
        report.completed_at = Some(SystemClock.wall().to_string());
        let file = format!("{}-completed.yaml", file_stem(&self.task));
        let text = drop::lint(context.project()?, &report, &file, &(&self.checks).into())?;
        let file = drop::land(context.project()?, &file, &text)?;
        let (spool, recorder) = (context.spool()?, context.recorder()?);
        let ends = context.project()?.task_ends();
        ends.reported(&spool, &report, text.as_bytes(), &*recorder)?;
        let settled = reporting.map(|reporting| reporting.settle(report.attempt()));
        let settled = settled.transpose()?.unwrap_or_default();
        if context.out.is_json() {
            return context.out.object(&json!({
                "task_id": self.task, "status": status.as_str(), "worker_id": report.worker_id,
                "file": file, "settled": settled,
            }));
        }
        context.out.line(format!("{} {status}: queue/{file}", text::one_line(&self.task)))?;
        settled.iter().try_for_each(|id| context.out.line(format!("settled {id}")))
    }
}
