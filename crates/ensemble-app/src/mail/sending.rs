//! Sending: who gets a message, and what it says besides its content.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{DeliveryClass, Envelope, MessageId, Name, TraceParent};
use ensemble_core::spool::Settings;
use ensemble_project::Project;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::mail::conversation::ensure_person;

/// How many names are shown beside one that does not exist.
const NAMES_SHOWN_MAX: usize = 12;

/// What a message says besides its recipient and its content.
#[derive(Clone, Debug, Default)]
pub struct MessageHeaders {
    /// Its type; `None` is the type of a plain message.
    pub kind: Option<Name>,
    pub id: Option<MessageId>,
    /// A higher one is received first.
    pub priority: u8,
    /// When a working recipient reads it.
    pub when: Option<DeliveryClass>,
    /// The sender's earlier message that it replaces.
    pub replaces: Option<MessageId>,
    pub task: Option<String>,
    pub attempt: Option<u32>,
    pub correlation: Option<String>,
    pub traceparent: Option<TraceParent>,
    /// When it becomes a dead letter, unless it was received before.
    pub expires: Option<Duration>,
}

impl MessageHeaders {
    /// The message from the caller to this mailbox, without its content.
    pub fn envelope(self, app: &App, to: &Name) -> Outcome<Envelope> {
        let mut envelope = app.sign(Envelope::new(to.clone(), String::new()))?;
        let when = self.when.unwrap_or_default();
        envelope.priority = self.priority.max(when.priority_min());
        envelope.when = self.when.filter(|when| *when != DeliveryClass::default());
        envelope.replaces = self.replaces;
        if let Some(kind) = self.kind {
            envelope = envelope.with_kind(kind);
        }
        if let Some(id) = self.id {
            envelope = envelope.with_id(id);
        }
        envelope.task_id = self.task;
        envelope.attempt = self.attempt;
        envelope.correlation_id = self.correlation;
        envelope.traceparent = self.traceparent;
        envelope.expires_at = self.expires.map(|time| SystemClock.wall().plus(time));
        Ok(envelope)
    }
}

/// The mailboxes of all agents but the sender.
pub(crate) fn all_recipients(
    project: &Project,
    queue: &dyn Broker,
    sender: &Name,
) -> Outcome<Vec<Name>> {
    let (mut all, own) = (queue.mailboxes()?, project.mailbox_of(sender));
    // People are not among them, nor names of agents that read the sender's mailbox.
    all.retain(|it| project.mailbox_of(it) != own && !project.is_person(it));
    match all.is_empty() {
        true => Err(Failure::refused("there is no other mailbox to send to")),
        false => Ok(all),
    }
}

/// Each of these mailboxes once. Missing ones are created if that is asked for, or if the configuration has their agent.
pub fn known_recipients(
    project: &Project,
    queue: &dyn Broker,
    to_all: &[Name],
    creates: bool,
) -> Outcome<Vec<Name>> {
    let mut recipients: Vec<Name> = Vec::with_capacity(to_all.len());
    let mut unknown = Vec::new();
    for to in to_all {
        let to = &project.mailbox_of(to);
        if recipients.contains(to) {
            continue;
        }
        if project.is_person(to) {
            ensure_person(queue, to)?;
        }
        // Nothing is stored anywhere if one of several names is wrong.
        match queue.settings(to) {
            Ok(_) => {}
            Err(Error::NoMailbox { .. }) if creates || project.is_configured_mailbox(to) => {
                queue.ensure_mailbox(to, &Settings::default())?;
            }
            Err(error @ Error::NoMailbox { .. }) => unknown.push(error),
            // Of several mailboxes, one that cannot be read is refused alone.
            Err(error) if to_all.len() == 1 || error.is_server_away() => return Err(error.into()),
            Err(_) => {}
        }
        recipients.push(to.clone());
    }
    match unknown.is_empty() {
        true => Ok(recipients),
        false => Err(unknown_recipients(unknown, &queue.mailboxes()?)),
    }
}

/// Recipients that do not exist, all at once. The names of those that exist help more than another mailbox without a
/// reader.
fn unknown_recipients(unknown: Vec<Error>, known: &[Name]) -> Failure {
    let mut names: Vec<&str> = known.iter().take(NAMES_SHOWN_MAX).map(Name::as_str).collect();
    if known.len() > names.len() {
        names.push("…");
    }
    let hint = match names.is_empty() {
        true => "`--create` creates it".to_owned(),
        false => format!("there are {}", names.join(", ")),
    };
    let texts: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    let several = Failure::nothing(texts.join("; "));
    let only = <[Error; 1]>::try_from(unknown).map(|[error]| Failure::from(error));
    only.unwrap_or(several).with_hint(hint)
}

pub fn broadcast_type() -> Name {
    Name::new("broadcast").unwrap_or_else(|_| unreachable!("it is a name"))
}
