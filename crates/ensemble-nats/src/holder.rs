//! A holder's actions on a message: settle, release, extend, dead-letter. Each replaces the version
//! under which the message is held, and is refused once that is no longer the last version.

use std::path::Path;
use std::time::Duration;

use super::record::{MessageRecord, MessageStage};
use super::{NatsTransport, StoredVersion, lock};
use ensemble_core::Result;
use ensemble_core::env::Lease;
use ensemble_core::event_log::types;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{LEASE_SECONDS_MAX, exhausted_reason, failed_task};

/// Most retries of a change because the lease was extended in the meantime.
const TRIES_MAX: usize = 8;
/// Longest reason that is kept, in characters.
const REASON_CHARACTERS_MAX: usize = 1000;

impl NatsTransport {
    /// Marks the message's work as done.
    ///
    /// # Errors
    /// [`ensemble_core::Error::LeaseLost`], [`GatedTask`](ensemble_core::requests::GatedTask), [`ensemble_core::Error::NoMailbox`] or
    /// [`ensemble_core::Error::Server`].
    pub fn settle(&self, lease: &Lease) -> Result<()> {
        self.change_if(
            lease,
            |last| self.may_settle(lease, &last.payload),
            |_| MessageStage::Settled,
        )?;
        self.forget(lease);
        self.record_event(types::MESSAGE_SETTLED, lease);
        Ok(())
    }

    /// Returns a message to the queue, due after `delay`. After `attempts_max` deliveries it
    /// becomes a dead letter.
    pub fn release(&self, lease: &Lease, delay: Duration) -> Result<()> {
        self.give_back(lease, None, delay, "released")
    }

    /// Extends a lease to `duration` from now (at most a day).
    pub fn extend(&self, lease: &Lease, duration: Duration) -> Result<()> {
        let seconds = duration.as_millis().div_ceil(1000).clamp(1, u128::from(LEASE_SECONDS_MAX));
        let lease_seconds = u64::try_from(seconds).unwrap_or(LEASE_SECONDS_MAX);
        let stored = self.change(lease, |_| MessageStage::Held {
            holder: lease.holder.clone(),
            lease_seconds,
        })?;
        let key = (lease.mailbox.clone(), lease.id.clone());
        if let Some(known) = lock(&self.held).get_mut(&key) {
            *known = stored;
        }
        let data = serde_json::json!({ "id": lease.id, "mailbox": lease.mailbox, "epoch": lease.epoch, "lease_seconds": lease_seconds });
        self.recorder.record(types::MESSAGE_EXTENDED, lease.holder.as_str(), data);
        Ok(())
    }

    /// Makes a held message a dead letter, with a reason for people.
    pub fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()> {
        self.change(lease, |_| self.dead_place(reason, Some(&lease.holder)))?;
        self.forget(lease);
        self.record_dead(&lease.mailbox, &lease.id, Some(&lease.holder), lease.epoch, reason);
        Ok(())
    }

    /// Returns a held message to the queue; with `only`, if the current version has this sequence.
    pub(super) fn give_back(
        &self,
        lease: &Lease,
        only: Option<u64>,
        delay: Duration,
        why: &str,
    ) -> Result<()> {
        let attempts_max = self.settings_of(&lease.mailbox)?.attempts_max;
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let due = if delay.is_zero() {
            0
        } else {
            u64::try_from(self.now().unix_millis()).unwrap_or(0).saturating_add(delay_ms)
        };
        let place = |record: &MessageRecord| {
            let attempts = record.epoch.saturating_sub(record.base);
            if attempts < attempts_max {
                return MessageStage::Queued { due };
            }
            self.dead_place(&exhausted_reason(why, attempts), Some(&lease.holder))
        };
        let stored = match only {
            None => self.change(lease, place)?,
            Some(seq) => self.change_at(lease, seq, place)?,
        };
        self.forget(lease);
        match &stored.record.place {
            MessageStage::Dead { reason, .. } => {
                let (id, holder) = (&lease.id, Some(&lease.holder));
                self.record_dead(&lease.mailbox, id, holder, lease.epoch, reason);
            }
            MessageStage::Queued { .. } | MessageStage::Held { .. } | MessageStage::Settled => {
                let data = serde_json::json!({ "id": lease.id, "mailbox": lease.mailbox, "epoch": lease.epoch, "why": why, "delay_ms": delay_ms });
                self.recorder.record(types::MESSAGE_RELEASED, lease.holder.as_str(), data);
            }
        }
        Ok(())
    }

