//! Dead letters: `cur/`, `new/` or `front/` to `dead/` (to S5), with the reason beside it; and the ways back and out.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Spool;
use super::finish::forget_deliveries;
use super::mailbox::OpenMailbox;
use super::place::{self, FrontFile, HeldFile};
use crate::Result;
use crate::durable::{Dir, MoveOutcome};
use crate::env::Lease;
use crate::error::allow_unreadable;
use crate::mail::{self, no_letter, no_message};
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name, Timestamp, yaml};

const REASON_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeadLetterReason {
    pub(super) reason: String,
    pub(super) at: Timestamp,
    /// The last holder; `None` if it was never received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) holder: Option<Name>,
    /// Deliveries so far.
    pub(super) epoch: u64,
    /// It was returned to the queue since; its attempts are counted from `epoch`.
    #[serde(default)]
    pub(super) redriven: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) told: bool,
}

/// A message that will not be delivered any more, and why; [`Mailbox`](crate::Mailbox) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Mailbox of the message.
    pub mailbox: Name,
    /// Id of the message.
    pub id: MessageId,
    /// Why it is dead; empty if the reason was lost.
    pub reason: String,
    /// Since when.
    pub at: Option<Timestamp>,
    /// The last holder, if any.
    pub holder: Option<Name>,
    /// How often it was delivered.
    pub epoch: u64,
    /// Whether its sender was notified.
    #[serde(skip)]
    pub is_told: bool,
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl DeadLetter {
    /// Whether nothing is owed for it: another copy, attempt or queue has the work, or its sender has recalled it.
    #[must_use]
    pub fn has_successor(&self) -> bool {
        mail::has_successor(&self.reason)
    }
}

/// # Dead letters
impl Spool {
    pub fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()> {
        self.bury(&*self.mailbox(&lease.mailbox)?, &HeldFile::from(lease), reason)
    }

    pub fn dead_letter_waiting(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        let mailbox = self.mailbox(mailbox)?;
        let _gate = mailbox.close_gate(self.options.lock_patience)?;
        let not_waiting = || no_message(id, &format!("waiting in mailbox `{}`", mailbox.name));
        let location = mailbox.locate(id)?.ok_or_else(not_waiting)?;
        let epoch = location.deliveries_of_waiting().ok_or_else(not_waiting)?;
        self.write_reason(&mailbox, id, &self.reason_now(reason, None, epoch))?;
        // Move exactly the file that was found: a consumer that was quicker keeps its message.
        let (dir, file) = mailbox.file_at(id, &location);
        if dir.move_new(&file, &mailbox.dead, &place::plain(id))? != MoveOutcome::Done {
            return Err(no_message(id, "waiting any more"));
        }
        self.sync_moved(&mailbox, &mailbox.dead, &[place::plain(id)])?;
        self.record_dead(&mailbox, id, (None, epoch), reason);
        Ok(())
    }

    /// All dead letters of a mailbox, oldest first.
    pub fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>> {
        let mailbox = self.mailbox(mailbox)?;
        let mut letters = Vec::new();
        for id in mailbox.dead.list(place::parse_plain)? {
            let reason = self.read_reason(&mailbox, &id)?;
            letters.push(DeadLetter {
                mailbox: mailbox.name.clone(),
                reason: reason.as_ref().map_or_else(String::new, |r| r.reason.clone()),
                at: reason.as_ref().map(|r| r.at),
                epoch: reason.as_ref().map_or(0, |r| r.epoch),
                is_told: reason.as_ref().is_some_and(|r| r.told),
                holder: reason.and_then(|r| r.holder),
                id,
            });
        }
        letters.sort_unstable_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        Ok(letters)
    }

