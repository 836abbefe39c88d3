//! Publish: `tmp/` to `new/` (S1 to S2), one rename a message.
//!
//! An id that Ensemble has just made is published without looking for it. An id that may have
//! been stored before (chosen by the sender, or tried once already) is looked for in all states
//! first, behind the mailbox's gate, so that a message is stored once whatever is retried.

use serde::{Deserialize, Serialize};

use super::mailbox::{Location, Mailbox, OVERFLOW_FILE};
use super::place::{self, Front};
use super::{Settings, Spool};
use crate::durable::{self, Dir, Durability, Moved};
use crate::env::Published;
use crate::message::{Digest, ENVELOPE_BYTES_MAX, Envelope, Name, Timestamp, yaml};
use crate::{Error, Result};

/// The largest overflow note, in bytes.
const OVERFLOW_BYTES_MAX: usize = 4 * 1024;

/// What a full mailbox had to refuse, for its recipient to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Overflow {
    /// How many messages were refused.
    pub refused: u64,
    /// When the last one was.
    pub last_at: Timestamp,
    /// Who sent it.
    pub last_from: Name,
}

impl Spool {
    /// Stores a message for `envelope.to`: one file, one rename. With `durability: power` the
    /// file and the directory are synced before this returns.
    ///
    /// # Errors
    /// [`Error::NoMailbox`], [`Error::Full`], [`Error::Conflict`], [`Error::TooLarge`], or the
    /// disk failed. After an error, publishing the same envelope again is safe.
    pub fn publish(&self, envelope: &Envelope) -> Result<Published> {
        let mailbox = self.mailbox(&envelope.to)?;
        let published = self.store(&mailbox, envelope)?;
        if published == Published::Stored {
            self.sync_power(self.target(&mailbox, envelope).0)?;
            self.record_stored(envelope);
        }
        Ok(published)
    }

