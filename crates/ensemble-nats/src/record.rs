//! State of a message: the header `Ensemble` of the last version in its subject, one line of JSON.
//! A version without that header is queued and was never delivered.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use ensemble_core::env::Lease;
use ensemble_core::message::{Envelope, Name, TASK_TYPE, Timestamp};
use ensemble_core::spool::State;

pub(super) const HEADER: &str = "Ensemble";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum MessageStage {
    /// S2. Not due before `due` (milliseconds since the Unix epoch); 0 for now.
    Queued {
        #[serde(default, skip_serializing_if = "is_zero")]
        due: u64,
    },
    /// S3.
    Held { holder: Name, lease_seconds: u64 },
    /// S4.
    Settled,
    /// S5.
    Dead {
        reason: String,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Name>,
        #[serde(default, skip_serializing_if = "is_false")]
        told: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageRecord {
    #[serde(flatten)]
    pub(super) place: MessageStage,
    /// Number of deliveries so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) epoch: u64,
    /// Epoch from which attempts count, after a redrive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) base: u64,
    /// The envelope's priority, so that the order is known without reading the content.
    #[serde(default, skip_serializing_if = "is_zero_priority")]
    pub(super) priority: u8,
    /// Whether it may be a task, so that a watcher need not read the content of others.
    #[serde(default, rename = "task", skip_serializing_if = "is_false")]
    pub(super) may_be_task: bool,
    /// The sender, so that what it has unread can be counted without reading the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Name>,
    /// When it was first stored, by the server's clock, in milliseconds since the Unix epoch.
    /// Absent in the first version, whose own time it is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) since: u64,
    /// Holder of the last delivery that ended without a settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<Name>,
    /// Random id of the write, by which a writer without an answer recognizes its own version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) op: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero_priority(priority: &u8) -> bool {
    *priority == 0
}

impl MessageRecord {
    pub(super) fn fresh(priority: u8) -> Self {
        let (place, op) = (MessageStage::Queued { due: 0 }, String::new());
        let (epoch, base, since, last, from) = (0, 0, 0, None, None);
        Self { place, epoch, base, priority, may_be_task: false, from, since, last, op }
    }

    /// The first state of this message.
    pub(super) fn of_envelope(envelope: &Envelope) -> Self {
        let may_be_task = envelope.kind.as_str() == TASK_TYPE;
        let from = Some(envelope.from.clone());
        Self { may_be_task, from, ..Self::fresh(envelope.priority) }
    }

    fn bare() -> Self {
        Self { may_be_task: true, ..Self::fresh(0) }
    }

    pub(super) fn moved(&self, place: MessageStage) -> Self {
        Self { place, op: String::new(), ..self.clone() }
    }

    /// The same message after a delivery to `holder` that has ended, unless it is settled.
    pub(super) fn ended(&self, place: MessageStage, holder: &Name) -> Self {
        let mut record = self.moved(place);
        if matches!(record.place, MessageStage::Queued { .. }) {
            record.last = Some(holder.clone());
        }
        record
    }

    /// Reads the state from a message's headers; an invalid one counts as missing.
    pub(super) fn of(headers: Option<&HeaderMap>) -> Self {
        headers
            .and_then(|headers| headers.get(HEADER))
            .and_then(|header| serde_json::from_str(header.as_str()).ok())
            .unwrap_or_else(Self::bare)
    }

    pub(super) fn to_header(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the message is held under exactly this lease.
    pub(super) fn is_under(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch
            && matches!(&self.place, MessageStage::Held { holder, .. } if *holder == lease.holder)
    }

    pub(super) fn state(&self) -> State {
        match &self.place {
            MessageStage::Queued { due } => State::Queued { epoch: self.epoch, not_before: *due },
            MessageStage::Held { holder, .. } => {
                State::Acked { holder: holder.clone(), epoch: self.epoch }
            }
            MessageStage::Settled => State::Settled,
            MessageStage::Dead { .. } => State::Dead,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StoredVersion<C = Bytes> {
    /// Its sequence in the stream, with which the next version is compared.
    pub(super) seq: u64,
    pub(super) record: MessageRecord,
    pub(super) payload: C,
    /// When it was stored, by the server's clock, in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

impl<C> StoredVersion<C> {
    /// A version with the time of its first storing filled in.
    pub(super) fn new(seq: u64, mut record: MessageRecord, payload: C, stored_millis: u64) -> Self {
        if record.since == 0 {
            record.since = stored_millis;
        }
        Self { seq, record, payload, at: stored_millis }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_through_its_header() {
        let holder = Name::new("worker-1").unwrap();
        let places = [
            MessageStage::Queued { due: 7 },
            MessageStage::Held { holder: holder.clone(), lease_seconds: 300 },
            MessageStage::Settled,
            MessageStage::Dead {
                reason: "malformed: „x“".to_owned(),
                at: Timestamp::from_unix_millis(1),
                holder: Some(holder),
                told: true,
            },
        ];
        for place in places {
            let record =
                MessageRecord { epoch: 3, base: 1, ..MessageRecord::fresh(5).moved(place) };
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, record.to_header().as_str());
            assert_eq!(MessageRecord::of(Some(&headers)), record);
        }
    }

    #[test]
    fn message_without_a_header_is_queued() {
        assert_eq!(MessageRecord::of(None), MessageRecord::bare());
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "not json");
        assert_eq!(MessageRecord::of(Some(&headers)), MessageRecord::bare());
    }
}
