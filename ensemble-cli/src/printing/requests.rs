use std::time::Duration;

use ensemble_app::asking::await_answer;
use ensemble_app::diagnostics::say;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{age, one_line};
use ensemble_core::proto::request::{Outcome as Answer, PLAN_APPROVAL, SHUTDOWN};
use ensemble_core::requests::{RequestEntry, Requests};

use crate::context::{Context, Failure, Outcome};

/// Says that a request is under way, or waits for its answer if it is to be waited for.
pub(crate) fn print_sent(
    context: &Context,
    requests: &Requests<'_>,
    queue: &ProjectQueue,
    entry: &RequestEntry,
    wait: Option<Duration>,
) -> Outcome {
    if !context.out.is_json() {
        context.out.line(announcement(entry))?;
        context.out.flush()?;
    }
    let Some(patience) = wait else {
        return if context.out.is_json() { context.out.object(&entry.to_json()) } else { Ok(()) };
    };
    let entry = await_answer(context, requests, queue, entry, patience)?;
    if context.out.is_json() {
        context.out.object(&entry.to_json())?;
    }
    judge(context, &entry, patience)?;
    let to = &entry.request.to;
    match &entry.decision {
        Some(decision) if !entry.request.kind().carries_out(decision) => Ok(()),
        Some(_) if !entry.is_closed => Err(Failure::nothing(format!("{to} has not gone yet"))
            .with_hint("the watcher takes care of it: `ensemble team` shows when it has gone")),
        _ if context.out.is_json() => Ok(()),
        _ => context.out.line(format!("{to} has gone")),
    }
}

/// As the seed prints it.
fn announcement(entry: &RequestEntry) -> String {
    let (id, state) = (&entry.request.request_id, entry.state());
    match entry.request.kind.as_str() {
        SHUTDOWN => format!("Shutdown request {id} sent (status: {state})"),
        PLAN_APPROVAL => format!("Plan submitted (request_id={id})"),
        kind => format!("Request {id} ({kind}) sent (status: {state})"),
    }
}

pub(crate) fn print_decided(context: &Context, entry: &RequestEntry) -> Outcome {
    if let Some(untold) = &entry.untold {
        say(&format!("the decision is made, but some recipients were not notified yet: {untold}"));
    }
    if context.out.is_json() {
        return context.out.object(&entry.to_json());
    }
    let (id, state, from) = (&entry.request.request_id, entry.state(), &entry.request.from);
    let kind = entry.request.kind.as_str();
    context.out.line(match kind {
        SHUTDOWN => format!("Shutdown {state}"),
        PLAN_APPROVAL => format!("Plan {state} for '{from}'"),
        kind => format!("Request {id} ({kind}) {state} for '{from}'"),
    })?;
    match &entry.request.task_id {
        Some(task) if kind == PLAN_APPROVAL && entry.untold.is_none() => {
            let task = one_line(task);
            context.out.line(format!("{from} has mail about it: {id}, task {task}"))
        }
        _ => Ok(()),
    }
}

/// The exit code of a wait: done if approved or forced, failed if not, nothing if it is pending.
fn judge(context: &Context, entry: &RequestEntry, patience: Duration) -> Outcome {
    let id = &entry.request.request_id;
    let Some(decision) = &entry.decision else {
        return Err(Failure::nothing(format!("after {} request {id} is pending", age(patience)))
            .with_hint(format!(
                "`ensemble request list {id}` shows it, `ensemble request cancel {id}` takes it back"
            )));
    };
    let (by, at) = (&decision.by, decision.at);
    let words = match decision.comment.as_str() {
        "" => String::new(),
        comment => format!(": {comment}"),
    };
    match decision.outcome {
        Answer::Approved if context.out.is_json() => Ok(()),
        Answer::Approved => {
            context.out.line(format!("approved by {by} at {at}{}", one_line(&words)))
        }
        Answer::Expired if entry.request.kind().carries_out(decision) => {
            if context.out.is_json() {
                return Ok(());
            }
            context.out.line(format!("no answer by {at}: it is stopped without consent"))
        }
        Answer::Expired => Err(Failure::refused(format!("no answer to request {id} by {at}"))),
        Answer::Rejected | Answer::Cancelled => {
            let word = decision.outcome.word();
            Err(Failure::refused(format!("request {id} was {word} by {by} at {at}{words}")))
        }
    }
}
