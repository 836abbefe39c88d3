//! Answering a message, as `ensemble reply`, the tool `reply` and a call of the API do it.
//!
//! ```text
//! the message                  its sender     the answer     the message afterwards
//! plain, held or waiting       reads mail     is sent        settled; as it was while its task waits for a plan
//! plain, settled before        reads mail     is sent        as it was
//! any other work, held         reads mail     is sent        still held: it ends by its report or a settle
//! a request without an answer  any            is refused: it is decided, not answered in words
//! a notice, or from Ensemble   any            is refused: no sender reads the answer
//! held by another agent        any            is refused
//! ```
//!
//! The answer is stored first. After a crash in between, the message is delivered again, marked as such.

use ensemble_core::env::Lease;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::requests::{RequestStore, UndecidedRequest};
use ensemble_core::spool::State;
use ensemble_team::driver::STEP_TYPE;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::mail::conversation::ensure_person;
use crate::mail::delivered::{PLAIN_TYPE, count_waiting, is_answered};
use crate::mail::elsewhere::{OtherProject, own_project};
use crate::mail::outgoing::OutgoingMail;
use crate::mail::readers::absent_reader;
use crate::mail::settling::settle_lease;
use crate::queue::ProjectQueue;
use crate::{App, ids};

/// How many held messages are compared with what is sent.
const HELD_MAX: usize = 200;

pub struct ReplyOutcome {
    pub id: MessageId,
    pub to: Name,
    pub answered: MessageId,
    pub settled: bool,
    /// How many more messages wait for the one who answered.
    pub waiting: usize,
    /// Why the message is not settled, or why the answer has no reader now.
    pub warning: Option<String>,
}

impl ReplyOutcome {
    pub fn object(&self) -> Value {
        let Self { id, to, answered, settled, waiting, warning } = self;
        let mut object = json!({
            "id": id, "mailbox": to, "answered": answered, "settled": settled, "waiting": waiting,
        });
        if let Some(warning) = warning {
            object["warning"] = warning.as_str().into();
        }
        object
    }
}

/// Sends an answer to the sender of a message in `mailbox`.
pub fn reply(
    app: &App,
    queue: &ProjectQueue,
    mailbox: &Name,
    given: &MessageId,
    content: Vec<u8>,
) -> Outcome<ReplyOutcome> {
    let actor = app.actor()?;
    let id = ids::message_of(queue, mailbox, given)?;
    let state = queue.state(mailbox, &id)?.ok_or_else(|| ids::missing_in(mailbox, &id))?;
    if let State::Acked { holder, .. } = &state
        && *holder != actor
    {
        return Err(Failure::refused(format!(
            "message `{id}` is held by {holder}, not by {actor}"
        )));
    }
    let envelope = queue.peek(mailbox, &id)?;
    refuse(app, queue.request_store(), &envelope, &actor)?;
    let elsewhere = envelope.project.as_ref().map(|project| OtherProject::open(app, project));
    let elsewhere = elsewhere.transpose()?;
    let to = match &elsewhere {
        None => address(app, queue, &envelope.from)?,
        Some(other) => other.recipient(&envelope.from)?,
    };
    let thread = envelope.correlation_id.clone().unwrap_or_else(|| id.to_string());
    let answer = Envelope::new(to.clone(), String::new())
        .with_correlation(thread)
        .with_causation(id.to_string());
    let mut answer = app.sign(answer)?;
    answer.project = elsewhere.as_ref().map(|_| own_project(app)).transpose()?;
    let there = elsewhere.as_ref().map_or(queue, |other| &other.queue);
    let reader = elsewhere.as_ref().map_or_else(|| app.project(), |other| other.app.project())?;
    let outgoing = OutgoingMail::new(reader, Some(there))?;
    let answer = outgoing.fill(app, answer, content)?;
    outgoing.post(&answer)?;
    let is_plain = envelope.kind.as_str() == PLAIN_TYPE;
    // The answer is sent: after an error it would be sent again.
    let ended = match is_plain {
        true => settle(app, queue.request_store(), (mailbox, &id), &actor),
        false => Ok(state == State::Settled),
    };
    let waiting = count_waiting(queue, mailbox);
    let unsettled = ended.as_ref().err();
    let unsettled = unsettled.map(|failure| format!("{id} is not settled: {}", failure.text()));
    let warning = unsettled.or_else(|| absent_reader(reader, &answer));
    let settled = ended.unwrap_or(false);
    Ok(ReplyOutcome { id: answer.id.clone(), to, answered: id, settled, waiting, warning })
}

