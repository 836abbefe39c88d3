//! Output that several verbs have in common.

use ensemble_app::departing::DepartureFate;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::text;
use ensemble_core::message::Name;
use ensemble_core::proto::request::Outcome as Answer;
use ensemble_reports::contract::Summary;
use ensemble_team::board::{BoardTask, State, unmet};
use ensemble_team::driver::{SUMMARY_PATH, TaskBatch};
use serde_json::json;

use crate::context::Context;

pub(crate) mod content;
pub(crate) mod conversation;
pub(crate) mod overview;
pub(crate) mod readiness;
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
