//! The end of a task: once an agent has reported on it, its messages are settled in whichever
//! mailbox they are.
//!
//! A message belongs to a task if it is work, is not a step, and has that `task_id`. A message without
//! a `task_id` belongs to the task whose name is its id. `author` is the agent that has reported.
//!
//! ```text
//! a message of the task         who has held it                         becomes
//! queued or delayed             the author was its last holder          settled (received by the author first)
//! queued or delayed             it lies in the author's own mailbox     settled (received by the author first)
//! held by the author            in this delivery, whatever its epoch    settled
//! held by another agent         the author before that one              settled, and withdrawn: the other agent
//!                                                                       is told by a notice, `mail.withdrawn`
//! settled, or a dead letter     any                                     left as it is
//! newer, or of a later attempt  any                                     left as it is: the report is not its end
//! any                           never the author                        left as it is
//! ```
//!
//! *The epoch still decides.* Each row is one settle under the lease that the file names at that moment. A holder
//! that settles, releases or extends under an old lease is refused as before. Only the report of a former holder ends
//! the present delivery, since it says that the work is done. A settle alone says nothing that could be compared. The
//! former holders of a message are those that its queue remembers ([`Broker::former_holders`]). In its own mailbox,
//! an agent counts as holder of all earlier deliveries.
//!
//! *A crash* in between leaves some messages as they were. The same report, met again, ends the rest. The notice is
//! stored first, under an id that follows from the message, so that it is stored once.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;

use super::Broker;
use crate::env::Lease;
use crate::error::allow_unreadable;
use crate::event_log::{Recorder, types};
use crate::mailboxes::visit_all_mailboxes;
use crate::message::fields::is_same_task;
use crate::message::{Digest, Envelope, MessageId, MessagePurpose, Name, Timestamp, yaml};
use crate::spool::{Found, State};
use crate::{Error, Result};

/// The type of the notice to an agent that another agent's report has ended its task.
pub const WITHDRAWN_TYPE: &str = "mail.withdrawn";
/// The type of messages that hand over steps, which end by their own submission.
const STEP_TYPE: &str = "step";
/// How many unfinished messages of the author's own mailbox are searched. Held ones come first.
const SEARCH_MAX: usize = 100;
/// How often to search again for a message that another process is moving.
const TRIES_MAX: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct TaskEnd<'a> {
    pub task: &'a str,
    pub author: &'a Name,
    /// When the report was written; later messages are another attempt. `None` for now.
    pub written_at: Option<Timestamp>,
    /// The attempt that it names; messages of later ones continue.
    pub attempt: Option<u32>,
    /// Only messages of this mailbox; `None` for all.
    pub only_in: Option<&'a Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedMessage {
    pub mailbox: Name,
    pub id: MessageId,
    /// The other agent that held it and has been notified.
    pub withdrawn_from: Option<Name>,
}

pub(super) fn end_task<B: Broker + ?Sized>(
    queue: &B,
    end: &TaskEnd<'_>,
    recorder: &dyn Recorder,
) -> Result<Vec<EndedMessage>> {
    let mut ended = Vec::new();
    let mailboxes = end.only_in.map_or_else(|| queue.mailboxes(), |only| Ok(vec![only.clone()]))?;
    let visited = visit_all_mailboxes(mailboxes, |mailbox| {
        for (id, former) in candidates(queue, mailbox, end.author)? {
            let message = (mailbox, &id);
            let Some(envelope) = of_task(queue, message, end)? else { continue };
            if let Some(withdrawn_from) = settle(queue, message, end, former, &envelope, recorder)?
            {
                ended.push(EndedMessage { mailbox: mailbox.clone(), id, withdrawn_from });
            }
        }
        Ok(())
    });
    // The task was in another mailbox than the one that failed.
    if ended.is_empty() { visited.map(|()| ended) } else { Ok(ended) }
}

pub(super) fn meant_task<B: Broker + ?Sized>(
    queue: &B,
    task: &str,
    author: &Name,
) -> Result<Option<String>> {
    let mut mailboxes = queue.mailboxes()?;
    // Its own mailbox nearly always has the task.
    mailboxes.sort_by_key(|mailbox| mailbox != author);
    let mut meant = BTreeSet::new();
    for mailbox in mailboxes {
        // The task may be in another mailbox than the one that cannot be read.
        for (id, _) in candidates(queue, &mailbox, author).unwrap_or_default() {
            let Ok(Some(envelope)) = allow_unreadable(queue.peek(&mailbox, &id)) else { continue };
            let its = envelope.task_id.as_deref().unwrap_or(id.as_str());
            if !is_work(&envelope) || !is_same_task(its, task) {
                continue;
            }
            if its == task {
                return Ok(None);
            }
            meant.insert(its.to_owned());
        }
    }
    let is_one = meant.len() == 1;
    Ok(meant.pop_first().filter(|_| is_one))
}

