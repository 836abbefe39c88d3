//! Removing what was kept for a time: attachments that no message names, and rejected files.
//!
//! ```text
//! an attachment goes      if it has not changed for `keep`, and no file of a mailbox or a request has its digest,
//!                         at two looks in a row
//! a sender names it again `attach` gives it a new time, so it does not go
//! in between              it is moved to `tmp/`, and comes back if its time is not the one that was judged
//! ```
//!
//! A digest counts wherever it is in a message, also in the body. While a file cannot be read, none is removed. All
//! ages are by the queue's calendar, so that a jump of the wall clock removes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::Result;
use crate::dropbox::REJECTED;
use crate::durable::{Dir, FileModes, MoveOutcome, remove_where, stop_if, temporary_name};
use crate::error::{allow_misplaced, allow_unreadable};
use crate::message::ENVELOPE_BYTES_MAX;
use crate::proto::calendar::Calendar;
use crate::requests::{REQUESTS, Requests};
pub use crate::spool::calendar::is_older;
use crate::spool::{ATTACHMENTS, Spool};

/// The largest file that is searched for digests, in bytes. A larger file can be neither a message
/// nor part of a request.
const SEARCHED_BYTES_MAX: usize = 2 * ENVELOPE_BYTES_MAX;
/// How often the files are searched before anything is removed: a message may move while one search runs.
const SEARCHES: usize = 2;
/// The directories of a mailbox, along a message's way, and then those into which it may have been moved back.
const SEARCHED: [&str; 7] = ["new", "front", "cur", "done", "dead", "new", "front"];
/// Length of a digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 64;

/// Attachments that nothing is known to name: when each was changed last, in nanoseconds since the Unix epoch.
type UnnamedAttachments = BTreeMap<String, i128>;

/// Removes rejected files, and the reasons beside them, that have lain there for longer than `keep`. Returns how
/// many files were removed.
pub fn sweep_rejected(spool: &Spool, calendar: &mut Calendar, keep: Duration) -> Result<usize> {
    remove_where(&spool.root().join(REJECTED), &mut |_, stat| is_older(calendar, stat, keep))
}

/// Removes attachments that have not changed for longer than `keep` and that nothing in the queue names. Returns
/// their number.
pub fn sweep_attachments(spool: &Spool, calendar: &mut Calendar, keep: Duration) -> Result<usize> {
    let queue = Dir::open(spool.root())?;
    let Some(attachments) = child(&queue, ATTACHMENTS)? else { return Ok(0) };
    let mut unnamed = UnnamedAttachments::new();
    attachments.for_each(|name| {
        if name.len() == DIGEST_DIGITS
            && let Ok(Some(stat)) = attachments.stat(name)
            && stat.is_file
            && is_older(calendar, &stat, keep)
        {
            unnamed.insert(name.to_owned(), stat.modified_ns);
        }
        ControlFlow::Continue(())
    })?;
    for _ in 0..SEARCHES {
        search_queue(&queue, &mut unnamed)?;
    }
    let tmp = queue.ensure_child("tmp", FileModes::default())?;
    let mut removed = 0;
    for (name, modified_ns) in unnamed {
        removed += usize::from(remove_unchanged(&attachments, &tmp, &name, modified_ns)?);
    }
    Ok(removed)
}

/// Ids and tasks of the messages that wait, are held or are dead letters, and of the requests that are not closed.
pub fn open_work(spool: &Spool) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for mailbox in spool.mailboxes()? {
        let unfinished = spool.unfinished(&mailbox, usize::MAX)?.into_iter().map(|it| it.id);
        let dead = spool.dead_letters(&mailbox)?.into_iter().map(|it| it.id);
        for id in unfinished.chain(dead) {
            // A damaged one has its id alone.
            let task = spool.peek(&mailbox, &id).ok().and_then(|envelope| envelope.task_id);
            names.extend(task);
            names.insert(id.to_string());
        }
    }
    let (requests, _) = Requests::new(spool).list()?;
    for request in requests.into_iter().filter(|it| !it.is_closed).map(|it| it.request) {
        names.extend(request.task_id);
        names.insert(request.request_id.to_string());
    }
    Ok(names)
}

