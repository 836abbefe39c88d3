//! Removes and restores messages with their states, for a move between queues.

use bytes::Bytes;

use super::NatsTransport;
use super::receive::no_message;
use super::record::{Place, Record};
use super::wire::NOTHING;
use ensemble_core::Result;
use ensemble_core::message::{Envelope, MessageId, Name};

impl NatsTransport {
    /// As [`Broker::set_aside`](ensemble_core::broker::Broker::set_aside).
    pub(super) fn give_up_waiting(
        &self,
        mailbox: &Name,
        id: &MessageId,
        reason: &str,
    ) -> Result<()> {
        let absent = || no_message(id, format!("waiting in mailbox `{mailbox}`"));
        let last = self.read(mailbox, id)?.ok_or_else(absent)?;
        if !matches!(last.record.place, Place::Queued { .. }) {
            return Err(absent());
        }
        let record = last.record.moved(self.dead_place(reason, None));
        let epoch = record.epoch;
        self.replace(mailbox, id, &last, record)?.ok_or_else(absent)?;
        self.record_dead(mailbox, id, None, epoch, reason);
        Ok(())
    }

    /// As [`Broker::restore_delayed`](ensemble_core::broker::Broker::restore_delayed).
    pub(super) fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()> {
        self.restore(envelope, Place::Queued { due })
    }

    /// As [`Broker::restore_dead`](ensemble_core::broker::Broker::restore_dead).
    pub(super) fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()> {
        self.restore(envelope, self.dead_place(reason, None))
    }

    /// Stores a message in this state, if its id was not stored before.
    fn restore(&self, envelope: &Envelope, place: Place) -> Result<()> {
        self.settings_of(&envelope.to)?;
        let payload = Bytes::from(envelope.encode()?);
        let (wire, subject) =
            (self.wire.clone(), self.subjects.message(&envelope.to, &envelope.id));
        let record = Record::of_envelope(envelope).moved(place);
        let stored = async move { wire.put(subject, 0, record, payload, NOTHING).await };
        self.call("store a message", stored)?;
        Ok(())
    }
}
