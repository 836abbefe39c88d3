//! Who is let into a bounded mailbox: one record per mailbox, changed by compare-and-set.
//!
//! The record lists who was let in but has not been seen in the mailbox yet, so that two senders
//! that come at the same time do not both get the last place. A sender that died between being let
//! in and storing its message is forgotten after a minute.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{NatsTransport, Put};
use crate::message::{Envelope, MessageId};
use crate::{Error, Result};

/// How long somebody who was let in may take to store the message, in milliseconds.
const ENTERING_MILLIS_MAX: u64 = 60_000;
/// How often a change of the record is tried while others change it too.
const TRIES_MAX: usize = 64;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Gate {
    entering: Vec<(MessageId, u64)>,
    /// How many were refused since the mailbox exists.
    refused: u64,
}

impl NatsTransport {
    /// Lets a message in, or refuses it.
    pub(super) fn admit(&self, envelope: &Envelope, capacity: u64) -> Result<()> {
        let mailbox = &envelope.to;
        let subject = self.subjects.gate(mailbox);
        for _ in 0..TRIES_MAX {
            let (wire, asked) = (self.wire.clone(), subject.clone());
            let last =
                self.call("pass the gate of a mailbox", async move { wire.last(&asked).await })?;
            let seq = last.as_ref().map_or(0, |message| message.sequence);
            let mut gate: Gate = last
                .and_then(|message| serde_json::from_slice(&message.payload).ok())
                .unwrap_or_default();
            // After the record was read: whoever was let in before is in it or in the mailbox.
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
            let put = self.call("pass the gate of a mailbox", async move {
                wire.compare_and_set(&asked, seq, HeaderMap::new(), content).await
            })?;
            if is_full {
                let data = serde_json::json!({ "mailbox": mailbox, "id": envelope.id, "capacity": capacity, "refused": gate.refused });
                self.recorder.record("mailbox.full", envelope.from.as_str(), data);
                return Err(Error::Full { mailbox: mailbox.to_string(), capacity });
            }
            if matches!(put, Some(Put::Done(_))) {
                return Ok(());
            }
        }
        Err(self.wire.unreachable("pass the gate of a mailbox", "too many senders at once"))
    }
}
