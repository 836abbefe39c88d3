//! What the verbs of requests share: kinds, refusals, waiting for an answer.

use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::message::Name;
use ensemble_core::proto::request::{Outcome as Answer, PLAN_APPROVAL, Refusal, SHUTDOWN};
use ensemble_core::requests::{Entry, Requests};
use ensemble_team::roster::Member;
use ensemble_watch::{Carried, carry_out};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Failure, Outcome, say};
use crate::queue::Queue;
use crate::starting::{dialog_of, waiting_for_person};
use crate::text::age;
use crate::wait_line::WaitLine;
use crate::watcher_start::watcher_runs;

/// How often a command that waits for the watcher checks that one still runs.
const WATCHER_LOOK: Duration = Duration::from_secs(1);
/// How often to look whether the addressee waits for a person.
const DIALOG_LOOK: Duration = Duration::from_secs(2);

/// The requests of the queue, of the kinds that are configured.
pub(crate) fn requests<'q>(context: &Context, queue: &'q Queue) -> Outcome<Requests<'q>> {
    Ok(context.project()?.requests(queue.request_store())?)
}

/// A refusal as the command reports it: its text, and with `--json` the decision, its author and
/// its time.
pub(crate) fn refused(context: &Context, error: Error) -> Failure {
    if let Some(refusal) = error.area::<Refusal>()
        && context.out.is_json()
    {
        let mut object = json!({
            "request_id": refusal.id(), "refused": refusal.word(), "error": refusal.to_string(),
        });
        if let Refusal::Decided { decision, .. } = refusal {
            object["state"] = decision.outcome.word().into();
            object["decided_by"] = decision.by.as_str().into();
            object["decided_at"] = decision.at.to_string().into();
            object["comment"] = decision.comment.as_str().into();
        }
        if let Err(failure) = context.out.object(&object) {
            return failure;
        }
    }
    error.into()
}

/// Refuses an answer that is neither yes nor no.
pub(crate) fn check_answer(is_approved: bool, is_rejected: bool) -> Outcome {
    match is_approved || is_rejected {
        true => Ok(()),
        false => Err(Failure::usage("what is the answer?")
            .with_hint("`--approve`, or `--reject --reason TEXT`")),
    }
}

/// Says that a request is under way, or waits for its answer if it is to be waited for.
pub(crate) fn sent(
    context: &Context,
    requests: &Requests<'_>,
    queue: &Queue,
    entry: &Entry,
    wait: Option<Duration>,
) -> Outcome {
    if !context.out.is_json() {
        context.out.line(announcement(entry))?;
        context.out.flush()?;
    }
    let Some(patience) = wait else {
        return if context.out.is_json() { context.out.object(&entry.to_json()) } else { Ok(()) };
    };
    let end = Instant::now().checked_add(patience);
    let entry = answer(context, requests, queue, entry, patience)?;
    let entry = carried_out(context, requests, queue, entry, end)?;
    if context.out.is_json() {
        context.out.object(&entry.to_json())?;
    }
    judge(context, &entry, patience)?;
    let to = &entry.request.to;
    match &entry.decision {
        Some(decision) if !entry.request.kind().carries_out(decision) => Ok(()),
        Some(_) if !entry.is_closed => Err(Failure::nothing(format!("{to} has not gone yet"))
            .with_hint("the watcher sees to it: `ensemble team` shows when it has gone")),
        _ if context.out.is_json() => Ok(()),
        _ => context.out.line(format!("{to} has gone")),
    }
}

/// Waits until the decision is carried out, if its kind has anything to carry out. Where no watcher
/// runs, this command carries it out.
fn carried_out(
    context: &Context,
    requests: &Requests<'_>,
    queue: &Queue,
    entry: Entry,
    end: Option<Instant>,
) -> Outcome<Entry> {
    let id = entry.request.request_id.clone();
    let project = context.project()?;
    let waiter = queue.listen([&id])?;
    let left = || end.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
    let _line = WaitLine::new(format!("{} to be gone", entry.request.to), end.map(|_| left()));
    loop {
        let entry = requests.get(id.as_str())?;
        if !entry.is_to_be_carried_out() || left().is_zero() {
            return Ok(entry);
        }
        // On servers, an agent that is not of this host is another one's to see off.
        let is_ours =
            queue.directory().is_some() || project.roster().get(&entry.request.to)?.is_some();
        if !is_ours || watcher_runs(project) {
            waiter.wait(left().min(WATCHER_LOOK));
            continue;
        }
        let mut rest = |longest: Duration| {
            waiter.wait(longest);
            !left().is_zero()
        };
        let recorder = context.recorder()?;
        if carry_out(project, queue.request_store(), &*recorder, &entry, &mut rest)?
            == Carried::Elsewhere
        {
            waiter.wait(left().min(WATCHER_LOOK));
        }
    }
}

