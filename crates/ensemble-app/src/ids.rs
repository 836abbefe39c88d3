//! Ids that are shortened to a unique prefix, and ids that a shell completes.

use std::collections::BTreeSet;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::mailboxes::visit_mailboxes;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::requests::Requests;
use ensemble_project::short_ids::{SHOWN_CHARS_MIN, ShortIds};

use crate::error_line::FailureCode;
use crate::failure::{Failure, Outcome};
use crate::queue::ProjectQueue;

/// An id of this length or more is whole; those that we make are UUIDs.
const WHOLE_CHARS: usize = 36;
const MESSAGES_MAX: usize = 10_000;
const NAMED_MAX: usize = 5;

/// The beginning that an id has wherever it is shown, shortened or not.
pub fn beginning(id: &MessageId) -> &str {
    id.as_str().get(..SHOWN_CHARS_MIN).unwrap_or_else(|| id.as_str())
}

/// The message that an id or the beginning of one means.
pub fn message(queue: &ProjectQueue, given: &MessageId) -> Outcome<MessageId> {
    if given.as_str().len() >= WHOLE_CHARS {
        return Ok(given.clone());
    }
    match queue.find(given) {
        Err(Error::NoMessage { .. }) => {}
        _ => return Ok(given.clone()),
    }
    queue.overlook()?;
    let all = unfinished(&**queue)?.into_iter().map(|id| id.to_string());
    match unique(given.as_str(), all)? {
        Some(id) => Ok(MessageId::new(&id).map_err(Error::from)?),
        // The next step reports that there is no such message.
        None => Ok(given.clone()),
    }
}

/// As [`message`], for an agent or the person: its own mailbox comes before any other, and in a
/// directory what it has settled, too.
pub fn message_of(queue: &ProjectQueue, mailbox: &Name, given: &MessageId) -> Outcome<MessageId> {
    let is_whole =
        given.as_str().len() >= WHOLE_CHARS || matches!(queue.state(mailbox, given), Ok(Some(_)));
    if is_whole {
        return Ok(given.clone());
    }
    let held = || held(&**queue, mailbox);
    let waiting = || queue.unfinished(mailbox, MESSAGES_MAX).unwrap_or_default();
    let files = || {
        let files = queue.directory().and_then(|spool| spool.message_files(mailbox).ok());
        files.unwrap_or_default()
    };
    let near: [&dyn Fn() -> Vec<MessageId>; 3] =
        [&held, &|| waiting().into_iter().map(|found| found.id).collect(), &|| {
            files().into_iter().map(|file| file.id).collect()
        }];
    for ids in near {
        let ids = ids().into_iter().map(|id| id.to_string());
        if let Some(id) = unique(given.as_str(), ids)? {
            return Ok(MessageId::new(&id).map_err(Error::from)?);
        }
    }
    message(queue, given)
}

pub(crate) fn missing_in(mailbox: &Name, id: &MessageId) -> Error {
    Error::NoMessage { id: id.to_string(), place: format!("in mailbox `{mailbox}`") }
}

fn held(queue: &dyn Broker, mailbox: &Name) -> Vec<MessageId> {
    let held = queue.observe(mailbox).unwrap_or_default();
    held.into_iter().map(|held| held.lease.id).collect()
}

/// The shortest prefix of an id that is unique among the held messages of its mailbox. For an id that we generated it
/// has at least the time in milliseconds, so that later ids differ, too.
pub fn short(queue: &dyn Broker, mailbox: &Name, id: &MessageId) -> String {
    let whole = id.as_str();
    if whole.len() != WHOLE_CHARS {
        return whole.to_owned();
    }
    let others: ShortIds = held(queue, mailbox).into_iter().collect();
    others.shorten(whole).to_owned()
}

pub fn request(requests: &Requests<'_>, given: &str) -> Outcome<String> {
    if requests.find(given)?.is_some() {
        return Ok(given.to_owned());
    }
    let (entries, _) = requests.list()?;
    let all = entries.into_iter().map(|entry| entry.request.request_id.to_string());
    Ok(unique(given, all)?.unwrap_or_else(|| given.to_owned()))
}

/// The one id that begins so; `None` if there is none.
pub fn unique(prefix: &str, all: impl Iterator<Item = String>) -> Outcome<Option<String>> {
    let mut found: BTreeSet<String> = all.filter(|id| id.starts_with(prefix)).collect();
    if found.len() <= 1 {
        return Ok(found.pop_first());
    }
    let count = found.len();
    let mut named: Vec<String> = found.into_iter().take(NAMED_MAX).collect();
    if count > NAMED_MAX {
        named.push("…".to_owned());
    }
    let text = format!("{count} ids begin with `{prefix}`: {}", named.join(", "));
    Err(Failure::refused(text).with_code(FailureCode::Ambiguous).with_hint("give more of the id"))
}

/// Beginnings of ids that [`message`] understands.
pub fn short_ids(queue: &ProjectQueue) -> Outcome<ShortIds> {
    queue.overlook()?;
    Ok(unfinished(&**queue)?.into_iter().map(String::from).collect())
}

/// All messages that wait, are held or are dead.
pub fn unfinished(queue: &dyn Broker) -> ensemble_core::Result<Vec<MessageId>> {
    let mut all = Vec::new();
    // An id in a mailbox that cannot be read has to be given whole.
    visit_mailboxes(queue.mailboxes()?, |mailbox| {
        all.extend(queue.unfinished(mailbox, MESSAGES_MAX)?.into_iter().map(|found| found.id));
        all.extend(queue.dead_letters(mailbox)?.into_iter().map(|letter| letter.id));
        Ok(())
    })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = String> {
        ["m-1", "m-2", "n-1"].into_iter().map(str::to_owned)
    }

    #[test]
    fn a_prefix_means_the_one_id_that_begins_so() {
        assert_eq!(unique("n", all()).unwrap().as_deref(), Some("n-1"));
        assert_eq!(unique("m-2", all()).unwrap().as_deref(), Some("m-2"));
        assert_eq!(unique("x", all()).unwrap(), None);
        let refused = unique("m", all()).unwrap_err().text();
        assert_eq!(refused, "2 ids begin with `m`: m-1, m-2");
    }
}
