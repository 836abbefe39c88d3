//! Reading without taking, dead letters, and observation of leases.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::NatsTransport;
use super::denials::is_denial;
use super::index::IndexEntry;
use super::record::{MessageRecord, MessageStage};
use super::subject::TeamSubjects;
use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::leases::{LeaseTable, ObservedLease};
use ensemble_core::mail::{
    LEASE_EXPIRED, no_letter, no_message, record_dropped, record_redriven, unless_lost,
};
use ensemble_core::message::{Attachment, Envelope, MessageId, Name};
use ensemble_core::spool::{DeadLetter, FormerHolding, Found, Settings, State};

impl LeaseTable for NatsTransport {
    /// The sequence of the version is the lease's sequence: every extension is a new version.
    fn observe(&self, mailbox: &Name) -> Result<Vec<ObservedLease>> {
        // A holder that is wrongly judged silent is protected: its expiry names an outdated
        // version.
        let watch = self.recent(mailbox)?;
        let index = watch.index();
        let mut observed: Vec<ObservedLease> = index
            .entries()
            .filter_map(|(id, entry)| {
                let MessageStage::Held { holder, lease_seconds } = &entry.record.place else {
                    return None;
                };
                let lease = Lease {
                    mailbox: mailbox.clone(),
                    id: id.clone(),
                    holder: holder.clone(),
                    epoch: entry.record.epoch,
                };
                let duration = Duration::from_secs(*lease_seconds);
                Some(ObservedLease::new(lease, entry.seq, duration))
            })
            .collect();
        observed.sort_unstable_by(|a, b| a.lease.id.cmp(&b.lease.id));
        Ok(observed)
    }

    fn expire(&self, observed: &ObservedLease) -> Result<bool> {
        let only = Some(observed.sequence);
        unless_lost(self.give_back(&observed.lease, only, Duration::ZERO, LEASE_EXPIRED))
    }
}