/// Settles the plain message that a sent one answers: its sender holds it, and names it or its thread to the one who
/// wrote it. Any other message changes nothing.
pub fn settle_answered(app: &App, store: &dyn RequestStore, sent: &Envelope) -> Outcome {
    let named: Vec<&str> =
        [&sent.correlation_id, &sent.causation_id].into_iter().flatten().map(|id| &**id).collect();
    if named.is_empty() {
        return Ok(());
    }
    let (queue, holder, project) = (store.broker(), &sent.from, app.project()?);
    let mailbox = project.mailbox_of(holder);
    let Ok(held) = queue.observe(&mailbox) else { return Ok(()) };
    for lease in held.into_iter().take(HELD_MAX).map(|held| held.lease) {
        if lease.holder != *holder {
            continue;
        }
        let Ok(envelope) = queue.peek(&mailbox, &lease.id) else { continue };
        let thread = envelope.correlation_id.as_deref();
        let is_named = named.iter().any(|id| *id == lease.id.as_str() || Some(*id) == thread);
        let is_plain = envelope.kind.as_str() == PLAIN_TYPE && envelope.project.is_none();
        if is_named && is_plain && project.mailbox_of(&envelope.from) == sent.to {
            settle(app, store, (&mailbox, &lease.id), holder)?;
        }
    }
    Ok(())
}

/// Settles a message that was answered, taking it first if it waits. Whether it is settled then.
fn settle(
    app: &App,
    store: &dyn RequestStore,
    (mailbox, id): (&Name, &MessageId),
    holder: &Name,
) -> Outcome<bool> {
    let queue = store.broker();
    let lease = match queue.state(mailbox, id)? {
        Some(State::Settled) => return Ok(true),
        Some(State::Acked { holder: by, epoch }) if by == *holder => {
            Lease { mailbox: mailbox.clone(), id: id.clone(), holder: by, epoch }
        }
        Some(State::Queued { .. }) => match queue.receive_done(mailbox, id, holder)? {
            Some(delivery) => delivery.lease,
            None => return Ok(false),
        },
        Some(State::Acked { .. } | State::Dead) | None => return Ok(false),
    };
    settle_lease(app, store, &lease)?;
    Ok(true)
}

/// Refuses what no sender would read, and what is decided instead.
fn refuse(app: &App, store: &dyn RequestStore, envelope: &Envelope, actor: &Name) -> Outcome {
    if let Some(entry) = app.project()?.requests(store)?.undecided(envelope)? {
        let request = entry.request.request_id;
        return Err(ensemble_core::Error::from(UndecidedRequest { request }).into());
    }
    if is_answered(envelope, actor) {
        return Ok(());
    }
    let (from, kind, id) = (&envelope.from, &envelope.kind, &envelope.id);
    let text = format!("its sender reads no answer: this is a `{kind}` from {from}");
    Err(Failure::refused(text).with_hint(match kind.as_str() {
        STEP_TYPE => "its text says how to submit it".to_owned(),
        _ => format!("`ensemble settle {id}` ends it"),
    }))
}

fn address(app: &App, queue: &ProjectQueue, sender: &Name) -> Outcome<Name> {
    let project = app.project()?;
    let mailbox = project.mailbox_of(sender);
    if project.is_person(sender) {
        ensure_person(&**queue, &mailbox)?;
    }
    Ok(mailbox)
}