/// Unfinished messages that the author holds or has held, each with the number of the author's last delivery
/// that has ended; 0 for none.
fn candidates<B: Broker + ?Sized>(
    queue: &B,
    mailbox: &Name,
    author: &Name,
) -> Result<Vec<(MessageId, u64)>> {
    if mailbox == author {
        let before = |state: &State| match state {
            State::Queued { epoch, .. } => *epoch,
            State::Acked { epoch, .. } => epoch - 1,
            State::Settled | State::Dead => 0,
        };
        let found = queue.unfinished(mailbox, SEARCH_MAX)?;
        return Ok(found.into_iter().map(|Found { id, state, .. }| (id, before(&state))).collect());
    }
    let held = queue.observe(mailbox)?.into_iter().filter(|held| held.lease.holder == *author);
    let mut found: Vec<(MessageId, u64)> = held.map(|held| (held.lease.id, 0)).collect();
    for former in queue.former_holders(mailbox)?.into_iter().filter(|f| f.holder == *author) {
        match found.iter_mut().find(|(id, _)| *id == former.id) {
            Some((_, epoch)) => *epoch = former.epoch.max(*epoch),
            None => found.push((former.id, former.epoch)),
        }
    }
    Ok(found)
}

/// The message, if it belongs to the task and is not newer than the report.
fn of_task<B: Broker + ?Sized>(
    queue: &B,
    (mailbox, id): (&Name, &MessageId),
    end: &TaskEnd<'_>,
) -> Result<Option<Envelope>> {
    let Some(envelope) = allow_unreadable(queue.peek(mailbox, id))? else { return Ok(None) };
    let is_its = envelope.task_id.as_deref().unwrap_or(id.as_str()) == end.task;
    let is_older = end.written_at.is_none_or(|at| !envelope.is_later_than(at))
        && end.attempt.zip(envelope.attempt).is_none_or(|(named, its)| its <= named);
    Ok((is_its && is_work(&envelope) && is_older).then_some(envelope))
}

fn is_work(envelope: &Envelope) -> bool {
    envelope.purpose() == MessagePurpose::Work && envelope.kind.as_str() != STEP_TYPE
}

/// Settles one message by its row of the table; `None` if no row says so, or its admission refuses.
#[expect(clippy::option_option, reason = "settled or not, and from whom it was withdrawn")]
fn settle<B: Broker + ?Sized>(
    queue: &B,
    (mailbox, id): (&Name, &MessageId),
    end: &TaskEnd<'_>,
    former: u64,
    envelope: &Envelope,
    recorder: &dyn Recorder,
) -> Result<Option<Option<Name>>> {
    for _ in 0..TRIES_MAX {
        let (lease, withdrawn_from) = match queue.state(mailbox, id)? {
            Some(State::Queued { .. }) => match queue.receive_done(mailbox, id, end.author)? {
                Some(delivery) => (delivery.lease, None),
                None => continue,
            },
            Some(State::Acked { holder, epoch }) => {
                let lease = Lease { mailbox: mailbox.clone(), id: id.clone(), holder, epoch };
                let other = (lease.holder != *end.author).then(|| lease.holder.clone());
                if other.is_some() && former == 0 {
                    return Ok(None);
                }
                (lease, other)
            }
            Some(State::Settled | State::Dead) | None => return Ok(None),
        };
        if let Some(other) = &withdrawn_from {
            notify_agent(queue, other, end, envelope)?;
        }
        match queue.settle(&lease) {
            Ok(()) => {}
            Err(Error::LeaseLost { .. }) => continue,
            Err(error) => return Err(error),
        }
        if let Some(other) = &withdrawn_from {
            let data = json!({
                "id": id, "mailbox": mailbox, "task_id": envelope.task_id, "from": other,
                "by": end.author, "epoch": lease.epoch,
            });
            recorder.record(types::MESSAGE_WITHDRAWN, end.author.as_str(), data);
        }
        return Ok(Some(withdrawn_from));
    }
    Ok(None)
}

#[derive(Serialize)]
struct SettleNotice<'a> {
    task_id: &'a str,
    message_id: &'a MessageId,
    reported_by: &'a Name,
    what: String,
}

/// Tells an agent that the task it works on has ended. One without a mailbox learns it when it settles.
fn notify_agent<B: Broker + ?Sized>(
    queue: &B,
    agent: &Name,
    end: &TaskEnd<'_>,
    envelope: &Envelope,
) -> Result<()> {
    let (task, author) = (end.task, end.author);
    let what = format!(
        "{author} held this task before you and has reported it as ended: stop working on it; you need not settle it"
    );
    let notice =
        SettleNotice { task_id: task, message_id: &envelope.id, reported_by: author, what };
    let digest = Digest::of(format!("{agent}\n{}\n{author}", envelope.id).as_bytes()).short(32);
    let mut told = Envelope::new(queue.mailbox_of(agent), yaml::render(&notice))
        .with_id(MessageId::new(format!("withdrawn-{digest}"))?)
        .with_kind(Name::new(WITHDRAWN_TYPE)?)
        .from(author.clone())
        .with_priority(1);
    told.task_id.clone_from(&envelope.task_id);
    told.causation_id = Some(envelope.id.to_string());
    match queue.publish(&told) {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) if error.is_undeliverable() => Ok(()),
        Err(error) => Err(error),
    }
}
