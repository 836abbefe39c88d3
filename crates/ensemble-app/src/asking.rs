//! Requests: their kinds, refusals, and waiting for an answer.

use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::message::Name;
use ensemble_core::proto::request::{DecisionRefusal, PLAN_APPROVAL};
use ensemble_core::requests::{ESCALATED_TO, NewRequest, RequestEntry, Requests};
use ensemble_project::Project;
use ensemble_project::departure::{DepartureResult, carry_out};
use ensemble_team::roster::Member;
use serde_json::json;

use crate::App;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::interrupt::end_if_cancelled;
use crate::mail::conversation::ensure_person;
use crate::queue::ProjectQueue;
use crate::starting::{dialog_of, waiting_for_person};
use crate::wait_line::WaitLine;
use crate::watcher_start::watcher_runs;

/// How often a command that waits for the watcher checks that one still runs.
const WATCHER_LOOK: Duration = Duration::from_secs(1);
/// How often to look whether the addressee waits for a person.
const DIALOG_LOOK: Duration = Duration::from_secs(2);

pub fn requests<'q>(app: &App, queue: &'q ProjectQueue) -> Outcome<Requests<'q>> {
    Ok(app.project()?.requests(queue.request_store())?)
}

/// A refusal as it is reported: its text, and to programs the decision, its author and its time.
pub fn refused(error: Error) -> Failure {
    let Some(refusal) = error.area::<DecisionRefusal>() else { return error.into() };
    let mut object = json!({
        "request_id": refusal.id(), "refused": refusal.word(), "error": refusal.to_string(),
    });
    if let DecisionRefusal::Decided { decision, .. } = refusal {
        object["state"] = decision.outcome.word().into();
        object["decided_by"] = decision.by.as_str().into();
        object["decided_at"] = decision.at.to_string().into();
        object["comment"] = decision.comment.as_str().into();
    }
    Failure::from(error).with_object(object)
}

pub struct PlanSubmission {
    pub from: Name,
    /// Reviewer; `None` is the agent that demands it or has reviewed the last one, otherwise the lead of the team.
    pub to: Option<Name>,
    /// The task that is not begun before the plan is approved.
    pub task: Option<String>,
    pub id: Option<String>,
    pub source: Option<String>,
    pub content: Vec<u8>,
}

/// Stores a request, to the only reader of a mailbox if it names one. A person whom it asks has a mailbox from then on.
pub fn ask(app: &App, queue: &ProjectQueue, mut ask: NewRequest) -> Outcome<RequestEntry> {
    let project = app.project()?;
    if project.is_person(&ask.to) {
        ask.to = project.mailbox_of(&ask.to);
        ensure_person(&**queue, &ask.to)?;
    } else {
        ask.to = find_addressee(project, &ask.to)?;
    }
    requests(app, queue)?.ask(ask).map_err(refused)
}

/// Who decides what this name is asked: the agent of the roster, or the only agent that reads the mailbox.
fn find_addressee(project: &Project, name: &Name) -> Outcome<Name> {
    let (members, _) = project.roster().entries()?;
    let is_named = members.iter().any(|it| it.name == *name);
    let reads = |it: &&Member| !is_named && it.is_present() && it.mailbox == *name;
    let readers: Vec<&Name> = members.iter().filter(reads).map(|it| &it.name).collect();
    match readers[..] {
        [] => Ok(name.clone()),
        [reader] => Ok(reader.clone()),
        [one, other, ..] => {
            let text = format!("a request has one addressee: {one} and {other} read `{name}`");
            Err(Failure::refused(text).with_hint(format!("ask one of them, such as {one}")))
        }
    }
}

pub fn submit_plan(app: &App, queue: &ProjectQueue, plan: PlanSubmission) -> Outcome<RequestEntry> {
    let PlanSubmission { from, to, task, id, source, content } = plan;
    let to = match to {
        Some(to) => to,
        None => match requests(app, queue)?.reviewer(task.as_deref(), &from)? {
            Some(reviewer) => reviewer,
            None => find_lead(app, &from)?,
        },
    };
    let mut ask = NewRequest::new(PLAN_APPROVAL, from, to, content);
    if let Some(source) = source {
        ask = ask.with_source(source);
    }
    if let Some(task) = task {
        ask = ask.with_task(task);
    }
    if let Some(id) = id {
        ask = ask.with_id(id);
    }
    self::ask(app, queue, ask)
}

/// The conductor or the lead of the team, by role or name, for a plan of `from`; otherwise the mailbox `conductor`.
fn find_lead(app: &App, from: &Name) -> Outcome<Name> {
    let (mut members, _) = app.project()?.roster().entries()?;
    members.retain(|it| it.is_present() && it.name != *from);
    let lead = [ESCALATED_TO, "lead"].into_iter().find_map(|word| {
        let is_named = members.iter().find(|it| it.name.as_str() == word);
        is_named.or_else(|| members.iter().find(|it| it.role.as_str() == word))
    });
    match lead {
        Some(lead) => Ok(lead.name.clone()),
        None => Ok(Name::new(ESCALATED_TO).map_err(Error::from)?),
    }
}

