//! A holder's actions on a message: settle, release, extend, dead-letter. Each replaces the version
//! under which the message is held, and is refused once that is no longer the last version.

use std::path::Path;
use std::time::Duration;

use super::record::{MessageRecord, MessageStage};
use super::{NatsTransport, StoredVersion, lock};
use ensemble_core::Result;
use ensemble_core::env::Lease;
use ensemble_core::event_log::types;
use ensemble_core::mail;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::lease_lost;

/// Most retries of a change because the lease was extended in the meantime.
const TRIES_MAX: usize = 8;

impl NatsTransport {
    pub fn settle(&self, lease: &Lease) -> Result<()> {
        self.change_if(
            lease,
            |last| self.may_settle(lease, &last.payload),
            |_| MessageStage::Settled,
        )?;
        self.forget(lease);
        mail::record_held(&*self.recorder, types::MESSAGE_SETTLED, lease);
        Ok(())
    }

    /// Returns a message to the queue, due after `delay`. After `attempts_max` deliveries it
    /// becomes a dead letter.
    pub fn release(&self, lease: &Lease, delay: Duration) -> Result<()> {
        self.give_back(lease, None, delay, "released")
    }

    /// Extends a lease to `duration` from now (at most a day).
    pub fn extend(&self, lease: &Lease, duration: Duration) -> Result<()> {
        let lease_seconds = mail::lease_seconds(duration)?;
        let stored = self.change(lease, |_| MessageStage::Held {
            holder: lease.holder.clone(),
            lease_seconds,
        })?;
        let key = (lease.mailbox.clone(), lease.id.clone());
        if let Some(known) = lock(&self.held).get_mut(&key) {
            *known = stored;
        }
        mail::record_extended(&*self.recorder, lease, lease_seconds);
        Ok(())
    }

    /// Makes a held message a dead letter, with a reason for people.
    pub fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()> {
        self.change(lease, |_| self.dead_place(reason, Some(&lease.holder)))?;
        self.forget(lease);
        self.record_lease_dead(lease, reason);
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
        let place = |record: &MessageRecord| {
            let attempts = record.epoch.saturating_sub(record.base);
            match mail::give_back(attempts, attempts_max, (delay, why), || self.now_millis()) {
                Ok(due) => MessageStage::Queued { due },
                Err(reason) => self.dead_place(&reason, Some(&lease.holder)),
            }
        };
        let stored = match only {
            None => self.change(lease, place)?,
            Some(seq) => self.change_at(lease, seq, place)?,
        };
        self.forget(lease);
        match &stored.record.place {
            MessageStage::Dead { reason, .. } => self.record_lease_dead(lease, reason),
            MessageStage::Queued { .. } | MessageStage::Held { .. } | MessageStage::Settled => {
                mail::record_released(&*self.recorder, lease, (delay, why));
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
                    .ok_or_else(|| lease_lost(lease, None))?,
            };
            if !last.record.is_under(lease) {
                self.forget(lease);
                return Err(lease_lost(lease, Some(&last.record.state())));
            }
            may(&last)?;
            let record = last.record.ended(place(&last.record), &lease.holder);
            if let Some(stored) = self.replace(&lease.mailbox, &lease.id, &last, record)? {
                return Ok(stored);
            }
        }
        Err(Self::lost(lease, "changed by another client repeatedly"))
    }

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
        let (reason, holder) = (mail::kept_reason(reason), holder.cloned());
        MessageStage::Dead { reason, at: self.now(), holder, told: false }
    }

    pub(super) fn record_lease_dead(&self, lease: &Lease, reason: &str) {
        let last = (Some(&lease.holder), lease.epoch);
        self.record_dead(&lease.mailbox, &lease.id, last, reason);
    }

    pub(super) fn record_dead(
        &self,
        mailbox: &Name,
        id: &MessageId,
        last: (Option<&Name>, u64),
        reason: &str,
    ) {
        let read = || {
            let dead = self.read(mailbox, id).ok()?.filter(|dead| dead.record.may_be_task)?;
            Envelope::decode(&dead.payload, Path::new(id.as_str())).ok()
        };
        mail::record_dead(&*self.recorder, (mailbox, id), last, reason, read);
    }
}
