//! Handing messages over through a hook.
//!
//! ```text
//! session file         mailbox          answer            killed after this line
//! note the delivery                                       the message waits: the note names a delivery that is none
//!                      new -> cur                         the note is found: cur -> front, delivered again
//!                                       write, flush      as above: the agent may hear it twice
//! remove the note                                         delivered
//! ```
//!
//! A message is taken only if it fits into what is left of `hooks.carry_bytes`. Its text must not be mistaken for a word
//! of the agent's own program ([`frames`]). An agent that holds a task is given no second one, but every other
//! message. Messages that wait for the end of the turn are not delivered after a tool. The agent is first asked about
//! messages that this session received before. The rest is announced by number, once a session for each message.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::failure::Outcome;
use ensemble_app::ids;
use ensemble_app::mail::answers;
use ensemble_app::mail::delivered::{DeliveryInstructions, PLAIN_TYPE, sender_of};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::printable;
use ensemble_core::broker::Broker as _;
use ensemble_core::durable::open_file;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::event_log::types;
use ensemble_core::message::{DeliveryClass, Envelope, MessageId, MessagePurpose, Name};
use ensemble_core::spool::{Found, Spool, State};
use ensemble_project::sessions::give_back_abandoned;
use ensemble_tmux::session::{AgentSession, CarriedMessage, DeliveryWay, LockedSession};
use serde_json::json;

use super::conversation::permission::is_response;
use super::{EventInput, Hook, frames, reminder};

const DUE_MAX: usize = 100;
/// What one hook says around the messages that it hands over, in bytes. With the usual `carry_bytes` that is less than
/// the 10,000 characters after which Claude Code puts a hook's words into a file, and leaves room for reminders.
const FRAMES_BYTES_MAX: usize = 4_500;
const UNFINISHED_MAX: usize = 200;
const SHOWN_CHARS_MAX: usize = 100;
const TRANSCRIPT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Why a message is delivered again after `/clear`, or after another conversation was resumed.
const LEFT: &str = "the agent has left the conversation";
/// Why a message is delivered again after an answer that was not written, or a turn that ended before it was read.
const UNREAD: &str = "the agent did not get it";
pub(super) struct CarriedMail {
    pub(super) text: String,
    pub(super) deliveries: Vec<Delivery>,
    way: Option<DeliveryWay>,
    /// All that waited when this was taken.
    told: Vec<MessageId>,
    /// The messages that this session received before and is asked about, each as its next delivery.
    questions: Vec<Delivery>,
}

impl CarriedMail {
    pub(super) const fn none() -> Self {
        Self {
            text: String::new(),
            deliveries: Vec::new(),
            way: None,
            told: Vec::new(),
            questions: Vec::new(),
        }
    }

    pub(super) fn shown(&self) -> impl Iterator<Item = String> {
        self.deliveries.iter().map(|Delivery { envelope, .. }| {
            let words = envelope.first_words(SHOWN_CHARS_MAX);
            format!("Mail from {}: {words}", envelope.sender_address())
        })
    }
}

pub(super) fn due(queue: &ProjectQueue, hook: &Hook<'_>) -> Outcome<Vec<MessageId>> {
    let Some(spool) = queue.directory() else { return Ok(Vec::new()) };
    let mut due = spool.due_ids_for(&hook.mailbox, &hook.agent, DUE_MAX)?;
    if hook.program == AgentProgram::Acp {
        due.retain(|id| !is_response(spool, &hook.mailbox, id));
    }
    Ok(due)
}

