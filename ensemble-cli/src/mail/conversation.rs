//! What the person reads: the mailbox `operator`, as a conversation. Reading settles.
//!
//! ```text
//! a message of the mailbox       what happens to it once it has been printed
//! waits                          received and settled
//! held since a run that died     settled
//! a request without an answer    stays, and is shown again until it is decided
//! ```

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Clock as _, Delivery, Lease, SystemClock};
use ensemble_core::message::{Envelope, Name, Purpose};
use ensemble_core::requests::{Entry, Sender};
use ensemble_core::spool::{Settings, State};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Outcome;
use crate::ids;
use crate::mail::answers;
use crate::mail::delivered::sender_of;
use crate::mail::delivered::{PLAIN_TYPE, SenderStanding, envelope_json, is_answered, standing};
use crate::mail::settling::Settling;
use crate::output::{FAINT, STRONG};
use crate::queue::Queue;
use crate::text::{age, one_line, printable};

/// How many messages one look shows.
const READ_MAX: usize = 100;
/// The first words of the message that is answered, in characters.
const WORDS_CHARS_MAX: usize = 60;
/// Before each line of a message.
const INDENT: &str = "    ";

/// Makes the person's mailbox, where a queue of an older version has none.
pub(crate) fn ensure_operator(queue: &dyn Broker) -> Outcome {
    let operator = Name::operator();
    match queue.settings(&operator) {
        Err(Error::NoMailbox { .. }) => {}
        known => return Ok(known.map(drop)?),
    }
    match queue.add_mailbox(&operator, &Settings::default()) {
        Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Shows all that waits, the oldest first, and settles it. Returns how many messages were shown.
pub(crate) fn read(context: &Context, queue: &Queue, is_body: bool) -> Outcome<usize> {
    let operator = Name::operator();
    let mut all = Vec::new();
    for found in queue.unfinished(&operator, READ_MAX)? {
        // One that cannot be read is received all the same, and becomes a dead letter.
        let made = queue.peek(&operator, &found.id).map(|envelope| envelope.created_at);
        all.push((made.ok(), found));
    }
    all.sort_by_key(|(made, _)| *made);
    let mut count = 0;
    for (_, found) in all {
        let delivery = match found.state {
            State::Queued { .. } => {
                if let Ok(envelope) = queue.peek(&operator, &found.id)
                    && let Some(entry) = open_request(context, queue, &envelope)?
                {
                    show(context, queue, (&envelope, Sender::Stated), Some(&entry), is_body)?;
                    count += 1;
                    continue;
                }
                queue.receive_id(&operator, &found.id, &operator)?
            }
            State::Acked { holder, epoch } if holder == operator => {
                let lease = Lease { mailbox: operator.clone(), id: found.id, holder, epoch };
                let envelope = queue.peek(&operator, &lease.id)?;
                Some(Delivery::new(envelope, lease, Duration::ZERO))
            }
            State::Acked { .. } | State::Settled | State::Dead => None,
        };
        if let Some(delivery) = delivery {
            show_received(context, queue, &delivery, is_body)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Shows a message that was received, and settles it. A request without an answer goes back.
pub(crate) fn show_received(
    context: &Context,
    queue: &Queue,
    delivery: &Delivery,
    is_body: bool,
) -> Outcome {
    let Delivery { envelope, lease, .. } = delivery;
    let sender = sender_of(queue, delivery);
    answers::correlate(context, queue.request_store(), envelope, sender);
    let entry = open_request(context, queue, envelope)?;
    let shown = show(context, queue, (envelope, sender), entry.as_ref(), is_body)
        .and_then(|()| context.out.flush());
    if shown.is_err() || entry.is_some() {
        queue.release(lease, Duration::ZERO)?;
        return shown;
    }
    let recorder = context.recorder()?;
    Ok(Settling::of(context, queue.request_store(), &*recorder)?.settle(lease)?)
}

fn open_request(context: &Context, queue: &Queue, envelope: &Envelope) -> Outcome<Option<Entry>> {
    Ok(context.project()?.requests(queue.request_store())?.undecided(envelope)?)
}

fn show(
    context: &Context,
    queue: &Queue,
    (envelope, sender): (&Envelope, Sender),
    entry: Option<&Entry>,
    is_body: bool,
) -> Outcome {
    let out = &context.out;
    let commands = commands(queue, envelope, entry);
    if out.is_json() {
        return out.object(&object(context, queue, envelope, entry, &commands)?);
    }
    if is_body {
        return match &envelope.attachment {
            Some(attachment) => out.content(&queue.attached(attachment)?),
            None => out.content(envelope.body.as_bytes()),
        };
    }
    let ago = age(SystemClock.wall().since(envelope.created_at));
    let standing = standing(envelope, sender);
    let doubt = if standing == SenderStanding::Unproved { " (sender not proved)" } else { "" };
    let (from, verb) = (out.paint(STRONG, &envelope.from), verb(envelope, entry));
    out.line(format!("{from} {verb}, {ago} ago{doubt}"))?;
    if let Some(words) = answered_words(queue, envelope) {
        out.line(format!("{INDENT}{}", out.paint(FAINT, format!("> {words}"))))?;
    }
    for line in printable(&envelope.body).lines() {
        out.line(format!("{INDENT}{line}").trim_end())?;
    }
    if let Some(attachment) = &envelope.attachment {
        let path = queue.attachment_path(context, attachment)?;
        out.line(format!("{INDENT}{}", one_line(&path.to_string_lossy())))?;
    }
    for (_, command) in commands {
        out.line(format!("{INDENT}-> {command}"))?;
    }
    Ok(())
}

/// What a sender did, in words.
fn verb(envelope: &Envelope, entry: Option<&Entry>) -> String {
    let about = envelope.task_id.as_deref().map(|task| format!(" about {}", one_line(task)));
    let about = about.unwrap_or_default();
    match (entry, envelope.kind.as_str(), envelope.purpose()) {
        (Some(entry), ..) => format!("asks you: {}{about}", entry.request.kind),
        (None, PLAIN_TYPE, _) if envelope.causation_id.is_some() => format!("answered{about}"),
        (None, PLAIN_TYPE, _) => format!("wrote{about}"),
        (None, kind, Purpose::Notice) => format!("sent the notice {kind}{about}"),
        (None, kind, _) => format!("sent a {kind}{about}"),
    }
}

/// The first words of the person's own message that this one answers.
fn answered_words(queue: &Queue, envelope: &Envelope) -> Option<String> {
    let id = envelope.causation_id.as_deref()?.parse().ok()?;
    let asked = queue.peek(&envelope.from, &id).ok()?;
    asked.from.is_operator().then(|| asked.first_words(WORDS_CHARS_MAX))
}

/// The commands that answer a message, by name.
fn commands(
    queue: &Queue,
    envelope: &Envelope,
    entry: Option<&Entry>,
) -> Vec<(&'static str, String)> {
    let operator = Name::operator();
    if let Some(entry) = entry {
        let answer = format!("ensemble request answer {}", entry.request.request_id);
        return vec![
            ("approve", format!("{answer} --approve")),
            ("reject", format!("{answer} --reject --reason TEXT")),
        ];
    }
    if !is_answered(envelope, &operator) {
        return Vec::new();
    }
    // On servers, only whole ids of settled messages are found.
    let id = match queue.directory() {
        Some(_) => ids::short(&**queue, &operator, &envelope.id),
        None => envelope.id.to_string(),
    };
    vec![("reply", format!("ensemble reply {id} \"TEXT\""))]
}

fn object(
    context: &Context,
    queue: &Queue,
    envelope: &Envelope,
    entry: Option<&Entry>,
    commands: &[(&'static str, String)],
) -> Outcome<Value> {
    let commands = commands.iter().map(|(name, line)| ((*name).to_owned(), json!(line)));
    let mut object = json!({
        "id": envelope.id, "mailbox": Name::operator(),
        "state": if entry.is_some() { "queued" } else { "settled" },
        "commands": commands.collect::<serde_json::Map<_, _>>(),
        "envelope": envelope_json(envelope),
    });
    if let Some(attachment) = &envelope.attachment {
        object["attachment_path"] = json!(queue.attachment_path(context, attachment)?);
    }
    Ok(object)
}
