use ensemble_app::content::text_or_stdin;
use ensemble_app::{drop, text};
use ensemble_core::durable::Dir;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_reports::contract::{self, Reading, Review, ReviewFinding, Severity, Verdict};
use ensemble_team::driver::{ReviewCount, file_stem};
use serde_json::json;

use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::flags::CheckFlags;

const REPORT_BYTES_MAX: usize = 1024 * 1024;

/// Review the work of a task
///
/// Writes `queue/reports/<task>-review.yaml` by a rename (with the reviewer's name in it if another
/// one was first); the watcher notifies Dispatch. A worker cannot review its own work. Each
/// `needs_fix` is one more round for the task; at the limit (3, `review_cycles_max` in
/// ensemble.yaml) the task is stopped and the conductor decides.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task review task-7 --start --as worker-2
  ensemble task review task-7 --status approved --as worker-2
  ensemble task review task-7 --status needs_fix --as worker-2 \\
      --finding 'HIGH src/auth.rs:45: the token is logged => log its length'")]
#[command(group = clap::ArgGroup::new("verdict").required(true).multiple(true).args(["status", "start", "lift"]))]
pub(crate) struct Arguments {
    /// The task
    #[arg(value_name = "TASK", value_parser = args::header)]
    task: String,
    /// Whether the work can stay: approved or needs_fix
    #[arg(long, value_name = "STATUS", value_parser = args::verdict)]
    status: Option<Verdict>,
    /// Say in the log that the review begins; the verdict follows with `--status`
    #[arg(long, conflicts_with_all = ["status", "findings", "summary", "lift"])]
    start: bool,
    /// `[SEVERITY] PATH:LINE: WHAT IS WRONG [=> WHAT TO DO]`; may be repeated
    #[arg(long = "finding", value_name = "FINDING")]
    findings: Vec<String>,
    /// Reviewed work; `-` for stdin
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Let a task continue that came back too often, and count its rounds from 0
    #[arg(long, conflicts_with_all = ["status", "findings", "summary"])]
    lift: bool,
    #[command(flatten)]
    checks: CheckFlags,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if self.lift {
            return self.lift(context);
        }
        let reviewer = context.agent_required()?;
        let Some(verdict) = self.status else { return self.start(context, &reviewer) };
        let findings: Vec<ReviewFinding> =
            self.findings.iter().map(|text| ReviewFinding::parse(text)).collect();
        self.check(context, &reviewer, verdict, &findings)?;
        let mut review = Review::new(self.task.clone(), verdict);
        review.reviewer = Some(reviewer.to_string());
        review.summary = self.summary.as_deref().map(text_or_stdin).transpose()?;
        review.findings = findings;
        review.reviewed_at = Some(SystemClock.wall().to_string());
        let file = self.file(context, reviewer.as_str())?;
        let text = drop::lint(context.project()?, &review, &file, &(&self.checks).into())?;
        let recorder = context.recorder()?;
        let reviews = context.project()?.reviews();
        let file = drop::land(context.project()?, &file, &text)?;
        let count = reviews.count(&file, text.as_bytes(), &*recorder)?.unwrap_or_default();
        self.print(context, verdict, &file, &count, reviews.cycles_max)
    }

    fn check(
        &self,
        context: &Context,
        reviewer: &Name,
        verdict: Verdict,
        findings: &[ReviewFinding],
    ) -> Outcome {
        self.is_not_by(context, reviewer)?;
        let example = "--finding 'HIGH src/auth.rs:45: the token is logged => log its length'";
        if verdict == Verdict::NeedsFix && findings.is_empty() {
            return Err(Failure::usage("`needs_fix` needs a finding").with_hint(example));
        }
        let nothing = findings.iter().find(|finding| finding.description.is_empty());
        if nothing.is_some() {
            return Err(Failure::usage("a finding does not say what is wrong").with_hint(example));
        }
        let placeless = findings.iter().find(|f| f.file.is_none() || f.line.is_none());
        if let Some(finding) = placeless {
            let text = format!("the finding `{}` does not say where", finding.description);
            return Err(Failure::usage(text).with_hint(example));
        }
        let heavy = findings
            .iter()
            .find(|finding| matches!(finding.severity, Some(Severity::Critical | Severity::High)));
        if let Some(finding) = heavy.filter(|_| verdict == Verdict::Approved) {
            let text = format!("`{}` is too severe for an approval", finding.description);
            return Err(Failure::refused(text).with_hint("say `--status needs_fix`"));
        }
        Ok(())
    }

    /// `<task>-review.yaml`, or a name with the reviewer in it if that file is another reviewer's.
    fn file(&self, context: &Context, reviewer: &str) -> Outcome<String> {
        let stem = file_stem(&self.task);
        let plain = format!("{stem}-review.yaml");
        let reports = Dir::open(&context.project()?.queue.join("reports"))?;
        let there = reports.read(&plain, REPORT_BYTES_MAX)?;
        let other = there.and_then(|content| {
            let text = String::from_utf8(content).ok()?;
            match contract::read_as::<Review>(&text, plain.as_ref()) {
                Ok(Reading::Whole(review)) => review.reviewer,
                _ => None,
            }
        });
        Ok(match other {
            Some(other) if other != reviewer => format!("{stem}.{reviewer}-review.yaml"),
            _ => plain,
        })
    }

    fn start(&self, context: &Context, reviewer: &Name) -> Outcome {
        self.is_not_by(context, reviewer)?;
        let recorder = context.recorder()?;
        let count = context.project()?.reviews().begin(&self.task, reviewer, &*recorder)?;
        let answer = json!({
            "task_id": self.task, "reviewer": reviewer, "cycles": count.cycles,
        });
        context
            .out
            .print_answer(&answer, format!("{reviewer} reviews {}", text::one_line(&self.task)))
    }

    fn is_not_by(&self, context: &Context, reviewer: &Name) -> Outcome {
        if context.project()?.reviews().is_by(&self.task, reviewer)? {
            let text = format!("{reviewer} has done {} and cannot review it", self.task);
            return Err(Failure::refused(text).with_hint("another agent reviews it"));
        }
        Ok(())
    }

    fn lift(&self, context: &Context) -> Outcome {
        let reviews = context.project()?.reviews();
        if let Some(agent) = context.agent()?
            && reviews.is_by(&self.task, &agent)?
        {
            let text = format!("{agent} cannot lift the stop of a task that it works on");
            return Err(Failure::refused(text).with_hint("the conductor decides"));
        }
        let count = reviews.lift(&self.task)?;
        let data = json!({ "task_id": self.task });
        context.recorder()?.record(types::REVIEW_LIFTED, "ensemble", data);
        let fields = json!({ "task_id": self.task, "cycles": count.cycles, "stopped": false });
        context.out.print_answer(&fields, format!("{} continues", text::one_line(&self.task)))
    }

    fn print(
        &self,
        context: &Context,
        verdict: Verdict,
        file: &str,
        count: &ReviewCount,
        most: u32,
    ) -> Outcome {
        let stopped = count.stopped_at.is_some();
        if context.out.is_json() {
            return context.out.object(&json!({
                "task_id": self.task, "status": verdict.as_str(), "file": file,
                "cycles": count.cycles, "cycles_max": most, "stopped": stopped,
            }));
        }
        let task = text::one_line(&self.task);
        let round = match count.cycles {
            0 => String::new(),
            cycles => format!(" (round {cycles} of {most})"),
        };
        context.out.line(format!("{task} {verdict}{round}: queue/{file}"))?;
        match stopped {
            true => context.out.line(format!("{task} is stopped: the conductor decides")),
            false => Ok(()),
        }
    }
}
