//! What a person reads: their mailbox, as a conversation. Reading settles.
//!
//! ```text
//! a message of the mailbox       what happens to it once it has been printed
//! waits                          received and settled
//! held since a run that died     settled
//! a request without an answer    stays, and is shown again until it is decided
//! ```

use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::requests::{RequestEntry, SenderEvidence};
use ensemble_core::spool::{Found, Settings, State};
use ensemble_core::{Error, allow_no_mailbox};

use crate::App;
use crate::failure::Outcome;
use crate::mail::answers;
use crate::mail::delivered::sender_of;
use crate::mail::settling::settle_lease;
use crate::queue::ProjectQueue;

const READ_MAX: usize = 100;

pub fn ensure_person(queue: &dyn Broker, person: &Name) -> Outcome {
    match queue.settings(person) {
        Err(Error::NoMailbox { .. }) => Ok(queue.ensure_mailbox(person, &Settings::default())?),
        known => Ok(known.map(drop)?),
    }
}

#[derive(Clone, Copy)]
pub struct ShownMessage<'m> {
    pub mailbox: &'m Name,
    pub envelope: &'m Envelope,
    pub sender: SenderEvidence,
    /// The request that it asks, while that is undecided.
    pub entry: Option<&'m RequestEntry>,
}

/// What waits for a reader and what is held, in all mailboxes of a person.
pub fn list_unfinished(
    app: &App,
    queue: &ProjectQueue,
    reader: &Name,
    limit: usize,
) -> Outcome<Vec<Found>> {
    let mut found = queue.unfinished(reader, limit)?;
    if let Some(earlier) = app.project()?.earlier_mailbox(reader) {
        let more = allow_no_mailbox(queue.unfinished(&earlier, limit))?;
        found.extend(more.unwrap_or_default());
    }
    Ok(found)
}

/// Shows all that waits, the oldest first, and settles it. Returns how many messages were shown.
pub fn read_waiting(
    app: &App,
    queue: &ProjectQueue,
    mut show: impl FnMut(&ShownMessage<'_>) -> Outcome,
) -> Outcome<usize> {
    let person = app.actor()?;
    let mut all = Vec::new();
    for found in list_unfinished(app, queue, &person, READ_MAX)? {
        // One that cannot be read is received anyway, and becomes a dead letter.
        let made = queue.peek(&found.mailbox, &found.id).map(|envelope| envelope.created_at);
        all.push((made.ok(), found));
    }
    all.sort_by_key(|(made, _)| *made);
    let mut count = 0;
    for (_, found) in all {
        let mailbox = &found.mailbox;
        let delivery = match found.state {
            State::Queued { .. } => {
                if let Ok(envelope) = queue.peek(mailbox, &found.id)
                    && let Some(entry) = open_request(app, queue, &envelope)?
                {
                    let (envelope, sender) = (&envelope, SenderEvidence::Stated);
                    show(&ShownMessage { mailbox, envelope, sender, entry: Some(&entry) })?;
                    count += 1;
                    continue;
                }
                queue.receive_id(mailbox, &found.id, &person)?
            }
            State::Acked { holder, epoch } if holder == person => {
                let lease = Lease { mailbox: mailbox.clone(), id: found.id, holder, epoch };
                let envelope = queue.peek(mailbox, &lease.id)?;
                Some(Delivery::new(envelope, lease, Duration::ZERO))
            }
            State::Acked { .. } | State::Settled | State::Dead => None,
        };
        if let Some(delivery) = delivery {
            read_received(app, queue, &delivery, &mut show)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Shows a message that was received, and settles it. A request without an answer is released.
pub fn read_received(
    app: &App,
    queue: &ProjectQueue,
    delivery: &Delivery,
    mut show: impl FnMut(&ShownMessage<'_>) -> Outcome,
) -> Outcome {
    let Delivery { envelope, lease, .. } = delivery;
    let sender = sender_of(queue, delivery);
    answers::correlate(app, queue.request_store(), envelope, sender);
    let entry = open_request(app, queue, envelope)?;
    let (mailbox, asked) = (&lease.mailbox, entry.as_ref());
    let shown = show(&ShownMessage { mailbox, envelope, sender, entry: asked });
    if shown.is_err() || entry.is_some() {
        queue.release(lease, Duration::ZERO)?;
        return shown;
    }
    settle_lease(app, queue.request_store(), lease)
}

fn open_request(
    app: &App,
    queue: &ProjectQueue,
    envelope: &Envelope,
) -> Outcome<Option<RequestEntry>> {
    Ok(app.project()?.requests(queue.request_store())?.undecided(envelope)?)
}