    /// Replaces the version under which a message is held.
    fn change(
        &self,
        lease: &Lease,
        place: impl Fn(&MessageRecord) -> MessageStage,
    ) -> Result<StoredVersion> {
        self.change_if(lease, |_| Ok(()), place)
    }

    /// As [`NatsTransport::change`], unless a check refuses it.
    fn change_if(
        &self,
        lease: &Lease,
        may: impl Fn(&StoredVersion) -> Result<()>,
        place: impl Fn(&MessageRecord) -> MessageStage,
    ) -> Result<StoredVersion> {
        self.settings_of(&lease.mailbox)?;
        let key = (lease.mailbox.clone(), lease.id.clone());
        let mut known = lock(&self.held).get(&key).cloned();
        for _ in 0..TRIES_MAX {
            let last = match known.take().filter(|stored| stored.record.is_under(lease)) {
                Some(stored) => stored,
                None => self
                    .read_anywhere(&lease.mailbox, &lease.id)?
                    .ok_or_else(|| Self::lost(lease, "not in the mailbox"))?,
            };
            if !last.record.is_under(lease) {
                self.forget(lease);
                return Err(Self::lost(lease, last.record.phrase()));
            }
            may(&last)?;
            let record = last.record.ended(place(&last.record), &lease.holder);
            if let Some(stored) = self.replace(&lease.mailbox, &lease.id, &last, record)? {
                return Ok(stored);
            }
        }
        Err(Self::lost(lease, "changed by another client repeatedly"))
    }

    /// Replaces exactly this version.
    fn change_at(
        &self,
        lease: &Lease,
        seq: u64,
        place: impl Fn(&MessageRecord) -> MessageStage,
    ) -> Result<StoredVersion> {
        let last = self.read(&lease.mailbox, &lease.id)?;
        let Some(last) = last.filter(|last| last.seq == seq && last.record.is_under(lease)) else {
            return Err(Self::lost(lease, "not as it was observed"));
        };
        let record = last.record.ended(place(&last.record), &lease.holder);
        self.replace(&lease.mailbox, &lease.id, &last, record)?
            .ok_or_else(|| Self::lost(lease, "not as it was observed"))
    }

    fn forget(&self, lease: &Lease) {
        let key = (lease.mailbox.clone(), lease.id.clone());
        let mut held = lock(&self.held);
        if held.get(&key).is_some_and(|stored| stored.record.epoch <= lease.epoch) {
            held.remove(&key);
        }
    }

    pub(super) fn dead_place(&self, reason: &str, holder: Option<&Name>) -> MessageStage {
        let reason =
            reason.chars().filter(|c| !c.is_control()).take(REASON_CHARACTERS_MAX).collect();
        MessageStage::Dead { reason, at: self.now(), holder: holder.cloned(), told: false }
    }

    fn record_event(&self, kind: &str, lease: &Lease) {
        if self.recorder.is_recording() {
            let data = serde_json::json!({ "id": lease.id, "mailbox": lease.mailbox, "epoch": lease.epoch });
            self.recorder.record(kind, lease.holder.as_str(), data);
        }
    }

    pub(super) fn record_dead(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: Option<&Name>,
        epoch: u64,
        reason: &str,
    ) {
        let data =
            serde_json::json!({ "id": id, "mailbox": mailbox, "epoch": epoch, "reason": reason });
        let worker = holder.unwrap_or(mailbox);
        self.recorder.record(types::MESSAGE_DEAD, worker.as_str(), data);
        let dead = self.read(mailbox, id).ok().flatten().filter(|dead| dead.record.may_be_task);
        let envelope = dead.map(|dead| Envelope::decode(&dead.payload, Path::new(id.as_str())));
        let failed = envelope.and_then(Result::ok);
        if let Some(data) = failed.and_then(|envelope| failed_task(&envelope, worker, reason)) {
            self.recorder.record(types::TASK_FAILED, worker.as_str(), data);
        }
    }
}