    /// Notes beside a dead letter that its sender was notified. A letter that is gone, or died again, is left alone.
    pub fn note_told(&self, letter: &DeadLetter) -> Result<()> {
        let mailbox = self.mailbox(&letter.mailbox)?;
        let _gate = mailbox.close_gate(self.options.lock_patience)?;
        if mailbox.dead.stat(&place::plain(&letter.id))?.is_none() {
            return Ok(());
        }
        match self.read_reason(&mailbox, &letter.id)? {
            Some(reason) if reason.epoch == letter.epoch && !reason.told => {
                self.write_reason(&mailbox, &letter.id, &DeadLetterReason { told: true, ..reason })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub fn restate_dead(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        let mailbox = self.mailbox(mailbox)?;
        let _gate = mailbox.close_gate(self.options.lock_patience)?;
        if mailbox.dead.stat(&place::plain(id))?.is_none() {
            return Err(no_letter(&mailbox.name, id));
        }
        let fresh = self.reason_now(reason, None, 0);
        let restated = match self.read_reason(&mailbox, id)? {
            Some(before) => DeadLetterReason { reason: fresh.reason, ..before },
            None => fresh,
        };
        self.write_reason(&mailbox, id, &restated)
    }

    /// Gives a dead letter back to the queue with all its attempts: `dead/` to `front/`.
    pub fn redrive(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        let mailbox = self.mailbox(mailbox)?;
        let _gate = mailbox.pass_gate_backwards(self.options.lock_patience)?;
        let file = place::plain(id);
        if mailbox.dead.stat(&file)?.is_none() {
            return Err(no_letter(&mailbox.name, id));
        }
        let priority = mailbox
            .dead
            .read(&file, ENVELOPE_BYTES_MAX)?
            .and_then(|content| Envelope::decode(&content, &mailbox.dead.path().join(&file)).ok())
            .map_or(0, |envelope| envelope.priority);
        let reason =
            self.read_reason(&mailbox, id)?.unwrap_or_else(|| self.reason_now("unknown", None, 0));
        let epoch = reason.epoch;
        let redriven = DeadLetterReason { redriven: true, told: false, ..reason };
        self.write_reason(&mailbox, id, &redriven)?;
        let front = FrontFile { id: id.clone(), priority, epoch, not_before: 0 };
        if mailbox.dead.move_new(&file, &mailbox.front, &front.file())? != MoveOutcome::Done {
            return Err(no_message(id, "among the dead letters any more"));
        }
        self.sync_moved(&mailbox, &mailbox.front, &[front.file()])?;
        mail::record_redriven(self.recorder(), (&mailbox.name, id), epoch);
        Ok(())
    }

    pub fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        let mailbox = self.mailbox(mailbox)?;
        if mailbox.dead.stat(&place::plain(id))?.is_none() {
            return Err(no_letter(&mailbox.name, id));
        }
        mailbox.dead.remove(&place::plain(id))?;
        // A letter that comes back after a power cut must not have lost its reason.
        self.sync_power(&mailbox.dead)?;
        mailbox.dead.remove(&place::reason(id))?;
        mail::record_dropped(self.recorder(), (&mailbox.name, id));
        Ok(())
    }

    /// Moves a held message to the dead letters. The reason is written first: a crash in between
    /// leaves a reason without a letter, which is harmless, and the next look tries again. Behind
    /// the gate nothing moves backwards. So a holder whose lease has ended cannot replace the reason
    /// (and with it the epoch) of a message that a later holder has dead-lettered.
    pub(super) fn bury(&self, mailbox: &OpenMailbox, held: &HeldFile, reason: &str) -> Result<()> {
        self.bury_within(mailbox, held, reason, self.options.lock_patience)
    }

    /// As [`Spool::bury`], waiting at most `patience` for the gate.
    pub(super) fn bury_within(
        &self,
        mailbox: &OpenMailbox,
        held: &HeldFile,
        reason: &str,
        patience: Duration,
    ) -> Result<()> {
        let _gate = mailbox.close_gate(patience)?;
        if mailbox.cur.stat(&held.file())?.is_none() {
            return Err(self.lost(mailbox, held));
        }
        let dead = self.reason_now(reason, Some(&held.holder), held.epoch);
        self.write_reason(mailbox, &held.id, &dead)?;
        let mut letter = place::plain(&held.id);
        match mailbox.cur.move_new(&held.file(), &mailbox.dead, &letter)? {
            MoveOutcome::Done => {}
            MoveOutcome::Gone => return Err(self.lost(mailbox, held)),
            MoveOutcome::Exists => {
                letter = place::double(&held.id);
                mailbox.cur.move_new(&held.file(), &mailbox.dead, &letter)?;
            }
        }
        self.sync_moved(mailbox, &mailbox.dead, &[letter])?;
        forget_deliveries(mailbox, held);
        self.record_dead(mailbox, &held.id, (Some(&held.holder), held.epoch), reason);
        Ok(())
    }

    fn record_dead(
        &self,
        mailbox: &OpenMailbox,
        id: &MessageId,
        last: (Option<&Name>, u64),
        reason: &str,
    ) {
        let read = || {
            let file = place::plain(id);
            let content = mailbox.dead.read(&file, ENVELOPE_BYTES_MAX).ok()??;
            Envelope::decode(&content, &mailbox.dead.path().join(file)).ok()
        };
        mail::record_dead(self.recorder(), (&mailbox.name, id), last, reason, read);
    }

    pub(super) fn reason_now(
        &self,
        reason: &str,
        holder: Option<&Name>,
        epoch: u64,
    ) -> DeadLetterReason {
        DeadLetterReason {
            reason: mail::kept_reason(reason),
            at: self.options.clock.wall(),
            holder: holder.cloned(),
            epoch,
            redriven: false,
            told: false,
        }
    }

    pub(super) fn write_reason(
        &self,
        mailbox: &OpenMailbox,
        id: &MessageId,
        reason: &DeadLetterReason,
    ) -> Result<()> {
        mailbox.write_page(&mailbox.dead, &place::reason(id), reason, self.options.durability)
    }

    /// Says that the first `before` deliveries of a held message do not count as attempts.
    pub(super) fn write_attempts_before(
        &self,
        mailbox: &OpenMailbox,
        held: &HeldFile,
        before: u64,
    ) -> Result<()> {
        let unread = self.reason_now("handed back unread", Some(&held.holder), before);
        self.write_reason(mailbox, &held.id, &DeadLetterReason { redriven: true, ..unread })
    }

    /// How many deliveries of a message do not count as attempts: those before it was redriven or handed back unread.
    pub(crate) fn attempts_before(&self, mailbox: &Name, id: &MessageId) -> Result<u64> {
        let reason = self.read_reason(&*self.mailbox(mailbox)?, id)?;
        Ok(reason.filter(|reason| reason.redriven).map_or(0, |reason| reason.epoch))
    }

    /// The reason beside a dead letter; a damaged one counts as lost.
    pub(super) fn read_reason(
        &self,
        mailbox: &OpenMailbox,
        id: &MessageId,
    ) -> Result<Option<DeadLetterReason>> {
        read_side_file(&mailbox.dead, &place::reason(id), REASON_BYTES_MAX)
    }
}

/// A file that a message does not need; one that is damaged counts as missing.
pub(super) fn read_side_file<T: DeserializeOwned>(
    dir: &Dir,
    file: &str,
    bytes_max: usize,
) -> Result<Option<T>> {
    let content = allow_unreadable(dir.read(file, bytes_max))?.flatten();
    let parse = |content: Vec<u8>| {
        yaml::parse(&String::from_utf8_lossy(&content), &dir.path().join(file)).ok()
    };
    Ok(content.and_then(parse))
}
