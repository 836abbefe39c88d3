//! What is known of a message beside its content: the header `Ensemble` of the last version in its
//! subject, one line of JSON. What was published without one is queued and was never delivered.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::env::Lease;
use crate::message::{Name, Timestamp};
use crate::spool::State;

/// The header of the state.
pub(super) const HEADER: &str = "Ensemble";

/// Where a message is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum Place {
    /// S2. Not to be received before `due` (milliseconds since the Unix epoch); 0 for now.
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
    },
}

/// A message's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) place: Place,
    /// Deliveries so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) epoch: u64,
    /// The epoch from which attempts count, after a redrive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) base: u64,
    /// The envelope's priority, so that nobody must read the content to know the order.
    #[serde(default, skip_serializing_if = "is_zero_priority")]
    pub(super) priority: u8,
    /// When it was stored first, by the server's clock, in milliseconds since the Unix epoch;
    /// absent in the first version, whose own time it is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) since: u64,
    /// Who wrote this version, so that a writer that got no answer can tell whether it did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) op: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero_priority(priority: &u8) -> bool {
    *priority == 0
}

impl Record {
    /// A message that was never delivered.
    pub(super) fn fresh(priority: u8) -> Self {
        let place = Place::Queued { due: 0 };
        Self { place, epoch: 0, base: 0, priority, since: 0, op: String::new() }
    }

    /// The same message elsewhere on its way.
    pub(super) fn moved(&self, place: Place) -> Self {
        Self { place, op: String::new(), ..self.clone() }
    }

    /// From the headers of a message; one that cannot be read counts as none.
    pub(super) fn of(headers: Option<&HeaderMap>) -> Self {
        headers
            .and_then(|headers| headers.get(HEADER))
            .and_then(|header| serde_json::from_str(header.as_str()).ok())
            .unwrap_or_else(|| Self::fresh(0))
    }

    pub(super) fn to_header(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it is held under exactly this lease.
    pub(super) fn is_under(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch
            && matches!(&self.place, Place::Held { holder, .. } if *holder == lease.holder)
    }

    /// Where it is, for the error of a lease that is over.
    pub(super) fn phrase(&self) -> String {
        match &self.place {
            Place::Queued { .. } => "waiting to be received again".to_owned(),
            Place::Held { holder, .. } => format!("held by {holder} (epoch {})", self.epoch),
            Place::Settled => "settled".to_owned(),
            Place::Dead { .. } => "a dead letter".to_owned(),
        }
    }

    pub(super) fn state(&self) -> State {
        match &self.place {
            Place::Queued { due } => State::Queued { epoch: self.epoch, not_before: *due },
            Place::Held { holder, .. } => {
                State::Acked { holder: holder.clone(), epoch: self.epoch }
            }
            Place::Settled => State::Settled,
            Place::Dead { .. } => State::Dead,
        }
    }
}

/// A version of a message, as it lies in the stream.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Its number in the stream: what the next version is compared with.
    pub(super) seq: u64,
    pub(super) record: Record,
    pub(super) payload: Bytes,
    /// When it was stored, by the server's clock, in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

impl Stored {
    /// A version with the time of its first storing filled in.
    pub(super) fn new(seq: u64, mut record: Record, payload: Bytes, stored_millis: u64) -> Self {
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
    fn a_record_survives_its_header() {
        let holder = Name::new("worker-1").unwrap();
        let places = [
            Place::Queued { due: 7 },
            Place::Held { holder: holder.clone(), lease_seconds: 300 },
            Place::Settled,
            Place::Dead {
                reason: "malformed: „x“".to_owned(),
                at: Timestamp::from_unix_millis(1),
                holder: Some(holder),
            },
        ];
        for place in places {
            let record = Record { epoch: 3, base: 1, ..Record::fresh(5).moved(place) };
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, record.to_header().as_str());
            assert_eq!(Record::of(Some(&headers)), record);
        }
    }

    #[test]
    fn what_anybody_has_published_is_queued() {
        assert_eq!(Record::of(None), Record::fresh(0));
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "not json");
        assert_eq!(Record::of(Some(&headers)), Record::fresh(0));
    }
}
