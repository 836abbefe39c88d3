//! The rules of mail, once for all media: what follows from what is known of a message, and what the event log says
//! of it. A directory writes the answer into the name of a file, a server into a header.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::env::{Lease, PublishOutcome, millis};
use crate::event_log::{Recorder, types};
use crate::message::period::whole_seconds;
use crate::message::{Envelope, MessageId, Name, Timestamp};
use crate::{Error, Result};

pub const LEASE_SECONDS_MAX: u64 = 86_400;
pub const LEASE_RANGE: &str = "a lease runs for 1 second to 1 day";
/// How many unread messages a sender may have in a mailbox, unless configured.
pub const SENDER_MESSAGES_MAX: u64 = 1_000;
/// How many bytes, attachments among them, unless configured.
pub const SENDER_BYTES_MAX: u64 = 64 * 1024 * 1024;
const REASON_CHARACTERS_MAX: usize = 1000;

/// How the reason of an attempt begins that a later attempt replaces.
pub(crate) const SUPERSEDED: &str = "superseded by ";
/// How the reason of a message begins that is on its way to another queue. The time at which it is due
/// follows, in milliseconds since the Unix epoch.
pub const MIGRATING: &str = "migrating, due at ";
/// How the reason of a message begins that its sender has recalled; the sender's name follows.
pub const RECALLED: &str = "recalled by ";
/// The reason of a second copy of a settled message.
pub(crate) const SETTLED_BEFORE: &str = "settled before under the same id";
/// The reason of a message that was received after its time.
pub(crate) const EXPIRED: &str = "expired";
/// Why a message returns whose holder has fallen silent.
pub const LEASE_EXPIRED: &str = "lease expired";

/// Whether nothing is owed for a dead letter with this reason: another copy, attempt or queue has the work, or its
/// sender has recalled it.
pub(crate) fn has_successor(reason: &str) -> bool {
    [SUPERSEDED, SETTLED_BEFORE, MIGRATING, RECALLED].iter().any(|begin| reason.starts_with(begin))
}

pub fn kept_reason(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(REASON_CHARACTERS_MAX).collect()
}

/// A place in the order of receiving; the first is received first.
pub type ReceiveOrder<I> = (bool, Reverse<u8>, u64, I);

/// Whether a waiting message is in line with everyday ones, and not before them as what is urgent, was returned or
/// redriven, or was delayed until `due`.
pub const fn is_in_line(priority: u8, epoch: u64, due: u64) -> bool {
    priority == 0 && epoch == 0 && due == 0
}

/// The order of receiving: those before the line, then those in line, each by priority and age.
pub const fn receive_order<I>(
    is_in_line: bool,
    priority: u8,
    made_at: u64,
    id: I,
) -> ReceiveOrder<I> {
    (is_in_line, Reverse(priority), made_at, id)
}

/// How long a lease runs that is extended to this duration, in seconds.
///
/// # Errors
/// [`Error::Invalid`] for none, and for more than a day.
pub fn lease_seconds(duration: Duration) -> Result<u64> {
    match whole_seconds(duration) {
        seconds @ 1..=LEASE_SECONDS_MAX => Ok(seconds),
        _ => Err(Error::invalid("the lease", "duration", LEASE_RANGE)),
    }
}

/// When a message is due that its holder releases, in milliseconds since the Unix epoch, 0 for at once; or the
/// reason of the dead letter that it becomes if this was its last attempt.
pub fn give_back(
    attempts: u64,
    attempts_max: u64,
    (delay, why): (Duration, &str),
    now: impl FnOnce() -> u64,
) -> std::result::Result<u64, String> {
    match (attempts < attempts_max, delay.is_zero()) {
        (true, true) => Ok(0),
        (true, false) => Ok(now().saturating_add(millis(delay))),
        (false, _) if attempts == 1 => Err(format!("{why} after 1 attempt")),
        (false, _) => Err(format!("{why} after {attempts} attempts")),
    }
}