/// Takes out what a file of a mailbox or of a request names.
fn search_queue(queue: &Dir, unnamed: &mut UnnamedAttachments) -> Result<()> {
    for (parent, below) in [("mailbox", &SEARCHED[..]), (REQUESTS, &["."])] {
        let Some(parent) = child(queue, parent)? else { continue };
        for name in parent.directories()? {
            let Some(home) = child(&parent, &name)? else { continue };
            for name in below {
                if unnamed.is_empty() {
                    return Ok(());
                }
                if let Some(dir) = child(&home, name)? {
                    search(&dir, unnamed)?;
                }
            }
        }
    }
    Ok(())
}

/// A directory below another one; `None` if it is gone or is not a directory.
fn child(dir: &Dir, name: &str) -> Result<Option<Dir>> {
    allow_misplaced(dir.open_child(name))
}

/// Takes out what the files of a directory name.
fn search(dir: &Dir, unnamed: &mut UnnamedAttachments) -> Result<()> {
    dir.try_for_each(|file| {
        // Only messages name attachments.
        let content = allow_unreadable(dir.read(file, SEARCHED_BYTES_MAX))?.flatten();
        take_out(&content.unwrap_or_default(), unnamed);
        Ok(stop_if(unnamed.is_empty()))
    })
}

fn take_out(content: &[u8], unnamed: &mut UnnamedAttachments) {
    for digits in content.split(|byte| !byte.is_ascii_hexdigit()) {
        for digest in digits.windows(DIGEST_DIGITS) {
            if let Ok(digest) = std::str::from_utf8(digest) {
                unnamed.remove(&digest.to_ascii_lowercase());
            }
        }
    }
}

/// Removes an attachment that is as it was judged. Returns whether it did.
fn remove_unchanged(attachments: &Dir, tmp: &Dir, name: &str, modified_ns: i128) -> Result<bool> {
    let aside = temporary_name(&name[..16]);
    if attachments.move_new(name, tmp, &aside)? != MoveOutcome::Done {
        return Ok(false);
    }
    let is_same = tmp.stat(&aside)?.is_some_and(|stat| stat.modified_ns == modified_ns);
    if !is_same && tmp.move_new(&aside, attachments, name)? == MoveOutcome::Done {
        return Ok(false);
    }
    tmp.remove(&aside)?;
    Ok(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_wherever_it_stands_and_a_part_of_one_is_not() {
        let [named, upper, long, other] = ['a', 'b', 'c', 'd'].map(|c| c.to_string().repeat(64));
        let mut unnamed: UnnamedAttachments =
            [&named, &upper, &long, &other].map(|digest| (digest.clone(), 0)).into();
        let upper = upper.to_uppercase();
        let text =
            format!("attachment_sha256: {named}\n...\n\u{e4}{upper}, 0{long}1 {}", &other[1..]);
        take_out(text.as_bytes(), &mut unnamed);
        assert_eq!(unnamed.into_keys().collect::<Vec<_>>(), [other]);
    }

    #[test]
    fn an_attachment_that_was_named_again_meanwhile_comes_back() {
        let home = tempfile::tempdir().unwrap();
        let queue = Dir::open(home.path()).unwrap();
        let [attachments, tmp] = ["attachments", "tmp"]
            .map(|name| queue.ensure_child(name, Default::default()).unwrap());
        let name = "e".repeat(64);
        std::fs::write(attachments.path().join(&name), "x").unwrap();
        let judged = attachments.stat(&name).unwrap().unwrap().modified_ns;
        assert!(!remove_unchanged(&attachments, &tmp, &name, judged - 1).unwrap());
        assert_eq!(std::fs::read(attachments.path().join(&name)).unwrap(), b"x");
        assert!(remove_unchanged(&attachments, &tmp, &name, judged).unwrap());
        assert!(!remove_unchanged(&attachments, &tmp, &name, judged).unwrap(), "it is gone");
        assert_eq!((tmp.names().unwrap().len(), attachments.names().unwrap().len()), (0, 0));
    }
}
