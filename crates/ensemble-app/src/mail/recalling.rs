//! Recalling a message that was not read yet, and replacing it.
//!
//! ```text
//! the message                  its sender, or the person     any other
//! waits, and was never given   set aside: never delivered    is refused
//! held, settled, dead,         learns who has read it        is refused
//!   or given before
//! ```
//!
//! A recalled message is kept with the dead letters, with the reason `recalled by NAME`: nothing is owed for it, and
//! `ensemble dead retry` brings it back. The move is one rename, so a reader has the message, or the sender has it back.
//! A replacement is stored first, with the id of the older message in `replaces`. *A crash* in between leaves both, and
//! the newer one says that it counts; the same command again recalls the older one.

use ensemble_core::Error;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{RECALLED, State};
use serde_json::{Value, json};

use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::queue::ProjectQueue;
use crate::{App, ids};

/// How far one copy of a message got before its sender wanted it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecalledCopy {
    pub id: MessageId,
    pub mailbox: Name,
    /// Its reader if it was read already; `None` once it is recalled.
    pub read_by: Option<Name>,
}

impl RecalledCopy {
    pub fn object(&self) -> Value {
        let Self { id, mailbox, read_by } = self;
        json!({ "id": id, "mailbox": mailbox, "recalled": read_by.is_none(), "read_by": read_by })
    }

    pub fn sentence(&self) -> String {
        let Self { id, mailbox, read_by } = self;
        match read_by {
            None => format!("recalled {id}: {mailbox} will not read it"),
            Some(reader) => format!("not recalled: {reader} has read {id}"),
        }
    }
}

/// Recalls a message of the caller from one mailbox, or from all that have it.
pub fn recall(
    app: &App,
    queue: &ProjectQueue,
    given: &MessageId,
    mailbox: Option<&Name>,
) -> Outcome<Vec<RecalledCopy>> {
    let (id, mailboxes) = match mailbox {
        Some(mailbox) => (ids::message_of(queue, mailbox, given)?, vec![mailbox.clone()]),
        None => {
            let id = ids::message(queue, given)?;
            let mailboxes = queue.mailboxes_with(&id)?;
            (id, mailboxes)
        }
    };
    let (mut copies, mut failed) = (Vec::new(), None);
    for mailbox in mailboxes {
        match recall_copy(app, queue, &mailbox, &id) {
            Ok(copy) => copies.extend(copy),
            // The other copies are recalled before it is an error.
            Err(failure) => drop(failed.get_or_insert(failure)),
        }
    }
    let (id, place) = (id.to_string(), "in any mailbox".to_owned());
    match failed {
        None if copies.is_empty() => Err(Error::NoMessage { id, place }.into()),
        None => Ok(copies),
        Some(failure) => {
            copies.iter().for_each(|copy| say(&copy.sentence()));
            Err(failure)
        }
    }
}

/// Recalls what a stored message replaces, in its own mailbox. `None` if its mailbox has no such message.
pub fn recall_replaced(
    app: &App,
    queue: &ProjectQueue,
    replacement: &Envelope,
) -> Outcome<Option<RecalledCopy>> {
    let Some(id) = &replacement.replaces else { return Ok(None) };
    recall_copy(app, queue, &replacement.to, id)
}

/// `None` if the mailbox has no such message.
fn recall_copy(
    app: &App,
    queue: &ProjectQueue,
    mailbox: &Name,
    id: &MessageId,
) -> Outcome<Option<RecalledCopy>> {
    let Some(state) = queue.state(mailbox, id)? else { return Ok(None) };
    let actor = app.actor()?;
    let envelope = queue.peek(mailbox, id)?;
    let is_own = envelope.from == actor && envelope.project.is_none();
    if !is_own && !app.is_person()? {
        let from = envelope.sender_address();
        let text = format!("message `{id}` is from {from}, and only its sender recalls it");
        return Err(Failure::refused(text));
    }
    let copy = |read_by| Some(RecalledCopy { id: id.clone(), mailbox: mailbox.clone(), read_by });
    if let State::Queued { epoch: 0, .. } = state {
        match queue.set_aside(mailbox, id, &format!("{RECALLED}{actor}")) {
            Ok(()) => return Ok(copy(None)),
            // Its reader was quicker.
            Err(Error::NoMessage { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let letters = || queue.dead_letters(mailbox);
    Ok(match queue.state(mailbox, id)? {
        Some(State::Acked { holder, .. }) => copy(Some(holder)),
        Some(State::Dead)
            if letters()?.iter().any(|it| it.id == *id && it.reason.starts_with(RECALLED)) =>
        {
            copy(None)
        }
        _ => copy(Some(mailbox.clone())),
    })
}
