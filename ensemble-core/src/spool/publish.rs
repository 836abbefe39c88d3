//! Publish: `tmp/` to `new/` (S1 to S2), one rename a message.
//!
//! An id that Ensemble has just made is published without looking for it. An id that may have been
//! stored before (chosen by the sender, or tried once already) is first looked for in all states.
//! That happens behind the mailbox's gate, so that a message is stored once however often it is
//! retried.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dead::read_side_file;
use super::mailbox::{MessageLocation, OVERFLOW_FILE, OpenMailbox};
use super::place::{self, FrontFile};
use super::syncing::SYNCED_AT_ONCE;
use super::{Settings, Spool};
use crate::durable::{self, Dir, Durability, MoveOutcome, SyncMany};
use crate::env::{PublishOutcome, millis};
use crate::error::allow_unreadable;
use crate::event_log::types;
use crate::mail;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name, Timestamp};
use crate::{Error, Result};

const OVERFLOW_BYTES_MAX: usize = 4 * 1024;

/// The messages that a full mailbox had to refuse, for its recipient to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxOverflow {
    pub refused: u64,
    pub last_at: Timestamp,
    pub last_from: Name,
}

/// Messages that can be received already, but do not survive a power cut yet.
#[derive(Debug, Default)]
#[must_use = "the messages survive a power cut only after `sync`"]
pub struct UnsyncedMessages {
    outcomes: Vec<PublishOutcome>,
    files: Vec<(File, PathBuf)>,
    touched: Vec<(Arc<OpenMailbox>, bool)>,
    syncs: Arc<SyncMany>,
    power: bool,
}

impl UnsyncedMessages {
    pub fn outcomes(&self) -> &[PublishOutcome] {
        &self.outcomes
    }

    /// Makes the messages survive what the queue's durability promises.
    ///
    /// # Errors
    /// The disk failed; publish the same envelopes again.
    pub fn sync(self) -> Result<Vec<PublishOutcome>> {
        let Some((mailbox, _)) = self.touched.first().filter(|_| self.power) else {
            return Ok(self.outcomes);
        };
        if mailbox.names_go_with_files() {
            self.syncs.sync_with_names(&self.files)?;
            return Ok(self.outcomes);
        }
        self.syncs.sync(&self.files, durable::sync_file)?;
        for (mailbox, urgent) in &self.touched {
            sync_names(mailbox, *urgent)?;
        }
        Ok(self.outcomes)
    }
}

/// # Publish
impl Spool {
    /// Stores a message for `envelope.to`: one file, one rename. With `durability: power` the
    /// file and its name are synced before this returns.
    ///
    /// # Errors
    /// [`Error::NoMailbox`], [`Error::Full`], [`Error::Quota`], [`Error::Conflict`], [`Error::TooLarge`], or the
    /// disk failed. After an error, publishing the same envelope again is safe.
    pub fn publish(&self, envelope: &Envelope) -> Result<PublishOutcome> {
        self.publish_due(envelope, 0)
    }

    /// As [`Spool::publish`], for a message that is not received before `delay` has passed.
    pub fn publish_delayed(&self, envelope: &Envelope, delay: Duration) -> Result<PublishOutcome> {
        self.publish_due(envelope, self.now_millis().saturating_add(millis(delay)))
    }

    /// Stores a message that is not received before a time in milliseconds since the Unix epoch; 0 for at once.
    pub(crate) fn publish_due(
        &self,
        envelope: &Envelope,
        not_before: u64,
    ) -> Result<PublishOutcome> {
        let mailbox = self.mailbox(&envelope.to)?;
        let content = envelope.encode()?;
        let synced_later = !self.is_power() || mailbox.names_go_with_files();
        let durability = if synced_later { Durability::Process } else { Durability::Power };
        let draft = || {
            let mut staged = self.draft(&mailbox, envelope, &content, durability)?;
            staged.not_before = not_before;
            Ok(staged)
        };
        let (published, file) = self.store(&mailbox, envelope, draft)?;
        if published == PublishOutcome::Stored {
            match file.filter(|_| synced_later) {
                _ if !self.is_power() => {}
                Some(file) => durable::sync_file_and_name(&file, mailbox.new.path())?,
                None => sync_names(&mailbox, envelope.priority > 0 || not_before > 0)?,
            }
            mail::record_stored(self.recorder(), envelope);
        }
        Ok(published)
    }

