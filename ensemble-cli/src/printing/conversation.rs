//! What the person reads: messages of the mailbox `operator`, each with the commands that answer it.

use ensemble_app::door_hints::queue_flag;
use ensemble_app::ids;
use ensemble_app::mail::conversation::ShownMessage;
use ensemble_app::mail::delivered::{
    PLAIN_TYPE, SenderStanding, agent_flag, is_answered, mailbox_flag, standing,
};
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{ago, one_line, printable};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Envelope, MessagePurpose};
use ensemble_core::requests::RequestEntry;
use ensemble_core::spool::State;

use crate::context::{Context, Outcome};
use crate::output::{FAINT, STRONG};
use crate::printing::print_body;

const WORDS_CHARS_MAX: usize = 60;
const INDENT: &str = "    ";

pub(crate) fn print_shown(
    context: &Context,
    queue: &ProjectQueue,
    message: &ShownMessage<'_>,
    is_body: bool,
) -> Outcome {
    let (out, ShownMessage { mailbox, envelope, sender, entry }) = (&context.out, *message);
    let commands = commands(context, queue, message)?;
    if out.is_json() {
        // It is settled once it has been printed, unless it is a request without an answer.
        let state = match entry {
            Some(_) => queue.state(mailbox, &envelope.id)?,
            None => Some(State::Settled),
        };
        let view = MessageView::read(context, queue, (mailbox, state), envelope)?;
        return out.object(&view.with_commands(&commands).to_json());
    }
    if is_body {
        return print_body(out, queue, envelope);
    }
    let ago = ago(SystemClock.wall().since(envelope.created_at));
    let standing = standing(&context.project()?.config.people, envelope, sender);
    let doubt = if standing == SenderStanding::Unproved { " (unverified sender)" } else { "" };
    let (from, verb) = (out.paint(STRONG, envelope.sender_address()), verb(envelope, entry));
    out.line(format!("{from} {verb}, {ago}{doubt}"))?;
    if let Some(words) = answered_words(context, queue, envelope) {
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

fn verb(envelope: &Envelope, entry: Option<&RequestEntry>) -> String {
    let about = envelope.task_id.as_deref().map(|task| format!(" about {}", one_line(task)));
    let about = about.unwrap_or_default();
    match (entry, envelope.kind.as_str(), envelope.purpose()) {
        (Some(entry), ..) => {
            let kind = entry.request.kind.as_str().replace('_', " ");
            format!("asks you to decide on a {kind}{about}")
        }
        (None, PLAIN_TYPE, _) if envelope.causation_id.is_some() => format!("answered{about}"),
        (None, PLAIN_TYPE, _) => format!("wrote{about}"),
        (None, kind, MessagePurpose::Notice) => format!("sent the notice {kind}{about}"),
        (None, kind, _) => format!("sent a {kind}{about}"),
    }
}

fn answered_words(context: &Context, queue: &ProjectQueue, envelope: &Envelope) -> Option<String> {
    let id = envelope.causation_id.as_deref()?.parse().ok()?;
    let asked = queue.peek(&queue.mailbox_of(&envelope.from), &id).ok()?;
    let is_mine = context.project().ok()?.is_person(&asked.from);
    is_mine.then(|| asked.first_words(WORDS_CHARS_MAX))
}

fn commands(
    context: &Context,
    queue: &ProjectQueue,
    &ShownMessage { mailbox, envelope, entry, .. }: &ShownMessage<'_>,
) -> Outcome<Vec<(&'static str, String)>> {
    let person = context.actor()?;
    let who = agent_flag(context, &person)? + &queue_flag(context.queue_flag());
    if let Some(entry) = entry {
        let answer = format!("ensemble request answer {}", entry.request.request_id);
        return Ok(vec![
            ("approve", format!("{answer} --approve{who}")),
            ("reject", format!("{answer} --reject --reason TEXT{who}")),
        ]);
    }
    if !is_answered(envelope, &person) {
        return Ok(Vec::new());
    }
    // On servers, only whole ids of settled messages are found.
    let id = match queue.directory() {
        Some(_) => ids::short(&**queue, mailbox, &envelope.id),
        None => envelope.id.to_string(),
    };
    let flags = mailbox_flag(mailbox, &person) + &who;
    Ok(vec![("reply", format!("ensemble reply {id} \"TEXT\"{flags}"))])
}