    /// Stores several messages with one directory sync a mailbox.
    ///
    /// # Errors
    /// As for [`Spool::publish`], for the first message that fails; those before it are stored,
    /// and publishing the same batch again is safe.
    pub fn publish_batch(&self, envelopes: &[Envelope]) -> Result<Vec<Published>> {
        let mut outcomes = Vec::with_capacity(envelopes.len());
        let mut touched: Vec<(std::sync::Arc<Mailbox>, bool)> = Vec::new();
        let mut failed = None;
        for envelope in envelopes {
            let stored = self.mailbox(&envelope.to).and_then(|mailbox| {
                let published = self.store(&mailbox, envelope)?;
                let in_front = envelope.priority > 0;
                if !touched.iter().any(|(m, f)| m.name == mailbox.name && *f == in_front) {
                    touched.push((mailbox, in_front));
                }
                Ok(published)
            });
            match stored {
                Ok(published) => outcomes.push(published),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        for (mailbox, in_front) in &touched {
            self.sync_power(if *in_front { &mailbox.front } else { &mailbox.new })?;
        }
        for (envelope, _) in
            envelopes.iter().zip(&outcomes).filter(|(_, o)| **o == Published::Stored)
        {
            self.record_stored(envelope);
        }
        failed.map_or(Ok(outcomes), Err)
    }

    /// Stores the same message in several mailboxes (all but the sender's own).
    ///
    /// # Errors
    /// As for [`Spool::publish_batch`].
    pub fn broadcast(
        &self,
        envelope: &Envelope,
        recipients: &[Name],
    ) -> Result<Vec<(Name, Published)>> {
        let copies: Vec<Envelope> = recipients
            .iter()
            .filter(|to| **to != envelope.from)
            .map(|to| envelope.addressed_to(to.clone()))
            .collect();
        let outcomes = self.publish_batch(&copies)?;
        Ok(copies.into_iter().map(|copy| copy.to).zip(outcomes).collect())
    }

    /// What a full mailbox had to refuse; `None` if it never did.
    ///
    /// # Errors
    /// The mailbox is unknown or the note cannot be read.
    pub fn overflow(&self, name: &Name) -> Result<Option<Overflow>> {
        read_overflow(&*self.mailbox(name)?)
    }

    fn store(&self, mailbox: &Mailbox, envelope: &Envelope) -> Result<Published> {
        let content = envelope.encode()?;
        let settings = mailbox.settings()?;
        let may_exist = envelope.note_offer();
        if !may_exist && settings.capacity.is_none() {
            return match self.place(mailbox, envelope, &content)? {
                Moved::Exists => self.stored_before(mailbox, envelope, &Location::New),
                _ => Ok(Published::Stored),
            };
        }
        let _gate = mailbox.close_gate(self.options.lock_patience)?;
        if let Some(location) = mailbox.locate(&envelope.id)? {
            return self.stored_before(mailbox, envelope, &location);
        }
        self.check_capacity(mailbox, envelope, &settings)?;
        self.place(mailbox, envelope, &content)?;
        Ok(Published::Stored)
    }

    /// The rename that stores a message.
    fn place(&self, mailbox: &Mailbox, envelope: &Envelope, content: &[u8]) -> Result<Moved> {
        let tmp_name = durable::temporary_name(envelope.id.as_str());
        mailbox.tmp.write_new(&tmp_name, content, self.options.modes, self.options.durability)?;
        let (dir, file) = self.target(mailbox, envelope);
        let moved = mailbox.tmp.move_new(&tmp_name, dir, &file);
        if !matches!(moved, Ok(Moved::Done)) {
            let _ = mailbox.tmp.remove(&tmp_name);
        }
        match moved? {
            Moved::Gone => Err(Error::io(
                "move to",
                dir.path().join(file),
                std::io::Error::from(std::io::ErrorKind::NotFound),
            )),
            other => Ok(other),
        }
    }

    fn target<'a>(&self, mailbox: &'a Mailbox, envelope: &Envelope) -> (&'a Dir, String) {
        match envelope.priority {
            0 => (&mailbox.new, place::plain(&envelope.id)),
            priority => {
                let front = Front { id: envelope.id.clone(), priority, epoch: 0, not_before: 0 };
                (&mailbox.front, front.file())
            }
        }
    }

    /// The id is taken: by the same message, or by another one?
    fn stored_before(
        &self,
        mailbox: &Mailbox,
        envelope: &Envelope,
        location: &Location,
    ) -> Result<Published> {
        let (dir, file) = mailbox.file_at(&envelope.id, location);
        let Some(content) = dir.read(&file, ENVELOPE_BYTES_MAX)? else {
            // It moved on between the two looks, so it is there.
            return Ok(Published::AlreadyStored);
        };
        let stored = Envelope::decode(&content, &dir.path().join(&file))?;
        if stored.kind == envelope.kind
            && Digest::of(stored.body.as_bytes()) == Digest::of(envelope.body.as_bytes())
        {
            return Ok(Published::AlreadyStored);
        }
        Err(Error::Conflict { mailbox: mailbox.name.to_string(), id: envelope.id.to_string() })
    }

    fn check_capacity(
        &self,
        mailbox: &Mailbox,
        envelope: &Envelope,
        settings: &Settings,
    ) -> Result<()> {
        let Some(capacity) = settings.capacity else { return Ok(()) };
        if mailbox.count_waiting(capacity)? < capacity {
            return Ok(());
        }
        let refused = read_overflow(mailbox)?.map_or(0, |o| o.refused) + 1;
        let note = Overflow {
            refused,
            last_at: self.options.clock.wall(),
            last_from: envelope.from.clone(),
        };
        mailbox.home.replace(
            OVERFLOW_FILE,
            yaml::render(&note).as_bytes(),
            &mailbox.tmp,
            self.options.modes,
            Durability::Process,
        )?;
        self.record(
            "mailbox.full",
            &envelope.from,
            serde_json::json!({ "mailbox": mailbox.name, "id": envelope.id, "capacity": capacity, "refused": refused }),
        );
        Err(Error::Full { mailbox: mailbox.name.to_string(), capacity })
    }

    pub(super) fn sync_power(&self, dir: &Dir) -> Result<()> {
        match self.options.durability {
            Durability::Power => dir.sync(),
            Durability::Process => Ok(()),
        }
    }

    fn record_stored(&self, envelope: &Envelope) {
        let mut data = serde_json::json!({
            "id": envelope.id, "mailbox": envelope.to, "type": envelope.kind, "bytes": envelope.body.len(),
        });
        let optional = [
            ("task_id", &envelope.task_id),
            ("correlation_id", &envelope.correlation_id),
            ("source", &envelope.source),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                data[key] = value.as_str().into();
            }
        }
        self.record("message.stored", &envelope.from, data);
    }
}

fn read_overflow(mailbox: &Mailbox) -> Result<Option<Overflow>> {
    let Some(content) = mailbox.home.read(OVERFLOW_FILE, OVERFLOW_BYTES_MAX)? else {
        return Ok(None);
    };
    let path = mailbox.home.path().join(OVERFLOW_FILE);
    yaml::parse(&String::from_utf8_lossy(&content), &path).map(Some)
}