    /// Stores several messages. Their files are synced at the same time, by threads that have ended when this
    /// returns. Where that does not cover their names, it is done before the renames, and each directory is synced once.
    ///
    /// # Errors
    /// As for [`Spool::publish`], for the first message that fails; those before it are stored,
    /// and publishing the same batch again is safe.
    pub fn publish_batch(&self, envelopes: &[Envelope]) -> Result<Vec<PublishOutcome>> {
        let first = envelopes.first().filter(|_| self.is_power());
        let mailbox = first.map(|first| self.mailbox(&first.to)).transpose()?;
        let is_synced_first = mailbox.is_some_and(|mailbox| !mailbox.names_go_with_files());
        let group = if is_synced_first { envelopes.len() } else { SYNCED_AT_ONCE };
        let mut outcomes = Vec::with_capacity(envelopes.len());
        for group in envelopes.chunks(group.max(1)) {
            let (stored, failed) = self.store_many(group, is_synced_first);
            outcomes.extend(stored.sync()?);
            failed.map_or(Ok(()), Err)?;
        }
        Ok(outcomes)
    }

    /// Stores several messages at once for their readers and leaves the syncs for later. They
    /// can be received, but survive a power cut only once [`UnsyncedMessages::sync`] has returned. For a
    /// sender that still has the content elsewhere until then.
    ///
    /// The error, if any, is that of the first message that failed; those before it are stored.
    pub fn publish_unsynced(&self, envelopes: &[Envelope]) -> (UnsyncedMessages, Option<Error>) {
        self.store_many(envelopes, false)
    }

    /// Stores messages, and leaves the syncs for later, or those of the names if the contents are synced first.
    fn store_many(
        &self,
        envelopes: &[Envelope],
        is_synced_first: bool,
    ) -> (UnsyncedMessages, Option<Error>) {
        let syncs = Arc::clone(&self.syncs);
        let mut all =
            UnsyncedMessages { syncs, power: self.is_power(), ..UnsyncedMessages::default() };
        for group in envelopes.chunks(SYNCED_AT_ONCE) {
            let (drafts, failed) = self.drafts(group, is_synced_first);
            for (draft, envelope) in drafts.into_iter().zip(group) {
                let mailbox = Arc::clone(&draft.mailbox);
                match self.store(&mailbox, envelope, || Ok(draft)) {
                    Ok((published, file)) => {
                        let (dir, name) = target(&mailbox, envelope);
                        let file = file.filter(|_| all.power);
                        all.files.extend(file.map(|file| (file, dir.path().join(name))));
                        self.note_stored(&mut all, mailbox, envelope, published);
                    }
                    Err(error) => return (all, Some(error)),
                }
            }
            if failed.is_some() {
                return (all, failed);
            }
        }
        (all, None)
    }