/// Receives the messages that may be delivered now, and composes the text for the agent. The session's file notes
/// each message before it is received.
pub(super) fn receive_mail(
    hook: &Hook<'_>,
    queue: &ProjectQueue,
    locked: &mut LockedSession,
    way: DeliveryWay,
) -> Outcome<CarriedMail> {
    let Some(spool) = queue.directory() else { return Ok(CarriedMail::none()) };
    give_back_abandoned(spool, &hook.agent, &mut locked.session);
    let mut due = due(queue, hook)?;
    if way == DeliveryWay::Tool {
        due.retain(|id| !waits_for_turn(spool, &hook.mailbox, id));
    }
    let is_new = |id: &MessageId| match way {
        DeliveryWay::Stop => !locked.session.blocked_for.contains(id),
        DeliveryWay::Prompt | DeliveryWay::Tool | DeliveryWay::Waiter => {
            !locked.session.hinted.contains(id)
        }
    };
    let has_news = due.iter().any(is_new);
    let (chosen, questions) = match hook.voice.hands_over(way) {
        true => choose(hook, queue, spool, &due, (way, &locked.session))?,
        false => Default::default(),
    };
    if chosen.is_empty() && questions.is_empty() && !has_news {
        return Ok(CarriedMail::none());
    }
    locked.session.carrying.extend(chosen.iter().map(|(noted, _)| noted.clone()));
    // Before the mailbox changes: a watcher that sees the change must not type into the turn that begins.
    locked.session.mark_hand_over();
    locked.write()?;
    let mut carrying = CarriedMail { way: Some(way), told: due, questions, ..CarriedMail::none() };
    for (wanted, text) in &chosen {
        // Another consumer of the mailbox may have been faster.
        match spool.receive_id(&wanted.mailbox, &wanted.id, &hook.agent) {
            Ok(Some(delivery)) => {
                carrying.deliveries.push(delivery);
                carrying.text.push_str(text);
            }
            _ => locked.session.carrying.retain(|noted| noted != wanted),
        }
    }
    let taken = |id: &MessageId| carrying.deliveries.iter().any(|it| it.lease.id == *id);
    let is_asked = |id: &MessageId| carrying.questions.iter().any(|it| it.lease.id == *id);
    // Messages that were asked about before are delivered when the turn ends.
    let is_owed = |id: &MessageId| locked.session.asked.contains_key(id) || is_asked(id);
    let left = carrying.told.iter().filter(|id| !taken(id) && !is_owed(id)).count();
    if left > 0 {
        carrying.text.push_str(&announcement(hook, left, !carrying.deliveries.is_empty()));
    }
    for again in &carrying.questions {
        carrying.text.push_str(&reminder::question(hook, queue, again)?);
    }
    Ok(carrying)
}

/// The words have left this process, or could not be said. None of them is said twice in a session.
pub(super) fn said(
    hook: &Hook<'_>,
    queue: &ProjectQueue,
    locked: &mut LockedSession,
    carrying: CarriedMail,
    is_said: bool,
) -> Outcome {
    if !is_said || carrying.way.is_none() {
        return arrived(hook, queue, locked, carrying, false);
    }
    let session = &mut locked.session;
    session.mark_hand_over();
    session.hinted.extend(carrying.told.iter().cloned());
    let asked = carrying.questions.iter().map(|it| (it.lease.id.clone(), it.lease.epoch - 1));
    session.asked.extend(asked);
    match hook.voice.await_arrival(hook, carrying) {
        Some(carrying) => arrived(hook, queue, locked, carrying, true),
        None => Ok(()),
    }
}

/// The agent has the mail, or does not get it. In that case what was received is released at once.
pub(super) fn arrived(
    hook: &Hook<'_>,
    queue: &ProjectQueue,
    locked: &mut LockedSession,
    carrying: CarriedMail,
    has_arrived: bool,
) -> Outcome {
    let (Some(way), Some(spool)) = (carrying.way, queue.directory()) else { return Ok(()) };
    let ids: Vec<_> = carrying.deliveries.iter().map(|it| it.lease.id.clone()).collect();
    if has_arrived {
        let count = ids.len() as u64;
        let session = &mut locked.session;
        if way == DeliveryWay::Waiter && !hook.program.shows_wakes() {
            session.unshown.extend(carrying.shown());
        }
        if way == DeliveryWay::Stop {
            session.blocked_for.extend(carrying.told);
            // The turn continues.
            session.set(ensemble_tmux::session::Activity::Working, None);
        }
        if count > 0 {
            *session.ways.entry(way).or_default() += count;
            session.unconfirmed.extend(ids.iter().cloned());
            record(hook, &carrying.deliveries, way)?;
        }
    } else {
        for delivery in &carrying.deliveries {
            spool.take_back(&delivery.lease, UNREAD)?;
        }
    }
    let me = std::process::id();
    locked.session.carrying.retain(|noted| noted.pid != me || !ids.contains(&noted.id));
    locked.write().map_err(Into::into)
}

