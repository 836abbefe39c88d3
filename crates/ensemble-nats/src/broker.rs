//! Reading without taking, dead letters, and observation of leases.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::NatsTransport;
use super::denials::is_denial;
use super::index::IndexEntry;
use super::receive::no_message;
use super::record::{MessageRecord, MessageStage};
use super::subject::TeamSubjects;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::event_log::types;
use ensemble_core::leases::{LeaseTable, ObservedLease};
use ensemble_core::message::{Attachment, Envelope, MessageId, Name};
use ensemble_core::spool::{DeadLetter, FormerHolding, Found, Settings, State};
use ensemble_core::{Error, Result};

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
        match self.give_back(&observed.lease, only, Duration::ZERO, "lease over") {
            Ok(()) => Ok(true),
            Err(Error::LeaseLost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Broker for NatsTransport {
    fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        Self::add_mailbox(self, name, settings)
    }

    fn mailboxes(&self) -> Result<Vec<Name>> {
        Self::mailboxes(self)
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

    fn attach(&self, content: &[u8]) -> Result<Attachment> {
        self.attach_content(content)
    }

    fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>> {
        self.attached_content(attachment)
    }

    fn settings(&self, mailbox: &Name) -> Result<Settings> {
        self.settings_of(mailbox)
    }

    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>> {
        self.settings_of(mailbox)?;
        Ok(self.read_anywhere(mailbox, id)?.map(|stored| stored.record.state()))
    }

    fn receive_id(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        Self::receive_id(self, mailbox, id, holder)
    }

    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope> {
        self.settings_of(mailbox)?;
        let stored = self.read_anywhere(mailbox, id)?;
        let gone = || no_message(id, format!("in mailbox `{mailbox}`"));
        Envelope::decode(&stored.ok_or_else(gone)?.payload, Path::new(id.as_str()))
    }

    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>> {
        let mut found = self.current(mailbox)?.index().unfinished();
        found.truncate(limit);
        let found = found.into_iter().map(|(id, record)| (id, record.state()));
        Ok(found.map(|(id, state)| Found::new(mailbox.clone(), id, state)).collect())
    }

    fn count_due(&self, mailbox: &Name, limit: usize) -> Result<usize> {
        Ok(self.due_ids(mailbox, limit)?.len())
    }

    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>> {
        Self::due_ids_for(self, mailbox, agent, limit)
    }

    fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()> {
        Self::dead_letter(self, lease, reason)
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
        self.settings_of(mailbox)?;
        let place = || format!("among the dead letters of `{mailbox}`");
        let absent = || no_message(id, place());
        let last = self.read(mailbox, id)?.ok_or_else(absent)?;
        if !matches!(last.record.place, MessageStage::Dead { .. }) {
            return Err(absent());
        }
        let epoch = last.record.epoch;
        let record =
            MessageRecord { base: epoch, ..last.record.moved(MessageStage::Queued { due: 0 }) };
        self.replace(mailbox, id, &last, record)?.ok_or_else(absent)?;
        let data = serde_json::json!({ "id": id, "mailbox": mailbox, "epoch": epoch });
        self.recorder.record(types::MESSAGE_REDRIVEN, mailbox.as_str(), data);
        Ok(())
    }

    fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        self.settings_of(mailbox)?;
        let absent = || no_message(id, format!("among the dead letters of `{mailbox}`"));
        let last = self.read(mailbox, id)?.ok_or_else(absent)?;
        if !matches!(last.record.place, MessageStage::Dead { .. }) {
            return Err(absent());
        }
        self.remove(mailbox, id, last.seq)?;
        let data = serde_json::json!({ "id": id, "mailbox": mailbox });
        self.recorder.record(types::MESSAGE_DROPPED, mailbox.as_str(), data);
        Ok(())
    }

    fn restate_dead(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        Self::restate_dead(self, mailbox, id, reason)
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

    fn set_aside(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        self.give_up_waiting(mailbox, id, reason)
    }

    fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()> {
        Self::restore_delayed(self, envelope, due)
    }

    fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()> {
        Self::restore_dead(self, envelope, reason)
    }

    fn take_back(&self, lease: &Lease, reason: &str) -> Result<bool> {
        match self.give_back(lease, None, Duration::ZERO, reason) {
            Ok(()) => Ok(true),
            Err(Error::LeaseLost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
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