    /// Writes messages to `tmp/`, and syncs all of them if they are synced first. After an error, those before the
    /// message that failed are returned; none if a sync failed.
    fn drafts(
        &self,
        envelopes: &[Envelope],
        is_synced_first: bool,
    ) -> (Vec<StagedFile>, Option<Error>) {
        let (mut drafts, mut files, mut failed) = (Vec::new(), Vec::new(), None);
        for envelope in envelopes {
            let written = self.mailbox(&envelope.to).and_then(|mailbox| {
                let content = envelope.encode()?;
                self.draft(&mailbox, envelope, &content, Durability::Process)
            });
            match written {
                Ok(mut draft) => {
                    let path = draft.mailbox.tmp.path().join(&draft.name);
                    let file = if is_synced_first { draft.file.take() } else { None };
                    files.extend(file.map(|file| (file, path)));
                    drafts.push(draft);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        match self.syncs.sync(&files, durable::sync_file) {
            Ok(()) => (drafts, failed),
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    fn note_stored(
        &self,
        all: &mut UnsyncedMessages,
        mailbox: Arc<OpenMailbox>,
        envelope: &Envelope,
        published: PublishOutcome,
    ) {
        all.outcomes.push(published);
        if published == PublishOutcome::Stored {
            mail::record_stored(self.recorder(), envelope);
            let urgent = envelope.priority > 0;
            if !all.touched.iter().any(|(m, u)| m.name == mailbox.name && *u == urgent) {
                all.touched.push((mailbox, urgent));
            }
        }
    }

    /// The messages that a full mailbox had to refuse; `None` if it never did.
    pub fn overflow(&self, name: &Name) -> Result<Option<MailboxOverflow>> {
        read_overflow(&*self.mailbox(name)?)
    }

    /// Moves the draft to its place, unless the message is stored already or may not be stored.
    fn store(
        &self,
        mailbox: &OpenMailbox,
        envelope: &Envelope,
        draft: impl FnOnce() -> Result<StagedFile>,
    ) -> Result<(PublishOutcome, Option<File>)> {
        let settings = mailbox.settings()?;
        let may_exist = envelope.note_offer();
        if !may_exist && settings.capacity.is_none() {
            self.check_quota(mailbox, envelope)?;
            let mut draft = draft()?;
            return match draft.place(envelope)? {
                true => Ok((PublishOutcome::Stored, draft.file.take())),
                false => Ok((self.stored_before(mailbox, envelope, &MessageLocation::New)?, None)),
            };
        }
        let _gate = mailbox.close_gate(self.options.lock_patience)?;
        if let Some(location) = mailbox.locate(&envelope.id)?
            && !self.was_damaged(mailbox, &envelope.id, &location)?
        {
            return Ok((self.stored_before(mailbox, envelope, &location)?, None));
        }
        self.check_quota(mailbox, envelope)?;
        self.check_capacity(mailbox, envelope, &settings)?;
        let mut draft = draft()?;
        draft.place(envelope)?;
        Ok((PublishOutcome::Stored, draft.file.take()))
    }

    fn draft(
        &self,
        mailbox: &Arc<OpenMailbox>,
        envelope: &Envelope,
        content: &[u8],
        durability: Durability,
    ) -> Result<StagedFile> {
        let name = durable::temporary_name(envelope.id.as_str());
        let file = mailbox.tmp.write_new(&name, content, self.options.modes, durability)?;
        let (mailbox, file) = (Arc::clone(mailbox), Some(file));
        Ok(StagedFile { mailbox, name, file, not_before: 0, is_placed: false })
    }

    /// A copy that a power cut has left empty or cut does not count as stored. It is kept aside, because its sender was
    /// not notified that it is safe and may store it again. A settled copy was whole when its holder read it.
    fn was_damaged(
        &self,
        mailbox: &OpenMailbox,
        id: &MessageId,
        location: &MessageLocation,
    ) -> Result<bool> {
        if *location == MessageLocation::Done {
            return Ok(false);
        }
        let (dir, file) = mailbox.file_at(id, location);
        let damaged = match dir.read(&file, ENVELOPE_BYTES_MAX) {
            Ok(content) => content
                .is_some_and(|c| Envelope::decode(&c, &dir.path().join(place::plain(id))).is_err()),
            Err(Error::Malformed { .. } | Error::TooLarge { .. }) => true,
            Err(error) => return Err(error),
        };
        if damaged {
            self.set_aside_damaged(mailbox, dir, &file, id)?;
        }
        Ok(damaged)
    }

    /// Moves away what a power cut has left of a message before its sender knew it as stored.
    pub(super) fn set_aside_damaged(
        &self,
        mailbox: &OpenMailbox,
        dir: &Dir,
        file: &str,
        id: &MessageId,
    ) -> Result<()> {
        dir.move_new(file, &mailbox.dead, &place::double(id))?;
        let data = serde_json::json!({ "id": id, "mailbox": mailbox.name });
        self.record(types::MESSAGE_DAMAGED, &mailbox.name, data);
        Ok(())
    }

    fn stored_before(
        &self,
        mailbox: &OpenMailbox,
        envelope: &Envelope,
        location: &MessageLocation,
    ) -> Result<PublishOutcome> {
        let (dir, file) = mailbox.file_at(&envelope.id, location);
        let read = allow_unreadable(dir.read(&file, ENVELOPE_BYTES_MAX))?;
        let Some(content) = read.flatten() else {
            // It moved between `locate` and `read`, or is not a file in `done/`, so it is stored.
            return Ok(PublishOutcome::AlreadyStored);
        };
        self.make_safe(mailbox, dir, &file)?;
        let stored = Envelope::decode(&content, &dir.path().join(place::plain(&envelope.id)));
        mail::stored_before(envelope, stored, *location == MessageLocation::Done)
    }

    fn check_capacity(
        &self,
        mailbox: &OpenMailbox,
        envelope: &Envelope,
        settings: &Settings,
    ) -> Result<()> {
        let Some(capacity) = settings.capacity else { return Ok(()) };
        if mailbox.count_waiting(capacity)? < capacity {
            return Ok(());
        }
        let refused = read_overflow(mailbox)?.map_or(0, |o| o.refused) + 1;
        let note = MailboxOverflow {
            refused,
            last_at: self.options.clock.wall(),
            last_from: envelope.from.clone(),
        };
        mailbox.write_page(&mailbox.home, OVERFLOW_FILE, &note, Durability::Process)?;
        Err(mail::refuse_full(self.recorder(), envelope, capacity, refused))
    }
}

/// A message in `tmp/`, which is removed from there if it does not get to its place.
#[derive(Debug)]
struct StagedFile {
    mailbox: Arc<OpenMailbox>,
    name: String,
    file: Option<File>,
    /// In milliseconds since the Unix epoch, 0 for at once.
    not_before: u64,
    is_placed: bool,
}

impl StagedFile {
    /// The rename that stores the message; `false` if the name is taken.
    fn place(&mut self, envelope: &Envelope) -> Result<bool> {
        let (dir, file) = match self.not_before {
            0 => target(&self.mailbox, envelope),
            due => (&self.mailbox.front, FrontFile { not_before: due, ..front(envelope) }.file()),
        };
        let moved = self.mailbox.tmp.move_new(&self.name, dir, &file)?;
        self.is_placed = moved == MoveOutcome::Done;
        if moved == MoveOutcome::Gone {
            return Err(Error::io("move to", dir.path().join(file), io::ErrorKind::NotFound));
        }
        Ok(self.is_placed)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = self.mailbox.tmp.remove(&self.name);
        }
    }
}

fn front(envelope: &Envelope) -> FrontFile {
    let priority = envelope.priority;
    FrontFile { id: envelope.id.clone(), priority, epoch: 0, not_before: 0 }
}

/// Where a message is stored: an everyday one is in line, an urgent one at the front.
fn target<'a>(mailbox: &'a OpenMailbox, envelope: &Envelope) -> (&'a Dir, String) {
    match envelope.priority {
        0 => (&mailbox.new, place::plain(&envelope.id)),
        _ => (&mailbox.front, front(envelope).file()),
    }
}

fn sync_names(mailbox: &OpenMailbox, urgent: bool) -> Result<()> {
    mailbox.sync_names(if urgent { &mailbox.front } else { &mailbox.new })
}

fn read_overflow(mailbox: &OpenMailbox) -> Result<Option<MailboxOverflow>> {
    read_side_file(&mailbox.home, OVERFLOW_FILE, OVERFLOW_BYTES_MAX)
}