impl Broker for NatsTransport {
    ensemble_core::forward_calls! {
        add_mailbox(name: &Name, settings: &Settings) -> ();
        mailboxes() -> Vec<Name>;
        receive_id(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        receive_done(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        due_ids_for(mailbox: &Name, agent: &Name, limit: usize) -> Vec<MessageId>;
        dead_letter(lease: &Lease, reason: &str) -> ();
        restate_dead(mailbox: &Name, id: &MessageId, reason: &str) -> ();
        set_aside(mailbox: &Name, id: &MessageId, reason: &str) -> ();
        restore_delayed(envelope: &Envelope, due: u64) -> ();
        restore_dead(envelope: &Envelope, reason: &str) -> ();
        attach(content: &[u8]) -> Attachment;
        attached(attachment: &Attachment) -> Vec<u8>;
    }

    fn mailboxes_with(&self, id: &MessageId) -> Result<Vec<Name>> {
        let (wire, patterns) = (self.wire.clone(), self.subjects.with_id(id));
        let asked = self.call("find a message", async move {
            let mut subjects = wire.subjects(&patterns[0]).await?;
            subjects.extend(wire.subjects(&patterns[1]).await?);
            Ok(subjects)
        });
        match asked {
            Ok(subjects) => {
                let found = subjects.iter().filter_map(|subject| TeamSubjects::mailbox_in(subject));
                Ok(found.collect::<BTreeSet<Name>>().into_iter().collect())
            }
            // Credentials of some mailboxes may read no pattern of all.
            Err(error) if is_denial(&error) => Self::mailboxes(self),
            Err(error) => Err(error),
        }
    }

    fn mailbox_of(&self, agent: &Name) -> Name {
        self.addresses.as_ref().map_or_else(|| agent.clone(), |of| of(agent))
    }

    fn settings(&self, mailbox: &Name) -> Result<Settings> {
        self.settings_of(mailbox)
    }

    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>> {
        self.settings_of(mailbox)?;
        Ok(self.read_anywhere(mailbox, id)?.map(|stored| stored.record.state()))
    }

    fn attempts_before(&self, mailbox: &Name, id: &MessageId) -> Result<u64> {
        Ok(self.read(mailbox, id)?.map_or(0, |stored| stored.record.base))
    }

    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope> {
        self.settings_of(mailbox)?;
        let stored = self.read_anywhere(mailbox, id)?;
        let gone = || no_message(id, &format!("in mailbox `{mailbox}`"));
        Envelope::decode(&stored.ok_or_else(gone)?.payload, Path::new(id.as_str()))
    }

    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>> {
        let mut found = self.current(mailbox)?.index().unfinished(self.now_millis());
        found.truncate(limit);
        let found = found.into_iter().map(|(id, record)| (id, record.state()));
        Ok(found.map(|(id, state)| Found::new(mailbox.clone(), id, state)).collect())
    }

    fn count_due(&self, mailbox: &Name, limit: usize) -> Result<usize> {
        Ok(self.due_ids(mailbox, limit)?.len())
    }

    fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>> {
        let watch = self.current(mailbox)?;
        let mut letters: Vec<DeadLetter> = watch
            .index()
            .entries()
            .filter_map(|(id, entry)| letter(mailbox, id, &entry.record))
            .collect();
        letters.sort_unstable_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        Ok(letters)
    }

    fn redrive(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        let last = self.dead_version(mailbox, id)?;
        let epoch = last.record.epoch;
        // It was due long ago, which keeps one that was never delivered out of the line, too.
        let record =
            MessageRecord { base: epoch, ..last.record.moved(MessageStage::Queued { due: 1 }) };
        self.replace(mailbox, id, &last, record)?.ok_or_else(|| no_letter(mailbox, id))?;
        record_redriven(&*self.recorder, (mailbox, id), epoch);
        Ok(())
    }

    fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        let last = self.dead_version(mailbox, id)?;
        self.remove(mailbox, id, last.seq)?;
        record_dropped(&*self.recorder, (mailbox, id));
        Ok(())
    }

    fn note_told(&self, letter: &DeadLetter) -> Result<()> {
        let DeadLetter { mailbox, id, .. } = letter;
        let Some(last) = self.read(mailbox, id)? else { return Ok(()) };
        let MessageStage::Dead { reason, at, holder, .. } = last.record.place.clone() else {
            return Ok(());
        };
        // Another host may have noted it.
        let record = last.record.moved(MessageStage::Dead { reason, at, holder, told: true });
        self.replace(mailbox, id, &last, record).map(drop)
    }

    fn take_back(&self, lease: &Lease, reason: &str) -> Result<bool> {
        unless_lost(self.give_back(lease, None, Duration::ZERO, reason))
    }

    fn former_holders(&self, mailbox: &Name) -> Result<Vec<FormerHolding>> {
        let watch = self.current(mailbox)?;
        let index = watch.index();
        let former = |(id, entry): (&MessageId, &IndexEntry)| {
            let record = &entry.record;
            let epoch = match record.place {
                MessageStage::Queued { .. } => record.epoch,
                MessageStage::Held { .. } => record.epoch.saturating_sub(1),
                MessageStage::Settled | MessageStage::Dead { .. } => return None,
            };
            Some(FormerHolding::new(id.clone(), record.state(), record.last.clone()?, epoch))
        };
        Ok(index.entries().filter_map(former).collect())
    }
}

fn letter(mailbox: &Name, id: &MessageId, record: &MessageRecord) -> Option<DeadLetter> {
    let MessageStage::Dead { reason, at, holder, told } = &record.place else { return None };
    Some(DeadLetter {
        mailbox: mailbox.clone(),
        id: id.clone(),
        reason: reason.clone(),
        at: Some(*at),
        holder: holder.clone(),
        epoch: record.epoch,
        is_told: *told,
    })
}
