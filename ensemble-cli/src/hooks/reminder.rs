//! Reminds an agent of what it still holds when its turn ends: said once for each delivery, and the turn continues
//! with it.

use ensemble_app::failure::Outcome;
use ensemble_app::ids;
use ensemble_app::mail::delivered::{DeliveryInstructions, PLAIN_TYPE, SenderStanding};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::one_line;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::message::{Envelope, MessagePurpose};
use ensemble_tmux::session::{AgentSession, REMEMBERED_MAX};

use super::{Hook, frames};

/// How many held messages a reminder names. The rest is counted: another reminder would cost another request.
const NAMED_MAX: usize = 8;
const WORDS_CHARS_MAX: usize = 40;

pub(super) struct HeldReminder {
    pub(super) text: String,
    leases: Vec<Lease>,
}

impl HeldReminder {
    /// The held messages of which this session was not reminded, apart from those that a hook hands over; `None` if
    /// there are none.
    pub(super) fn due(
        hook: &Hook<'_>,
        queue: &ProjectQueue,
        session: &AgentSession,
    ) -> Outcome<Option<Self>> {
        let Some(spool) = queue.directory() else { return Ok(None) };
        let is_new = |lease: &Lease| {
            session.reminded.get(&lease.id).is_none_or(|epoch| *epoch < lease.epoch)
                && session.carrying.iter().all(|carried| carried.id != lease.id)
        };
        let held = spool.observe(&hook.mailbox)?.into_iter().map(|held| held.lease);
        let mut held: Vec<Lease> = held.filter(|lease| lease.holder == hook.agent).collect();
        // The session remembers no more reminders, and an older message would be named after each turn.
        held.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        held.truncate(REMEMBERED_MAX);
        held.reverse();
        let mut reminder = Self { text: String::new(), leases: Vec::new() };
        let mut unnamed = 0;
        for lease in held.into_iter().filter(is_new) {
            if reminder.leases.len() - unnamed == NAMED_MAX {
                reminder.leases.push(lease);
                unnamed += 1;
                continue;
            }
            // It was settled since, or cannot be read: no reminder.
            let Ok(envelope) = spool.peek(&lease.mailbox, &lease.id) else { continue };
            let delivery = Delivery::new(envelope, lease, std::time::Duration::ZERO);
            reminder.text.push_str(&line(hook, queue, &delivery)?);
            reminder.leases.push(delivery.lease);
        }
        if unnamed > 0 {
            let place = if hook.agent == hook.mailbox { "" } else { hook.mailbox.as_str() };
            let list = format!("ensemble inbox {place}");
            reminder.text.push_str(&format!(
                "[ensemble] You still hold {unnamed} more: `{}` lists them.\n",
                list.trim_end()
            ));
        }
        Ok((!reminder.leases.is_empty()).then_some(reminder))
    }

    pub(super) fn said(self, session: &mut AgentSession) {
        session.reminded.extend(self.leases.into_iter().map(|lease| (lease.id, lease.epoch)));
    }
}

/// The question about a message that this session was given before, and that waits again. It is not given twice
/// before that.
pub(super) fn question(hook: &Hook<'_>, queue: &ProjectQueue, again: &Delivery) -> Outcome<String> {
    let told = DeliveryInstructions::new(hook.context, queue, again)?;
    let given = told.head.first().and_then(|head| head.split_once(": ")).map(|(_, text)| text);
    let given = given.unwrap_or("you were given this before and have not settled it.");
    let (what, end) = (named(queue, again, &told), ending(&again.envelope, &told));
    Ok(format!(
        "[ensemble] {what}: {given} {end} Otherwise continue: it will be delivered again.\n"
    ))
}

fn line(hook: &Hook<'_>, queue: &ProjectQueue, delivery: &Delivery) -> Outcome<String> {
    let told = DeliveryInstructions::new(hook.context, queue, delivery)?;
    let (what, end) = (named(queue, delivery, &told), ending(&delivery.envelope, &told));
    Ok(format!("[ensemble] Reminder: you still hold {what}. {end}\n"))
}

fn named(queue: &ProjectQueue, delivery: &Delivery, told: &DeliveryInstructions) -> String {
    let (envelope, lease) = (&delivery.envelope, &delivery.lease);
    let is_proved = told.sender != SenderStanding::Unproved;
    let words = one_line(&envelope.first_words(WORDS_CHARS_MAX)).replace('"', "'");
    // Words of an unproved sender stay inside the fence.
    let words = match is_proved && !words.is_empty() && !frames::has_frame(&words) {
        true => format!(" (\"{words}\")"),
        false => String::new(),
    };
    let id = ids::short(&**queue, &lease.mailbox, &lease.id);
    format!("{id} from {}{words}", envelope.sender_address())
}

/// The command that ends a message, in a sentence. A model that has answered in words only would settle a question
/// without an answer, if that was all that it reads here.
fn ending(envelope: &Envelope, told: &DeliveryInstructions) -> String {
    let command = |name: &str| {
        told.commands.iter().find(|(known, _)| *known == name).map(|(_, command)| command.as_str())
    };
    let is_question = envelope.kind.as_str() == PLAIN_TYPE && envelope.causation_id.is_none();
    if let Some(approve) = command("approve") {
        return format!("Answer it: `{approve}`, or `--reject --reason TEXT`.");
    }
    if let (MessagePurpose::Request, None, Some(release)) =
        (envelope.purpose(), command("settle"), command("release"))
    {
        return format!("Another agent is asked: `{release}`.");
    }
    match (command("report"), command("settle"), command("reply")) {
        (Some(report), ..) => format!("If it is done: `{report}`."),
        (None, None, _) => "If it is done: its text says how to submit it.".to_owned(),
        (None, Some(settle), Some(reply)) if is_question => format!(
            "Its sender reads only what you send: `{reply}`. If there is nothing to answer: `{settle}`."
        ),
        (None, Some(settle), _) => format!("If it is done: `{settle}`."),
    }
}