/// Whether a holder's message was returned to the queue: `false` if its lease had ended.
pub fn unless_lost(given_back: Result<()>) -> Result<bool> {
    match given_back {
        Ok(()) => Ok(true),
        Err(Error::LeaseLost { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The message as it was read from `path`; or the reason of the dead letter if it cannot be delivered.
pub fn check_fit(
    read: Result<Envelope>,
    id: &MessageId,
    path: impl FnOnce() -> PathBuf,
    now: impl FnOnce() -> Timestamp,
) -> std::result::Result<Envelope, String> {
    let envelope = read.and_then(|envelope| {
        if envelope.id == *id {
            return Ok(envelope);
        }
        let detail = format!("says `{}`, but is stored as `{id}`", envelope.id);
        Err(Error::malformed(path(), "id", detail))
    });
    match envelope {
        Ok(envelope) if envelope.expires_at.is_some_and(|at| at <= now()) => {
            Err(EXPIRED.to_owned())
        }
        Ok(envelope) => Ok(envelope),
        Err(error) => Err(format!("malformed: {error}")),
    }
}

/// The outcome of a publish whose id is taken: by the same message, or by another one.
pub fn stored_before(
    envelope: &Envelope,
    stored: Result<Envelope>,
    is_settled: bool,
) -> Result<PublishOutcome> {
    match stored {
        // Its holder could read it.
        Err(_) if is_settled => Ok(PublishOutcome::AlreadyStored),
        Ok(stored) if stored.kind == envelope.kind && stored.body == envelope.body => {
            Ok(PublishOutcome::AlreadyStored)
        }
        Ok(_) => {
            let (mailbox, id) = (envelope.to.to_string(), envelope.id.to_string());
            Err(Error::Conflict { mailbox, id })
        }
        Err(error) => Err(error),
    }
}

/// Limits what each sender may have waiting in each mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Messages that one sender may leave unread.
    pub messages: u64,
    /// How many bytes, with attachments. A single message may be larger.
    pub bytes: u64,
    pub exempt: BTreeSet<Name>,
}

impl Default for Quota {
    fn default() -> Self {
        let (messages, bytes) = (SENDER_MESSAGES_MAX, SENDER_BYTES_MAX);
        Self { messages, bytes, exempt: BTreeSet::new() }
    }
}

impl Quota {
    pub fn exempting(mut self, names: impl IntoIterator<Item = Name>) -> Self {
        self.exempt.extend(names);
        self
    }

    /// Refuses a message of a sender that has as much waiting as it may.
    pub fn check(&self, used: SenderUsage, sent: &Envelope, recorder: &dyn Recorder) -> Result<()> {
        let SenderUsage { messages, bytes } = used;
        let is_large = messages > 0 && bytes + attached_bytes(sent) > self.bytes;
        if messages < self.messages && !is_large {
            return Ok(());
        }
        let data =
            json!({ "mailbox": sent.to, "id": sent.id, "messages": messages, "bytes": bytes });
        recorder.record(types::MAILBOX_QUOTA, sent.from.as_str(), data);
        let (mailbox, sender) = (sent.to.to_string(), sent.from.to_string());
        Err(Error::Quota { mailbox, sender, messages, bytes })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SenderUsage {
    pub messages: u64,
    /// Size of the messages in bytes, with attachments.
    pub bytes: u64,
}

impl SenderUsage {
    pub fn count_message(&mut self, content: &[u8], read: Result<Envelope>, sender: &Name) {
        if let Some(envelope) = read.ok().filter(|envelope| envelope.from == *sender) {
            self.messages += 1;
            self.bytes += content.len() as u64 + attached_bytes(&envelope);
        }
    }
}

pub fn attached_bytes(envelope: &Envelope) -> u64 {
    envelope.attachment.as_ref().map_or(0, |attachment| attachment.bytes)
}

pub fn no_message(id: &MessageId, place: &str) -> Error {
    Error::NoMessage { id: id.to_string(), place: place.to_owned() }
}

pub fn no_letter(mailbox: &Name, id: &MessageId) -> Error {
    no_message(id, &format!("among the dead letters of `{mailbox}`"))
}

pub fn record_stored(recorder: &dyn Recorder, envelope: &Envelope) {
    if !recorder.is_recording() {
        return;
    }
    let mut data = json!({
        "id": envelope.id, "mailbox": envelope.to, "type": envelope.kind, "bytes": envelope.body.len(),
    });
    let optional = [
        ("task_id", &envelope.task_id),
        ("correlation_id", &envelope.correlation_id),
        ("source", &envelope.source),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            data[key] = value.as_str().into();
        }
    }
    if let Some(traceparent) = &envelope.traceparent {
        data["traceparent"] = traceparent.as_str().into();
    }
    recorder.record(types::MESSAGE_STORED, envelope.from.as_str(), data);
}

/// Records what a holder has done with its message, such as [`types::MESSAGE_ACKED`].
pub fn record_held(recorder: &dyn Recorder, kind: &str, lease: &Lease) {
    if recorder.is_recording() {
        record_with(recorder, kind, lease, &[]);
    }
}

pub fn record_extended(recorder: &dyn Recorder, lease: &Lease, lease_seconds: u64) {
    let more = [("lease_seconds", lease_seconds.into())];
    record_with(recorder, types::MESSAGE_EXTENDED, lease, &more);
}

pub fn record_released(recorder: &dyn Recorder, lease: &Lease, (delay, why): (Duration, &str)) {
    let more = [("why", why.into()), ("delay_ms", millis(delay).into())];
    record_with(recorder, types::MESSAGE_RELEASED, lease, &more);
}

fn record_with(recorder: &dyn Recorder, kind: &str, lease: &Lease, more: &[(&str, Value)]) {
    let mut data = json!({ "id": lease.id, "mailbox": lease.mailbox, "epoch": lease.epoch });
    for (key, value) in more {
        data[*key] = value.clone();
    }
    recorder.record(kind, lease.holder.as_str(), data);
}

/// Records that a message became a dead letter; and that its task has failed, if it was a task and has no successor.
pub fn record_dead(
    recorder: &dyn Recorder,
    (mailbox, id): (&Name, &MessageId),
    (holder, epoch): (Option<&Name>, u64),
    reason: &str,
    read: impl FnOnce() -> Option<Envelope>,
) {
    let worker = holder.unwrap_or(mailbox);
    let data = json!({ "id": id, "mailbox": mailbox, "epoch": epoch, "reason": reason });
    // A recall is an act of the sender, and a part of its story.
    let actor = reason.strip_prefix(RECALLED).unwrap_or(worker.as_str());
    recorder.record(types::MESSAGE_DEAD, actor, data);
    let envelope = read().filter(|_| !has_successor(reason));
    let Some(envelope) = envelope.as_ref() else { return };
    if let Some(task) = envelope.handed_over_task() {
        let data = json!({
            "task_id": task, "worker_id": worker, "status": "failed", "by": "dead_letter",
            "id": envelope.id, "attempt": envelope.attempt, "reason": reason,
        });
        recorder.record(types::TASK_FAILED, worker.as_str(), data);
    }
}

pub fn record_redriven(recorder: &dyn Recorder, (mailbox, id): (&Name, &MessageId), epoch: u64) {
    let data = json!({ "id": id, "mailbox": mailbox, "epoch": epoch });
    recorder.record(types::MESSAGE_REDRIVEN, mailbox.as_str(), data);
}

pub fn record_dropped(recorder: &dyn Recorder, (mailbox, id): (&Name, &MessageId)) {
    let data = json!({ "id": id, "mailbox": mailbox });
    recorder.record(types::MESSAGE_DROPPED, mailbox.as_str(), data);
}

/// The error for a message that a full mailbox refuses, after this is recorded. `refused` counts all that it has refused.
pub fn refuse_full(
    recorder: &dyn Recorder,
    envelope: &Envelope,
    capacity: u64,
    refused: u64,
) -> Error {
    let data = json!({ "mailbox": envelope.to, "id": envelope.id, "capacity": capacity, "refused": refused });
    recorder.record(types::MAILBOX_FULL, envelope.from.as_str(), data);
    Error::Full { mailbox: envelope.to.to_string(), capacity }
}
