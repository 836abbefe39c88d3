//! Keeps settled messages apart from those that wait, so that a reader of a mailbox reads what waits and not
//! its history.
//!
//! ```text
//! ens.<team>.q.<mailbox>.<id>   settled, for STAY     copied to …
//! ens.<team>.s.<mailbox>.<id>   … the same version    after GRACE the first is removed
//! ```
//!
//! An id is still stored only once. A sender whose id may be older than `STAY` looks for the copy before it stores
//! the message. A call ends long before `GRACE`, so no sender looks before the copy is made and stores after the
//! message is removed. A crash at any point leaves both, and the next pass continues. Without a watcher, settled
//! messages stay where they are.
//!
//! A server of 2.9 that is killed has an older version of a removed message again. So a receiver looks for the copy of
//! what is not new, and settles what has one.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::DeliverPolicy;
use time::OffsetDateTime;

use super::consumer::PullConsumer;
use super::denials::is_denial;
use super::sweep::settled_before;
use super::versions::NOTHING;
use super::{NatsTransport, PutOutcome, StoredVersion, lock};
use ensemble_core::Result;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{MessageId, Name};

/// How long a settled message stays in its mailbox. What is younger is certainly not set apart.
const STAY: Duration = Duration::from_secs(60);
/// How long both versions exist.
const GRACE: Duration = Duration::from_secs(60);
/// How long one pass begins moves, so that it stays short.
const PASS_MAX: Duration = Duration::from_secs(1);

impl NatsTransport {
    /// Moves messages that were settled some time ago out of their mailboxes. Every watcher does it, every
    /// few seconds. Returns the number of messages that are out of the way now.
    ///
    /// # Errors
    /// [`ensemble_core::Error::Server`]; the next call continues.
    pub fn set_settled_apart(&self) -> Result<u64> {
        let (mut moved, began) = (0, Instant::now());
        let is_early = || began.elapsed() < PASS_MAX;
        visit_all_mailboxes(self.mailboxes()?.into_iter().take_while(|_| is_early()), |mailbox| {
            let before =
                u64::try_from(self.now().unix_millis()).unwrap_or(0).saturating_sub(millis(STAY));
            let watch = self.recent(mailbox)?;
            for (id, seq) in settled_before(&watch, before).into_iter().take_while(|_| is_early()) {
                moved += u64::from(self.set_apart(mailbox, &id, seq)?);
            }
            Ok(())
        })?;
        Ok(moved)
    }

    /// Copies a settled message, and removes it from its mailbox once the copy is old enough.
    fn set_apart(&self, mailbox: &Name, id: &MessageId, seq: u64) -> Result<bool> {
        let key = (mailbox.clone(), id.clone());
        let copied_at = lock(&self.copied).get(&key).copied();
        let Some(copied_at) = copied_at else {
            if let Some(at) = self.copy(mailbox, id, seq)? {
                lock(&self.copied).insert(key, at);
            }
            return Ok(false);
        };
        if self.now_millis() < copied_at.saturating_add(millis(GRACE)) {
            return Ok(false);
        }
        let is_removed = self.remove(mailbox, id, seq)?;
        lock(&self.copied).remove(&key);
        Ok(is_removed)
    }

    fn copy(&self, mailbox: &Name, id: &MessageId, seq: u64) -> Result<Option<u64>> {
        let Some(last) = self.read(mailbox, id)?.filter(|last| last.seq == seq) else {
            if let Some(watch) = lock(&self.watches).get(mailbox) {
                watch.index().forget_version(id, seq);
            }
            return Ok(None);
        };
        let (wire, subject) = (self.wire.clone(), self.subjects.settled(mailbox, id));
        let (record, payload) = (last.record, last.payload);
        let put = self.call("keep a settled message", async move {
            wire.put(subject, 0, record, payload, NOTHING).await
        })?;
        match put.0 {
            PutOutcome::Done(_) => Ok(Some(self.now_millis())),
            PutOutcome::Stale => Ok(self.read_apart(mailbox, id)?.map(|copy| copy.at)),
        }
    }

    pub(super) fn read_apart(
        &self,
        mailbox: &Name,
        id: &MessageId,
    ) -> Result<Option<StoredVersion>> {
        let (wire, subject) = (self.wire.clone(), self.subjects.settled(mailbox, id));
        self.call("read a settled message", async move { wire.read(&subject).await })
    }

    /// The last version of a message, whether it is in its mailbox or apart.
    pub(super) fn read_anywhere(
        &self,
        mailbox: &Name,
        id: &MessageId,
    ) -> Result<Option<StoredVersion>> {
        match self.read(mailbox, id)? {
            None => self.read_apart(mailbox, id),
            found => Ok(found),
        }
    }

    /// Whether a message with this id may have been settled and set apart: not if the id was made just now.
    pub(super) fn may_be_apart(id: &MessageId) -> bool {
        let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
        id.unix_millis().is_none_or(|made| made.abs_diff(now) >= millis(STAY))
    }

    /// Whether a version that waits is an older one of a message that was settled and set apart.
    pub(super) fn is_risen(
        &self,
        (mailbox, id): (&Name, &MessageId),
        last: &StoredVersion,
    ) -> Result<bool> {
        let is_new =
            last.record.epoch == 0 && self.now_millis().saturating_sub(last.at) < millis(STAY);
        if is_new || !Self::may_be_apart(id) {
            return Ok(false);
        }
        match self.read_apart(mailbox, id) {
            // Credentials of one mailbox alone may not read the copies.
            Err(error) if is_denial(&error) => Ok(false),
            copy => Ok(copy?.is_some()),
        }
    }

    /// Removes the copies of a mailbox from before this time. Returns how many.
    pub(super) fn sweep_apart(&self, mailbox: &Name, oldest_kept: u64) -> Result<u64> {
        let (wire, pattern) = (self.wire.clone(), self.subjects.all_settled(mailbox));
        let start_time =
            OffsetDateTime::from_unix_timestamp_nanos(i128::from(oldest_kept) * 1_000_000)
                .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        self.call("remove settled messages", async move {
            let Some(last) = wire.last(&pattern).await? else { return Ok(0) };
            if super::server_time::millis(last.time) < oldest_kept {
                return wire.purge(&pattern, last.sequence).await;
            }
            // The copies are in the order of their times: all before the first one to keep go.
            let policy = DeliverPolicy::ByStartTime { start_time };
            let failed = |error| wire.unheard("remove settled messages", &pattern, error);
            let mut kept =
                PullConsumer::open(&wire, &pattern, policy, true).await.map_err(failed)?;
            kept.ask(1).await.map_err(failed)?;
            let first = kept.hear().await.map_err(failed)?;
            match first.and_then(|first| first.seq.checked_sub(1)) {
                Some(before) => wire.purge(&pattern, before).await,
                None => Ok(0),
            }
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
