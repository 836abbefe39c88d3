//! Mail: `send`, `recall`, `inbox`, `recv`, `reply`, `settle`, `release`,
//! `dead_letter`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_app::content::check_words;
use ensemble_app::failure::Failure;
use ensemble_app::held::{HeldMessage, SettledMessage, release_message, settle_message};
use ensemble_app::ids;
use ensemble_app::mail::awaiting::AwaitedReply;
use ensemble_app::mail::delivered::sender_of;
use ensemble_app::mail::elsewhere::{Address, OtherProject, own_project};
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::mail::outgoing::OutgoingMail;
use ensemble_app::mail::readers::absent_reader;
use ensemble_app::mail::recalling::{self, RecalledCopy};
use ensemble_app::mail::receiving::ReceiveObstacles;
use ensemble_app::mail::sending::MessageHeaders;
use ensemble_app::mail::{answers, replying};
use ensemble_app::receipt::note_read;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::State;
use ensemble_core::transfer::PostOutcome;
use ensemble_project::overview::COUNT_MAX;
use ensemble_team::driver::STEP_TYPE;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolAnswer, ToolError};
use crate::args;
use crate::mcp::ToolContext;

pub(crate) const INBOX_MAX: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendParams {
    /// The recipient; `NAME@PROJECT` is one of another project of your user.
    to: String,
    /// The text.
    message: String,
    /// The message type (default: message).
    #[serde(rename = "type")]
    kind: Option<Name>,
    /// The task it is about.
    task_id: Option<String>,
    /// The request it belongs to.
    request_id: Option<String>,
    /// W3C Trace Context.
    traceparent: Option<String>,
    /// 0 (everyday) to 9 (urgent).
    #[schemars(range(max = 9))]
    priority: Option<u8>,
    /// When an agent at work reads it: interrupt (now), tool (after its tool; the default) or turn (after its turn).
    when: Option<String>,
    /// Your earlier message that this one replaces.
    replaces: Option<String>,
    /// Waits this long, such as `5m`, for the answer: `reply` of the result.
    wait_for_reply: Option<String>,
    /// Whether you have to approve a plan for `task_id` before it can be finished.
    #[serde(default)]
    needs_plan: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxParams {
    /// How many messages at most (default 20, at most 100).
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecvParams {
    /// From `inbox`; without it, the next message.
    id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleParams {
    /// The message's id.
    id: String,
    /// The epoch that `recv` gave.
    epoch: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyParams {
    /// The message's id.
    id: String,
    /// The text.
    message: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecallParams {
    /// The message's id.
    id: String,
    /// Its recipient, if there were several.
    mailbox: Option<Name>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseParams {
    /// The message's id.
    id: String,
    /// The epoch that `recv` gave.
    epoch: Option<u64>,
    /// Delay in seconds (default 0).
    delay_seconds: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterParams {
    /// The message's id.
    id: String,
    /// The epoch that `recv` gave.
    epoch: Option<u64>,
    /// Why no agent can work on it.
    reason: String,
}

pub(super) fn send(desk: &ToolContext, message: SendParams) -> ToolAnswer {
    send_until(desk, message, &AtomicBool::new(false))
}

pub(super) fn send_until(
    desk: &ToolContext,
    send: SendParams,
    is_cancelled: &AtomicBool,
) -> ToolAnswer {
    // Texts were checked when the arguments were read.
    let patience = send.wait_for_reply.as_deref().and_then(|text| args::duration(text).ok());
    let to: Address = send.to.parse().map_err(|error| ToolError::new(format!("to: {error}")))?;
    let other = match &to.project {
        Some(_) if send.needs_plan || send.replaces.is_some() => {
            return Err(ToolError::new("needs_plan and replaces work in this project only"));
        }
        Some(project) => Some(OtherProject::open_to_send(&desk.app(), project)?),
        None => None,
    };
    let reader = match &other {
        Some(other) => other.app.project()?,
        None => &desk.project,
    };
    let queue = match &other {
        Some(other) => Some(&other.queue),
        None => desk.reached_queue()?,
    };
    let mut outgoing = OutgoingMail::new(reader, queue)?;
    let name = outgoing.recipients(std::slice::from_ref(&to.name), false)?.remove(0);
    let planned = send.task_id.clone().filter(|_| send.needs_plan);
    if send.needs_plan && planned.is_none() {
        return Err(ToolError::new("task_id: name the task that needs a plan"));
    }
    let asked_in = patience.map(|_| outgoing.reached_queue("the reply comes from there"));
    let asked_in = asked_in.transpose()?;
    let content = send.message.clone().into_bytes();
    let vague = check_words(&desk.app(), &content)?;
    let from_project = other.as_ref().map(|_| own_project(&desk.app())).transpose()?;
    let headers = headers_of(send)?;
    let envelope = outgoing.envelope(&desk.app(), headers, (&name, from_project), content)?;
    if let Some(task) = planned {
        outgoing.demand_plan(&task, &desk.agent)?;
    }
    let posted = outgoing.post(&envelope)?;
    if other.is_none() {
        outgoing.conclude(&desk.app(), &envelope);
    }
    let is_kept = matches!(posted, PostOutcome::Kept(_));
    let warning = match is_kept {
        true => {
            Some(format!("it waits on this host until the servers take it for {}", envelope.to))
        }
        false => absent_reader(reader, &envelope).or(vague),
    };
    let mut sent = sent_message(&outgoing, &posted, &envelope, warning);
    if envelope.replaces.is_some() {
        let recalled = outgoing.recall_replaced(&desk.app(), &posted, &envelope)?;
        sent["replaced"] = recalled.is_some_and(|copy| copy.read_by.is_none()).into();
    }
    if let (Some(patience), Some(asked_in), false) = (patience, asked_in, is_kept) {
        let mailbox = desk.mailbox.clone();
        let awaited = AwaitedReply { question: &envelope, asked_in, mailbox, patience };
        if let Some(reply) = reply_to(desk, &awaited, is_cancelled)? {
            sent["reply"] = reply;
        }
    }
    Ok(sent)
}

fn sent_message(
    outgoing: &OutgoingMail<'_>,
    posted: &PostOutcome,
    envelope: &Envelope,
    warning: Option<String>,
) -> Value {
    let mut sent = json!({
        "id": envelope.id, "mailbox": envelope.to, "state": "stored",
        "already_stored": posted.was_stored_before(),
    });
    if outgoing.has_outbox() {
        sent["outbox"] = matches!(posted, PostOutcome::Kept(_)).into();
    }
    if let Some(warning) = warning {
        sent["warning"] = warning.into();
    }
    sent
}

fn reply_to(
    desk: &ToolContext,
    awaited: &AwaitedReply<'_>,
    is_cancelled: &AtomicBool,
) -> Result<Option<Value>, ToolError> {
    // Its own session, so that other calls do not wait for the answer.
    let (app, own) = (desk.app().settled()?, desk.queue()?);
    let answer = awaited.wait(&app, own, || is_cancelled.load(Ordering::SeqCst))?;
    Ok(answer.map(|answer| awaited.show_answer(&app, own, &answer)).transpose()?)
}

fn headers_of(send: SendParams) -> Result<MessageHeaders, ToolError> {
    Ok(MessageHeaders {
        kind: send.kind,
        priority: send.priority.unwrap_or(0),
        when: send.when.and_then(|word| word.parse().ok()),
        replaces: send.replaces.map(MessageId::new).transpose()?,
        task: send.task_id,
        correlation: send.request_id,
        traceparent: send.traceparent.and_then(|text| text.parse().ok()),
        ..MessageHeaders::default()
    })
}

pub(super) fn recall(desk: &ToolContext, recall: RecallParams) -> ToolAnswer {
    let queue = desk.queue()?;
    let id = ids::message(queue, &MessageId::new(recall.id)?)?;
    let copies = recalling::recall(&desk.app(), queue, &id, recall.mailbox.as_ref())?;
    Ok(json!({ "copies": copies.iter().map(RecalledCopy::object).collect::<Vec<_>>() }))
}

pub(super) fn fetch(desk: &ToolContext, fetch: InboxParams) -> ToolAnswer {
    inbox(desk, fetch.limit.unwrap_or(20).clamp(1, INBOX_MAX))
}

pub(crate) fn inbox(desk: &ToolContext, limit: usize) -> ToolAnswer {
    let queue = desk.queue()?;
    let mut found = queue.unfinished(&desk.mailbox, limit + 1)?;
    let is_cut = found.len() > limit;
    found.truncate(limit);
    // One that was received or moved since it was listed, or that cannot be read, shows why.
    let messages = found
        .iter()
        .map(|found| MessageView::listed(found, queue.peek(&desk.mailbox, &found.id)).to_json());
    let messages: Vec<_> = messages.collect();
    let mut shown = json!({ "mailbox": desk.mailbox, "messages": messages });
    if is_cut {
        let waiting = queue.waiting(&desk.mailbox, COUNT_MAX)?;
        let more = format!("{waiting} wait: pass `limit` up to {INBOX_MAX}, or take them by recv");
        shown["more"] = more.into();
    }
    Ok(shown)
}

pub(super) fn acknowledge(desk: &ToolContext, acknowledge: RecvParams) -> ToolAnswer {
    let (mailbox, agent) = (&desk.mailbox, &desk.agent);
    let id = acknowledge.id.map(|id| message_id(desk, id)).transpose()?;
    let received = match &id {
        None => desk.queue()?.receive(mailbox, agent)?,
        Some(id) => desk.queue()?.receive_id(mailbox, id, agent)?,
    };
    let is_new = received.is_some();
    let delivery = match (received, &id) {
        (None, Some(id)) => held_already(desk, id)?,
        (received, _) => received,
    };
    let Some(delivery) = delivery else {
        return Err(nothing(desk)?);
    };
    taken(desk, &delivery, is_new)
}

pub(super) fn taken(desk: &ToolContext, delivery: &Delivery, is_new: bool) -> ToolAnswer {
    if delivery.envelope.kind.as_str() == STEP_TYPE {
        desk.learn_all()?;
    }
    let (queue, remark) = (desk.queue()?, if is_new { remark(desk, delivery)? } else { None });
    let view = MessageView::delivered(&desk.app(), queue, delivery, remark)?;
    if is_new {
        // Without this note the receipt says less; the message is delivered anyway.
        let _ = note_read(&desk.app(), delivery);
    }
    Ok(view.to_json())
}

/// Takes a new message for what it says about a request, as `recv` does. Returns what the message may not do; it is
/// delivered anyway.
fn remark(desk: &ToolContext, delivery: &Delivery) -> Result<Option<String>, ToolError> {
    let queue = desk.queue()?;
    let (store, sender) = (queue.request_store(), sender_of(queue, delivery));
    let told = answers::correlated(&desk.app(), store, &delivery.envelope, sender);
    Ok(told.unwrap_or_else(|failure| Some(failure.text())))
}

fn nothing(desk: &ToolContext) -> Result<ToolError, ToolError> {
    let (queue, mailbox) = (desk.queue()?, &desk.mailbox);
    let found = ReceiveObstacles::find(&desk.project, queue, mailbox, &desk.agent)?;
    let why = match found.reasons.as_slice() {
        [] => "nothing waits in your mailbox: wait until you are notified of mail".to_owned(),
        reasons => {
            format!("nothing waits in your mailbox that you may take: {}", reasons.join("; "))
        }
    };
    Ok(match found.hint {
        Some(hint) => Failure::nothing(why).with_hint(hint).into(),
        None => ToolError::new(why),
    })
}

/// A message that this agent has already is shown again.
fn held_already(desk: &ToolContext, id: &MessageId) -> Result<Option<Delivery>, ToolError> {
    match desk.queue()?.state(&desk.mailbox, id)? {
        Some(State::Acked { holder, epoch }) if holder == desk.agent => {
            let envelope = desk.queue()?.peek(&desk.mailbox, id)?;
            let lease = Lease { mailbox: desk.mailbox.clone(), id: id.clone(), holder, epoch };
            let duration = desk.queue()?.settings(&desk.mailbox)?.lease_duration();
            Ok(Some(Delivery::new(envelope, lease, duration)))
        }
        Some(state) => Err(ToolError::new(format!(
            "message {id} is {}, it does not wait any more: inbox shows what does",
            state.word()
        ))),
        None => Err(ToolError::new(format!(
            "there is no message {id} in your mailbox {}: inbox shows what there is",
            desk.mailbox
        ))),
    }
}

fn held_message(
    desk: &ToolContext,
    id: String,
    epoch: Option<u64>,
) -> Result<HeldMessage, ToolError> {
    Ok(HeldMessage { id: MessageId::new(id)?, mailbox: Some(desk.mailbox.clone()), epoch })
}

pub(super) fn release(desk: &ToolContext, release: ReleaseParams) -> ToolAnswer {
    let queue = desk.queue()?;
    let message = held_message(desk, release.id, release.epoch)?;
    let delay = Duration::from_secs(release.delay_seconds.unwrap_or(0));
    let (lease, state) = release_message(&desk.app(), queue, message, delay)?;
    Ok(json!({ "id": lease.id, "mailbox": lease.mailbox, "state": state }))
}

pub(super) fn dead_letter(desk: &ToolContext, letter: DeadLetterParams) -> ToolAnswer {
    let queue = desk.queue()?;
    let message = held_message(desk, letter.id, letter.epoch)?.completed(&desk.app(), queue)?;
    let lease = message.lease(&desk.app(), &**queue)?;
    queue.dead_letter(&lease, &letter.reason)?;
    Ok(json!({ "id": lease.id, "mailbox": lease.mailbox, "state": "dead" }))
}

pub(super) fn complete(desk: &ToolContext, complete: SettleParams) -> ToolAnswer {
    let queue = desk.queue()?;
    let message = held_message(desk, complete.id, complete.epoch)?.completed(&desk.app(), queue)?;
    // A model repeats a call whose answer it has lost: what is settled is not a failure, even if another process has settled it.
    let id = match queue.state(&desk.mailbox, &message.id)? {
        Some(State::Settled) => message.id,
        _ => match settle_message(&desk.app(), queue, message)? {
            SettledMessage::Before { id, .. } => id,
            SettledMessage::Now { lease: Lease { id, .. }, waiting } => {
                return Ok(json!({
                    "id": id, "state": "settled", "already_settled": false, "waiting": waiting,
                }));
            }
        },
    };
    Ok(json!({ "id": id, "state": "settled", "already_settled": true }))
}

pub(super) fn reply(desk: &ToolContext, reply: ReplyParams) -> ToolAnswer {
    let (id, content) = (message_id(desk, reply.id)?, reply.message.into_bytes());
    let queue = desk.queue()?;
    let replied = replying::reply(&desk.app(), queue, &desk.mailbox, &id, content)?;
    Ok(replied.object())
}

fn message_id(desk: &ToolContext, id: String) -> Result<MessageId, ToolError> {
    Ok(ids::message_of(desk.queue()?, &desk.mailbox, &MessageId::new(id)?)?)
}
