//! Removes old settled messages.

use super::record::MessageStage;
use super::watch::MailboxWatch;
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{MessageId, Name};

/// Most messages that one sweep removes from one mailbox, so that it stays short.
const REMOVALS_MAX: usize = 1000;
const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

impl NatsTransport {
    /// Removes settled messages that are older than their mailbox's `done_days`, as a directory's
    /// sweep does. Their ids may be reused then. Returns the number of removed messages. Several
    /// hosts may sweep at the same time. The age is by the server's time.
    ///
    /// # Errors
    /// [`ensemble_core::Error::Server`]; messages that were removed before stay removed.
    pub fn sweep(&self) -> Result<u64> {
        let mut removed = 0;
        visit_all_mailboxes(self.mailboxes()?, |mailbox| {
            let keep = DAY_MILLIS.saturating_mul(self.settings_of(mailbox)?.done_days);
            let now = u64::try_from(self.now().unix_millis()).unwrap_or(0);
            let Some(oldest_kept) = now.checked_sub(keep) else { return Ok(()) };
            let watch = self.recent(mailbox)?;
            for (id, seq) in settled_before(&watch, oldest_kept).into_iter().take(REMOVALS_MAX) {
                removed += u64::from(self.remove(mailbox, &id, seq)?);
            }
            removed += self.sweep_apart(mailbox, oldest_kept)?;
            Ok(())
        })?;
        Ok(removed)
    }

    /// Removes a version and those before it, so that a later one of the same id stays; `false` if it was gone.
    pub(super) fn remove(&self, mailbox: &Name, id: &MessageId, seq: u64) -> Result<bool> {
        let (wire, subject) = (self.wire.clone(), self.subjects.message(mailbox, id));
        let was_there = self.call("remove a message", async move {
            if wire.read(&subject).await?.is_none_or(|stored| stored.seq != seq) {
                return Ok(false);
            }
            // Another host may have removed it first.
            Ok(wire.purge(&subject, seq).await? > 0)
        })?;
        if let Some(watch) = lock(&self.watches).get(mailbox) {
            watch.index().forget_version(id, seq);
        }
        Ok(was_there)
    }
}

pub(super) fn settled_before(watch: &MailboxWatch, oldest_kept: u64) -> Vec<(MessageId, u64)> {
    watch
        .index()
        .entries()
        .filter(|(_, entry)| entry.record.place == MessageStage::Settled && entry.at < oldest_kept)
        .map(|(id, entry)| (id.clone(), entry.seq))
        .collect()
}
