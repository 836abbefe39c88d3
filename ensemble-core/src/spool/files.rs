//! Every message of a mailbox with its file, for `fsck`.

use std::path::PathBuf;

use super::finish::read_extension;
use super::mailbox::OpenMailbox;
use super::place::{self, FrontFile, HeldFile};
use super::{Spool, State};
use crate::Result;
use crate::durable::Dir;
use crate::message::{MessageId, Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFile {
    pub id: MessageId,
    pub state: State,
    pub path: PathBuf,
    /// What the lease of a held one was extended to, in seconds, and the sequence number of that.
    pub extended: Option<(u64, u64)>,
}

/// # Files
impl Spool {
    /// The files of all messages of a mailbox, in no particular order. A message with two files is
    /// listed twice. Only the side files of leases are opened.
    pub fn message_files(&self, mailbox: &Name) -> Result<Vec<MessageFile>> {
        let mailbox = self.mailbox(mailbox)?;
        let mut files = Vec::new();
        let plain = [(&mailbox.new, State::Queued { epoch: 0, not_before: 0 })];
        let over = [(&mailbox.done, State::Settled), (&mailbox.dead, State::Dead)];
        for (dir, state) in plain.into_iter().chain(over) {
            for (file, id) in named(dir, place::parse_plain)? {
                files.push(MessageFile { id, state: state.clone(), path: file, extended: None });
            }
        }
        for (path, FrontFile { id, epoch, not_before, .. }) in
            named(&mailbox.front, FrontFile::parse)?
        {
            let state = State::Queued { epoch, not_before };
            files.push(MessageFile { id, state, path, extended: None });
        }
        for (path, held) in named(&mailbox.cur, HeldFile::parse)? {
            files.push(held_file(&mailbox, path, held)?);
        }
        Ok(files)
    }
}

fn held_file(mailbox: &OpenMailbox, path: PathBuf, held: HeldFile) -> Result<MessageFile> {
    let extended = read_extension(&mailbox.lease, &held)?
        // Before the first extension, the file only names the holder of a delivery that is about to end.
        .filter(|e| e.sequence > 0)
        .map(|e| (e.lease_seconds, e.sequence));
    let HeldFile { id, holder, epoch } = held;
    Ok(MessageFile { id, state: State::Acked { holder, epoch }, path, extended })
}

fn named<T>(dir: &Dir, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<(PathBuf, T)>> {
    dir.list(|name| Some((dir.path().join(name), parse(name)?)))
}
