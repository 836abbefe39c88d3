//! Notifies the author of a rejected drop-box file.
//!
//! ```text
//! author                           recipient of the notice
//! a field names an agent           that agent's mailbox
//! its mailbox is full              the recipients of the file's route
//! none, or one without mailbox     the recipients of the file's route, who wait for it
//! no route either                  the recipients of reports
//! the loop bound says so           the recipients, or no agent: see `answers`
//! ```
//!
//! The message is stored before the file is moved, under an id that follows from path, content and
//! recipient. A crash in between repeats it, which stores nothing new.

use ensemble_core::broker::Broker as _;
use ensemble_core::driver::ack_signer;
use ensemble_core::dropbox::{Routes, UnfitFile, message_source};
use ensemble_core::message::fields::{agent_among, author_fields, plain_field};
use ensemble_core::message::{Digest, Envelope, MessageId, Name};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_project::status::ACTOR;

use crate::answers::NOTICE_DIGITS;
use crate::work_file::{ACK_BOX, TASK_BOX, loose_fields};

pub(crate) const REJECTED_TYPE: &str = "report.rejected";
pub(crate) const CORRECT_IT: &str =
    "It is kept in queue/rejected/. Correct it and put it under the same name again.";
pub(crate) const COMPLETE_IT: &str =
    "It stays where it is. Complete it there, or put a whole file under the same name.";
/// Who gets reports also learns of files that lead to no mailbox.
const ANY_REPORT: &str = "reports/any-completed.yaml";
const AGAIN_TYPE: &str = "mail.again";

/// As [`CompleteFile::author`](ensemble_core::dropbox::CompleteFile::author), for a text that is not YAML: the value of the best such field.
fn author_in_text(content: &[u8], mailboxes: &[Name]) -> Option<Name> {
    let (known, fields) = (author_fields(None), loose_fields(content));
    let named = fields.iter().filter_map(|(field, value)| {
        let field = plain_field(field);
        let at = known.iter().position(|known| *known == field)?;
        Some((at, agent_among(value, mailboxes)?))
    });
    named.min_by_key(|(at, _)| *at).map(|(_, author)| author.clone())
}

pub(crate) fn author_of(unfit: &UnfitFile, spool: &Spool) -> Result<Option<Name>> {
    let mailboxes = spool.mailboxes()?;
    Ok(match &*unfit.box_name {
        ACK_BOX => ack_signer(&unfit.content, &mailboxes).cloned(),
        _ => author_in_text(&unfit.content, &mailboxes),
    })
}

/// Stores the notices of a file that is about to be set aside: to its author, or, without one or where its mailbox is
/// full, to the recipients of its route. Returns the notified agents.
///
/// # Errors
/// The disk failed; to be tried again. A full mailbox counts the refusal.
pub(crate) fn send(
    unfit: &UnfitFile,
    author: Option<Name>,
    remedy: &str,
    routes: &Routes,
    spool: &Spool,
) -> Result<Vec<Name>> {
    if unfit.stat.is_directory {
        return Ok(Vec::new());
    }
    let path = unfit.path();
    let known = spool.mailboxes()?;
    let recipients_of = |path: &str| {
        let destination = routes.destination(path).ok().flatten();
        let all = destination.map(|destination| destination.to).unwrap_or_default();
        let all = all.iter().map(|name| spool.mailbox_of(name));
        all.filter(|name| known.contains(name)).collect::<Vec<_>>()
    };
    let waiting = || match recipients_of(&path) {
        all if all.is_empty() => recipients_of(ANY_REPORT),
        all => all,
    };
    let stem = routes.destination(&path).ok().flatten().and_then(|destination| destination.stem);
    // A task's file is named after its worker.
    let stem = stem.filter(|_| &*unfit.box_name != TASK_BOX);
    let notify = |recipient: Name| -> Result<Option<Name>> {
        let mut envelope = notice(unfit, &recipient, REJECTED_TYPE, body(unfit, &path, remedy))?;
        let task = stem.clone().filter(|task| {
            !task.is_empty() && task.len() <= 128 && !task.contains(char::is_control)
        });
        envelope.task_id = task;
        match spool.publish(&envelope) {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(Some(recipient)),
            // The log says that it was refused; the file must not stay here.
            Err(error) if error.is_undeliverable() => Ok(None),
            Err(error) => Err(error),
        }
    };
    if let Some(author) = author.map(notify).transpose()?.flatten() {
        return Ok(vec![author]);
    }
    waiting().into_iter().filter_map(|recipient| notify(recipient).transpose()).collect()
}

/// Tells the author of a task that it was put down again and is not delivered again. Returns the author, if the
/// file names one with a mailbox.
///
/// # Errors
/// The disk failed, or the mailbox is full; to be tried again.
pub(crate) fn tell_again(unfit: &UnfitFile, spool: &Spool) -> Result<Vec<Name>> {
    let Some(author) = author_of(unfit, spool)? else { return Ok(Vec::new()) };
    let path = unfit.path();
    let body = format!(
        "{} was put down again with the same content. It was delivered before, and is not\n\
         delivered again. To have it done once more, change the file, for instance its id.\n",
        message_source(&path)
    );
    let envelope = notice(unfit, &author, AGAIN_TYPE, body)?;
    match spool.publish(&envelope) {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(vec![author]),
        Err(error) => Err(error),
    }
}

fn notice(unfit: &UnfitFile, to: &Name, kind: &str, body: String) -> Result<Envelope> {
    let path = unfit.path();
    Ok(Envelope::new(to.clone(), body)
        .with_id(id(unfit, &path, to))
        .with_kind(Name::new(kind)?)
        .from(Name::new(ACTOR)?)
        .with_source(message_source(&path)))
}

fn body(unfit: &UnfitFile, path: &str, remedy: &str) -> String {
    let shown = |text: &str, most: usize| -> String {
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect()
    };
    format!(
        "{path} was not delivered: {}\n{remedy}\n",
        shown(&unfit.error, 4_000),
        path = shown(path, 300),
    )
}

fn id(unfit: &UnfitFile, path: &str, recipient: &Name) -> MessageId {
    let parts = [path.as_bytes(), &unfit.content, recipient.as_str().as_bytes()];
    let stamp = unfit.stat.modified_ns.to_le_bytes();
    let digest = Digest::of_parts(&[parts[0], parts[1], &stamp, parts[2]]);
    let id = format!("x-{}", digest.short(NOTICE_DIGITS));
    MessageId::new(id).unwrap_or_else(|_| MessageId::generate())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_found_in_what_is_left_of_fields() {
        let mailboxes = ["w-2", "worker-3"].map(|name| Name::new(name).unwrap());
        let author = |text: &str| author_in_text(text.as_bytes(), &mailboxes);
        let text = |text: &str| author(text).map(|name| name.to_string());
        assert_eq!(text("status: [\nfrom: x\nworker_id: \"w-2\"\n").as_deref(), Some("w-2"));
        assert_eq!(text("{\n  \"worker_id\": 3,\n").as_deref(), Some("worker-3"));
        assert_eq!(text("a: [\nfrom: W-2\nAgent-ID: 3\n").as_deref(), Some("worker-3"));
        assert_eq!(text("worker_id: ../../etc\n"), None);
        assert_eq!(text("\u{fffd}\0"), None);
    }
}