/// Records which messages the transcript of the agent's program shows: proof that a model was given them, where the
/// answer of a hook only proves that its program was.
pub(super) fn confirm(hook: &Hook<'_>, session: &mut AgentSession) -> Outcome {
    let EventInput { record, transcript_path, .. } = &hook.input;
    if session.unconfirmed.is_empty() {
        return Ok(());
    }
    // A transcript that cannot be read proves nothing.
    let read = |path| tail_of(path).ok().flatten();
    let file = || transcript_path.as_deref().and_then(read);
    let Some(transcript) = record.clone().or_else(file) else { return Ok(()) };
    let is_shown = |id: &MessageId| transcript.contains(&format!(" {}", ids::beginning(id)));
    let ids: Vec<_> = session.unconfirmed.iter().filter(|id| is_shown(id)).cloned().collect();
    session.unconfirmed.retain(|id| !ids.contains(id));
    if !ids.is_empty() {
        let evidence = json!({ "record": transcript_path, "provider": hook.program.word() });
        let data = json!({ "mailbox": hook.mailbox, "ids": ids, "evidence": evidence });
        hook.context.recorder()?.record(types::RECEIPT_CONFIRMED, hook.agent.as_str(), data);
    }
    Ok(())
}

fn tail_of(path: &Path) -> Outcome<Option<String>> {
    let Some((mut file, _)) = open_file(path)? else { return Ok(None) };
    let begin = file.metadata()?.len().saturating_sub(TRANSCRIPT_BYTES_MAX);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(TRANSCRIPT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns what the agent holds: it got that in a conversation that it does not know any more.
pub(super) fn give_back_held(hook: &Hook<'_>, queue: &ProjectQueue) -> Outcome {
    if let Some(spool) = queue.directory() {
        spool.release_all(&hook.agent, LEFT)?;
    }
    Ok(())
}

/// Whether a message waits that interrupts the agent's turn. One that was announced has done so: otherwise it would also
/// end the turn in which the agent is to read it.
pub(super) fn is_interrupted(queue: &ProjectQueue, hook: &Hook<'_>) -> Outcome<bool> {
    let Some(spool) = queue.directory() else { return Ok(false) };
    let hinted = hook.sessions.get(&hook.agent)?.map(|session| session.hinted).unwrap_or_default();
    let class = |id: &MessageId| spool.peek(&hook.mailbox, id).ok()?.when;
    let is_new = |id: &MessageId| !hinted.contains(id);
    Ok(due(queue, hook)?.iter().any(|id| is_new(id) && class(id) == Some(DeliveryClass::Interrupt)))
}

fn waits_for_turn(spool: &Spool, mailbox: &Name, id: &MessageId) -> bool {
    spool.peek(mailbox, id).is_ok_and(|envelope| envelope.when == Some(DeliveryClass::Turn))
}

type ChosenMessage = (CarriedMessage, String);

/// The messages to receive, in the order of receiving; and those to ask about, each as its next delivery.
fn choose(
    hook: &Hook<'_>,
    queue: &ProjectQueue,
    spool: &Spool,
    due: &[MessageId],
    (way, session): (DeliveryWay, &AgentSession),
) -> Outcome<(Vec<ChosenMessage>, Vec<Delivery>)> {
    let (agent, mailbox) = (&hook.agent, &hook.mailbox);
    let mut left = hook.context.project()?.config.hooks.carry_bytes();
    let mut room = left + FRAMES_BYTES_MAX;
    let (mut is_free, mut chosen, mut questions) = (true, Vec::new(), Vec::new());
    // Held messages come first.
    for Found { id, state, .. } in spool.unfinished(mailbox, UNFINISHED_MAX)? {
        if left == 0 {
            break;
        }
        let Ok(envelope) = spool.peek(mailbox, &id) else { continue };
        let is_task = hands_over(&envelope);
        let epoch = match state {
            State::Acked { holder, .. } => {
                is_free &= !(is_task && holder == *agent);
                continue;
            }
            State::Queued { epoch, .. } if due.contains(&id) => epoch,
            State::Queued { .. } | State::Settled | State::Dead => continue,
        };
        let (size, may_deceive) = (envelope.body.len(), frames::may_deceive(&envelope));
        let lease = Lease {
            mailbox: mailbox.clone(),
            id: id.clone(),
            holder: agent.clone(),
            epoch: epoch + 1,
        };
        let delivery = Delivery::new(envelope, lease, Duration::ZERO);
        let was_given = session.reminded.get(&id) == Some(&epoch) && epoch > 0;
        let is_asked = session.asked.get(&id) == Some(&epoch);
        if was_given && !is_asked {
            questions.push(delivery);
        } else if (was_given && way != DeliveryWay::Tool)
            || (!was_given && size <= left && !may_deceive && (!is_task || is_free))
        {
            let text = text(hook, queue, &delivery)?;
            // The others come with the next hook, in their order.
            let Some(rest) = room.checked_sub(text.len()) else { break };
            (room, left) = (rest, left.saturating_sub(size));
            chosen.push((CarriedMessage::by_this_process(mailbox.clone(), id, epoch + 1), text));
        }
        // Tasks are handed over one by one, and in their order.
        is_free &= !is_task;
    }
    Ok((chosen, questions))
}

/// Whether a message hands over a task, a step or an instruction, which its holder does before it begins another.
fn hands_over(envelope: &Envelope) -> bool {
    envelope.purpose() == MessagePurpose::Work && envelope.kind.as_str() != PLAIN_TYPE
}

fn text(hook: &Hook<'_>, queue: &ProjectQueue, delivery: &Delivery) -> Outcome<String> {
    let envelope = &delivery.envelope;
    let told = DeliveryInstructions::new(hook.context, queue, delivery)?;
    let (sender, store) = (sender_of(queue, delivery), queue.request_store());
    // It may quote the message, outside of the fence.
    let remark = answers::correlated(hook.context, store, envelope, sender)?
        .filter(|remark| !frames::has_frame(remark));
    let content = told.text(envelope, &printable(&envelope.body), remark.as_deref());
    Ok(format!("[ensemble] {content}\n"))
}

fn announcement(hook: &Hook<'_>, left: usize, is_rest: bool) -> String {
    let (agent, mailbox) = (&hook.agent, &hook.mailbox);
    let more = if left >= DUE_MAX { " or more" } else { "" };
    let word = if is_rest { "more " } else { "" };
    let noun = if left == 1 { "message waits" } else { "messages wait" };
    let place = if agent == mailbox { String::new() } else { format!(" --mailbox {mailbox}") };
    format!(
        "[ensemble] {left}{more} {word}{noun} in mailbox {mailbox}. When you are free for it: `ensemble recv{place}`.\n"
    )
}

fn record(hook: &Hook<'_>, deliveries: &[Delivery], way: DeliveryWay) -> Outcome {
    let ids: Vec<&MessageId> = deliveries.iter().map(|delivery| &delivery.lease.id).collect();
    let evidence = json!({ "way": "hook", "at": way.word(), "provider": hook.program.word() });
    let data = json!({ "mailbox": hook.mailbox, "ids": ids, "evidence": evidence });
    hook.context.recorder()?.record(types::RECEIPT_SUBMITTED, hook.agent.as_str(), data);
    Ok(())
}
