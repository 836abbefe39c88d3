//! Removes and restores messages with their states, for a move between queues.

use bytes::Bytes;

use super::record::{MessageRecord, MessageStage};
use super::{NatsTransport, StoredVersion};
use ensemble_core::Result;
use ensemble_core::mail::{kept_reason, no_letter, no_message};
use ensemble_core::message::{Envelope, MessageId, Name};

impl NatsTransport {
    /// As [`Broker::set_aside`](ensemble_core::broker::Broker::set_aside).
    pub(super) fn set_aside(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        let absent = || no_message(id, &format!("waiting in mailbox `{mailbox}`"));
        let last = self.read(mailbox, id)?.ok_or_else(absent)?;
        if !matches!(last.record.place, MessageStage::Queued { .. }) {
            return Err(absent());
        }
        let record = last.record.moved(self.dead_place(reason, None));
        let epoch = record.epoch;
        self.replace(mailbox, id, &last, record)?.ok_or_else(absent)?;
        self.record_dead(mailbox, id, (None, epoch), reason);
        Ok(())
    }

    /// As [`Broker::restore_delayed`](ensemble_core::broker::Broker::restore_delayed).
    pub(super) fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()> {
        self.restore(envelope, MessageStage::Queued { due })
    }

    /// As [`Broker::restore_dead`](ensemble_core::broker::Broker::restore_dead).
    pub(super) fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()> {
        self.restore(envelope, self.dead_place(reason, None))
    }

    pub(super) fn restate_dead(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        let last = self.dead_version(mailbox, id)?;
        let mut place = last.record.place.clone();
        if let MessageStage::Dead { reason: stated, .. } = &mut place {
            *stated = kept_reason(reason);
        }
        let replaced = self.replace(mailbox, id, &last, last.record.moved(place))?;
        replaced.map(drop).ok_or_else(|| no_letter(mailbox, id))
    }

    pub(super) fn dead_version(&self, mailbox: &Name, id: &MessageId) -> Result<StoredVersion> {
        self.settings_of(mailbox)?;
        let is_dead = |last: &StoredVersion| matches!(last.record.place, MessageStage::Dead { .. });
        let last = self.read(mailbox, id)?.filter(is_dead);
        last.ok_or_else(|| no_letter(mailbox, id))
    }

    /// Stores a message in this state, unless it was stored before. Other content under its id is an error.
    fn restore(&self, envelope: &Envelope, place: MessageStage) -> Result<()> {
        self.settings_of(&envelope.to)?;
        let payload = Bytes::from(envelope.encode()?);
        let record = MessageRecord::of_envelope(envelope).moved(place);
        if let Some(stored) = self.read_apart(&envelope.to, &envelope.id)? {
            return Self::stored_before(envelope, &stored).map(drop);
        }
        match self.put_first(envelope, &record, &payload)? {
            Ok(_) => Ok(()),
            Err(stored) => Self::stored_before(envelope, &stored).map(drop),
        }
    }
}
