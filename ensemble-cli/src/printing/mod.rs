//! Output that several verbs have in common.

use std::time::Duration;

use anstyle::Style;
use ensemble_app::departing::DepartureFate;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text;
use ensemble_app::text::{inline, one_line};
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::{explain_not_ready, not_ready_json};
use ensemble_core::event_log::{Record, Recorder, types};
use ensemble_core::message::{Envelope, Name, fenced};
use ensemble_core::proto::ready::ReadinessFailure;
use ensemble_core::proto::request::Outcome as Answer;
use ensemble_reports::contract::Summary;
use ensemble_team::board::{BoardTask, State, unmet};
use ensemble_team::driver::{SUMMARY_PATH, TaskBatch};
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{FAINT, Output};

pub(crate) mod conversation;
pub(crate) mod overview;
pub(crate) mod requests;
pub(crate) mod starting;

/// Prints the summary of a batch; a missing report is a failure.
pub(crate) fn print_summary(
    context: &Context,
    batch: &TaskBatch,
    summary: &Summary,
    is_new: bool,
) -> Outcome {
    if context.out.is_json() {
        let object = json!({ "batch_id": batch.id, "told": is_new, "file": SUMMARY_PATH });
        context.out.object(&text::with_members(object, summary))?;
    } else {
        let what = summary.summary.as_deref().unwrap_or_default();
        let when = if is_new { "" } else { " (sent before)" };
        context.out.line(format!("{}: {}{when}", batch.id, text::one_line(what)))?;
        for error in &summary.errors {
            context.out.line(format!("  {}", text::one_line(error)))?;
        }
    }
    match summary.missing_tasks.is_empty() {
        true => Ok(()),
        false => {
            let missing = text::plural(summary.missing_tasks.len() as u64, "report");
            Err(Failure::nothing(format!("{missing} missing: the conductor was notified")))
        }
    }
}

/// Prints the fate of each agent. Fails if an agent is still there.
pub(crate) fn print_fates(context: &Context, fates: &[DepartureFate]) -> Outcome {
    if context.out.is_json() {
        let refusals = fates.iter().filter_map(|fate| fate.object.as_ref());
        refusals.into_iter().try_for_each(|object| context.out.object(object))?;
    }
    let mut rows = Vec::new();
    for DepartureFate { agent, request_id, word, detail, .. } in fates {
        if context.out.is_json() {
            context.out.object(&serde_json::json!({
                "agent": agent, "request_id": request_id, "state": word, "detail": detail,
            }))?;
            continue;
        }
        let detail = match detail.as_str() {
            word if word == Answer::Approved.word() => "it agreed",
            word if word == Answer::Expired.word() => "stopped without an answer",
            words => words,
        };
        rows.push(vec![agent.to_string(), (*word).to_owned(), detail.to_owned()]);
    }
    if !rows.is_empty() {
        context.out.table(&["agent", "state", "detail"], rows)?;
    }
    let there: Vec<&str> =
        fates.iter().filter(|fate| fate.word != "gone").map(|fate| fate.agent.as_str()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let text = format!("still there: {}", there.join(", "));
    Err(Failure::refused(text).with_hint("`--force` ends them without their consent"))
}

pub(crate) fn print_tasks(context: &Context, state: &State, tasks: Vec<&BoardTask>) -> Outcome {
    let row = |task: &BoardTask| {
        let waits: Vec<&str> = match task.status.is_terminal() {
            true => Vec::new(),
            false => unmet(state, task).into_iter().map(Name::as_str).collect(),
        };
        let name = |name: Option<&Name>| name.map_or_else(|| "-".to_owned(), Name::to_string);
        vec![
            task.id.to_string(),
            task.status.as_str().to_owned(),
            name(task.reviewing_by.as_ref().or(task.assigned_to.as_ref())),
            if waits.is_empty() { "-".to_owned() } else { waits.join(" ") },
            task.description.clone().unwrap_or_default(),
        ]
    };
    let rows = tasks.into_iter().map(row).collect();
    context.out.table(&["task", "status", "agent", "waits for", "description"], rows)
}

/// No matter what the content looks like, it is seen where it begins, where it ends, and whose it is.
pub(crate) fn print_content(out: &Output, envelope: &Envelope) -> Outcome {
    let whose = format!("untrusted text from {}, between the fences", envelope.sender_address());
    out.line(format!("{:<8} {}", "content", out.paint(FAINT, whose)))?;
    out.content(fenced(&envelope.body).as_bytes())?;
    out.line("")
}

/// The content as it is, of the attachment if there is one.
pub(crate) fn print_body(out: &Output, queue: &ProjectQueue, envelope: &Envelope) -> Outcome {
    match &envelope.attachment {
        Some(attachment) => out.content(&queue.attached(attachment)?),
        None => out.content(envelope.body.as_bytes()),
    }
}

pub(crate) fn record_line(out: &Output, record: &Record, style: Style) -> String {
    let time = record.timestamp.to_string().replace('T', " ");
    format!(
        "{}  {}  {}  {}",
        out.paint(FAINT, time.trim_end_matches('Z')),
        out.paint(style, &record.kind),
        one_line(&record.actor),
        inline(&Value::Object(record.data.clone())),
    )
}

/// Records an assignment, and says on the terminal how far it is.
pub(crate) struct AssignProgress<'a> {
    pub(crate) recorder: &'a dyn Recorder,
    pub(crate) worker: &'a Name,
    pub(crate) task: &'a str,
    pub(crate) patience: Option<Duration>,
}

impl Recorder for AssignProgress<'_> {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        let Self { worker, task, .. } = self;
        let whom = match kind {
            types::READY_PING => format!("{worker} to answer ping {}", data["attempt"]),
            types::READY_IDLE | types::READY_PONG => format!("{worker} to receive {task}"),
            _ => return self.recorder.record(kind, actor, data),
        };
        WaitLine::change(whom, self.patience);
        self.recorder.record(kind, actor, data);
    }

    fn is_recording(&self) -> bool {
        self.recorder.is_recording()
    }
}

/// Says why a worker is not ready: what happened, the next command, and the seed's block on stderr; and an object for
/// `--json`.
pub(crate) fn describe_not_ready(
    context: &Context,
    failure: &ReadinessFailure,
) -> Outcome<Failure> {
    let (text, hint) = explain_not_ready(context, failure)?;
    if context.out.is_json() {
        context.out.object(&not_ready_json(failure))?;
        return Ok(Failure::refused(text).with_hint(hint));
    }
    let text = format!("ensemble: {text}\nhint: {hint}\n{failure}");
    Ok(Failure::Block { exit: VerbExit::Failed, text })
}
