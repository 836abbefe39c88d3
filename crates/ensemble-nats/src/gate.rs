//! Admission to a bounded mailbox: one record per mailbox, changed by compare-and-set.
//!
//! The record lists admitted messages that have not been seen in the mailbox yet. So two
//! simultaneous senders do not both get the last place. A sender that dies between admission and
//! storing is forgotten after a minute.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{NatsTransport, PutOutcome};
use ensemble_core::Result;
use ensemble_core::mail::refuse_full;
use ensemble_core::message::{Envelope, MessageId};

/// How long an admitted sender may take to store the message, in milliseconds.
const ENTERING_MILLIS_MAX: u64 = 60_000;
/// Most tries to change the record while other senders change it, too.
const TRIES_MAX: usize = 64;

#[derive(Debug, Default, Serialize, Deserialize)]
struct AdmissionRecord {
    entering: Vec<(MessageId, u64)>,
    refused: u64,
}

impl NatsTransport {
    pub(super) fn admit(&self, envelope: &Envelope, capacity: u64) -> Result<()> {
        let mailbox = &envelope.to;
        let subject = self.subjects.gate(mailbox);
        for _ in 0..TRIES_MAX {
            let (wire, asked) = (self.wire.clone(), subject.clone());
            let last =
                self.call("enter a bounded mailbox", async move { wire.last(&asked).await })?;
            let seq = last.as_ref().map_or(0, |message| message.sequence);
            let mut gate: AdmissionRecord = last
                .and_then(|message| serde_json::from_slice(&message.payload).ok())
                .unwrap_or_default();
            // Read the mailbox after the record: every earlier admission is in one of the two.
            let watch = self.current(mailbox)?;
            let now = self.now_millis();
            let index = watch.index();
            gate.entering.retain(|(id, at)| {
                index.get(id).is_none()
                    && *id != envelope.id
                    && now.saturating_sub(*at) < ENTERING_MILLIS_MAX
            });
            let waiting = index.waiting();
            drop(index);
            let is_full = waiting + gate.entering.len() as u64 >= capacity;
            if is_full {
                gate.refused += 1;
            } else {
                gate.entering.push((envelope.id.clone(), now));
            }
            let content = Bytes::from(serde_json::to_vec(&gate).unwrap_or_default());
            let (wire, asked) = (self.wire.clone(), subject.clone());
            let put = self.call("enter a bounded mailbox", async move {
                let headers = wire.replacing(HeaderMap::new(), seq);
                wire.compare_and_set(&asked, seq, headers, content).await
            })?;
            if is_full {
                return Err(refuse_full(&*self.recorder, envelope, capacity, gate.refused));
            }
            if matches!(put, Some(PutOutcome::Done(_))) {
                return Ok(());
            }
        }
        Err(self.wire.unreachable("enter a bounded mailbox", "too many senders at once"))
    }
}