/// Waits for the answer to a request, and until what was decided is carried out.
pub fn await_answer(
    app: &App,
    requests: &Requests<'_>,
    queue: &ProjectQueue,
    entry: &RequestEntry,
    patience: Duration,
) -> Outcome<RequestEntry> {
    let end = Instant::now().checked_add(patience);
    let wait = AnswerWait { app, requests, queue, end };
    let entry = wait.carried_out(wait.decision_on(entry, patience)?)?;
    settle_answer(app, queue, &entry);
    Ok(entry)
}

/// Settles the message with an answer that a command shows to the person who has asked. If that fails, the person reads
/// it twice.
pub fn settle_answer(app: &App, queue: &ProjectQueue, entry: &RequestEntry) {
    let (asked, person) = (&entry.request, &entry.request.from);
    if app.project().is_ok_and(|project| project.is_person(person))
        && let Ok(Some(answer)) =
            queue.receive_id(asked.mailbox_of(person), &asked.answer_id(), person)
    {
        let _ = queue.settle(&answer.lease);
    }
}

/// The wait of a command for a request.
struct AnswerWait<'a> {
    app: &'a App,
    requests: &'a Requests<'a>,
    queue: &'a ProjectQueue,
    end: Option<Instant>,
}

impl AnswerWait<'_> {
    fn left(&self) -> Duration {
        self.end.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Waits until the decision is carried out, if its kind has anything to carry out. Where no watcher runs, this
    /// command carries it out.
    fn carried_out(&self, entry: RequestEntry) -> Outcome<RequestEntry> {
        let Self { app, requests, queue, end } = self;
        let id = entry.request.request_id.clone();
        let project = app.project()?;
        let waiter = queue.listen([&id])?;
        let whom = format!("{} to be gone", entry.request.to);
        let _line = WaitLine::new(whom, end.map(|_| self.left()));
        loop {
            let entry = requests.get(id.as_str())?;
            if !entry.is_to_be_carried_out() || self.left().is_zero() {
                return Ok(entry);
            }
            // On servers, an agent that is not of this host is another one's to see off.
            let is_ours =
                queue.directory().is_some() || project.roster().get(&entry.request.to)?.is_some();
            let carry_out = || -> Outcome<DepartureResult> {
                let (store, recorder) = (queue.request_store(), app.recorder()?);
                let mut rest = |longest: Duration| {
                    waiter.wait(longest);
                    !self.left().is_zero()
                };
                Ok(carry_out(project, store, &*recorder, &entry, &mut rest)?)
            };
            if !is_ours || watcher_runs(project) || carry_out()? == DepartureResult::Elsewhere {
                waiter.wait(self.left().min(WATCHER_LOOK));
                end_if_cancelled()?;
            }
        }
    }

    /// Waits for the answer. The waiting command also closes the request at its deadline, so that needs no watcher. A
    /// dialog in which the addressee waits for a person is said once.
    fn decision_on(&self, entry: &RequestEntry, patience: Duration) -> Outcome<RequestEntry> {
        let Self { app, requests, queue, .. } = self;
        let asked = &entry.request;
        let id = &asked.request_id;
        let waiter = queue.listen([id])?;
        let mut said = None;
        let whom = format!("{} to decide {} {id}", asked.to, asked.kind);
        let until = patience.min(asked.deadline_at().since(queue.request_store().now()));
        let _line = WaitLine::new(whom, Some(until));
        loop {
            let unknown = || DecisionRefusal::Unknown { id: id.to_string() };
            let entry = requests.expire(id)?.ok_or_else(|| Error::from(unknown()))?;
            let left = self.left();
            if entry.decision.is_some() && !entry.is_closed {
                // A script may have written the decision without sending a message.
                return Ok(requests.resume(id.as_str())?.unwrap_or(entry));
            }
            if entry.decision.is_some() || left.is_zero() {
                return Ok(entry);
            }
            let until_deadline = entry.request.deadline_at().since(queue.request_store().now());
            waiter.wait(left.min(until_deadline).min(DIALOG_LOOK));
            end_if_cancelled()?;
            let dialog = open_dialog(app, &entry.request.to)?;
            if let Some(dialog) = dialog.as_ref().filter(|it| said.as_ref() != Some(*it)) {
                say(&waiting_for_person(app.project()?, &entry.request.to, dialog));
                said = Some(dialog.clone());
            }
        }
    }
}

fn open_dialog(app: &App, agent: &Name) -> Outcome<Option<String>> {
    let project = app.project()?;
    let member = project.roster().get(agent)?.filter(Member::is_present);
    Ok(member.and_then(|member| dialog_of(project, &member)))
}