/// As the seed prints it.
fn announcement(entry: &Entry) -> String {
    let (id, state) = (&entry.request.request_id, entry.state());
    match entry.request.kind.as_str() {
        SHUTDOWN => format!("Shutdown request {id} sent (status: {state})"),
        PLAN_APPROVAL => format!("Plan submitted (request_id={id})"),
        kind => format!("Request {id} ({kind}) sent (status: {state})"),
    }
}

/// What a decider has done, as the seed prints it.
pub(crate) fn decided(context: &Context, entry: &Entry) -> Outcome {
    if let Some(untold) = &entry.untold {
        say(&format!("the decision stands, but some recipients were not notified yet: {untold}"));
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
            context.out.line(format!("{from} has mail about it: {id}, task {task}"))
        }
        _ => Ok(()),
    }
}

/// Waits for the answer. The waiting command also closes the request at its deadline, so that needs
/// no watcher. A dialog in which the addressee waits for a person is said once.
fn answer(
    context: &Context,
    requests: &Requests<'_>,
    queue: &Queue,
    entry: &Entry,
    patience: Duration,
) -> Outcome<Entry> {
    let id = &entry.request.request_id;
    let end = Instant::now().checked_add(patience);
    let waiter = queue.listen([id])?;
    let mut said = None;
    let asked = &entry.request;
    let whom = format!("{} to decide {} {id}", asked.to, asked.kind);
    let until = patience.min(asked.deadline_at().since(queue.request_store().now()));
    let _line = WaitLine::new(whom, Some(until));
    loop {
        let unknown = || Refusal::Unknown { id: id.to_string() };
        let entry = requests.expire(id)?.ok_or_else(|| Error::from(unknown()))?;
        let left = end.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        if entry.decision.is_some() {
            // A script may have written the decision without sending a message.
            return Ok(if entry.is_closed {
                entry
            } else {
                requests.resume(id.as_str())?.unwrap_or(entry)
            });
        }
        if left.is_zero() {
            return Ok(entry);
        }
        let until_deadline = entry.request.deadline_at().since(queue.request_store().now());
        waiter.wait(left.min(until_deadline).min(DIALOG_LOOK));
        let dialog = open_dialog(context, &entry.request.to)?;
        if let Some(dialog) = dialog.as_ref().filter(|it| said.as_ref() != Some(*it)) {
            say(&waiting_for_person(&entry.request.to, dialog));
            said = Some(dialog.clone());
        }
    }
}

/// The dialog in which an agent of this project waits for a person.
fn open_dialog(context: &Context, agent: &Name) -> Outcome<Option<String>> {
    let project = context.project()?;
    let member = project.roster().get(agent)?.filter(Member::is_present);
    Ok(member.and_then(|member| dialog_of(project, &member)))
}

/// The exit code of a wait: done if approved or forced, failed if not, nothing if it is pending.
fn judge(context: &Context, entry: &Entry, patience: Duration) -> Outcome {
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
            context.out.line(format!("approved by {by} at {at}{}", crate::text::one_line(&words)))
        }
        Answer::Expired if entry.request.kind().carries_out(decision) => {
            if context.out.is_json() {
                return Ok(());
            }
            context.out.line(format!("no answer by {at}: it is done without consent"))
        }
        Answer::Expired => Err(Failure::refused(format!("no answer to request {id} by {at}"))),
        Answer::Rejected | Answer::Cancelled => {
            let word = decision.outcome.word();
            Err(Failure::refused(format!("request {id} was {word} by {by} at {at}{words}")))
        }
    }
}
