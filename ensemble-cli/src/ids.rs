//! Ids that are shortened to a unique prefix, and ids that a shell completes.

use std::collections::BTreeSet;

use clap_complete::engine::CompletionCandidate;
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::message::MessageId;
use ensemble_core::requests::Requests;

use crate::error_line::Code;
use crate::exit::{Failure, Outcome};
use crate::queue::Queue;

/// An id of this length or more is whole; those that we make are UUIDs.
const WHOLE_CHARS: usize = 36;
/// Messages looked at in each mailbox.
const MESSAGES_MAX: usize = 10_000;
/// The shortest prefix that is shown, in characters.
const SHOWN_CHARS_MIN: usize = 8;
/// How many ids a refusal names.
const NAMED_MAX: usize = 5;

/// The message that an id or the beginning of one means.
pub(crate) fn message(queue: &Queue, given: &MessageId) -> Outcome<MessageId> {
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
        // What comes next says that there is no such message.
        None => Ok(given.clone()),
    }
}

/// The request that an id or the beginning of one means.
pub(crate) fn request(requests: &Requests<'_>, given: &str) -> Outcome<String> {
    if requests.find(given)?.is_some() {
        return Ok(given.to_owned());
    }
    let (entries, _) = requests.list()?;
    let all = entries.into_iter().map(|entry| entry.request.request_id.to_string());
    Ok(unique(given, all)?.unwrap_or_else(|| given.to_owned()))
}

/// The one id that begins so; `None` if there is none.
pub(crate) fn unique(prefix: &str, all: impl Iterator<Item = String>) -> Outcome<Option<String>> {
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
    Err(Failure::refused(text).with_code(Code::Ambiguous).with_hint("give more of the id"))
}

/// All messages that wait, are held or are dead.
pub(crate) fn unfinished(queue: &dyn Broker) -> ensemble_core::Result<Vec<MessageId>> {
    let mut all = Vec::new();
    for mailbox in queue.mailboxes()? {
        all.extend(queue.unfinished(&mailbox, MESSAGES_MAX)?.into_iter().map(|found| found.id));
        all.extend(queue.dead_letters(&mailbox)?.into_iter().map(|letter| letter.id));
    }
    Ok(all)
}

/// Ids as words of a shell.
pub(crate) fn candidates(ids: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    ids.into_iter().map(CompletionCandidate::new).collect()
}

/// The shortest beginnings by which ids can be told apart, all of one length.
pub(crate) fn shortened<'i>(ids: impl Iterator<Item = &'i str> + Clone) -> usize {
    let sorted: BTreeSet<&str> = ids.collect();
    let neighbours = sorted.iter().zip(sorted.iter().skip(1));
    let common = neighbours.map(|(one, next)| {
        one.chars().zip(next.chars()).take_while(|(one, next)| one == next).count()
    });
    common.max().map_or(SHOWN_CHARS_MIN, |common| (common + 1).max(SHOWN_CHARS_MIN))
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

    #[test]
    fn shown_beginnings_tell_ids_apart() {
        let ids = ["0199aa10-4c5e-7b3a", "0199aa10-4c5f-7b3a", "0299"];
        assert_eq!(shortened(ids.into_iter()), 13);
        assert_eq!(shortened(["a", "b"].into_iter()), SHOWN_CHARS_MIN);
        assert_eq!(shortened([].into_iter()), SHOWN_CHARS_MIN);
    }
}
