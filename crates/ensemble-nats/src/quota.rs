//! How much one sender may leave unread in one mailbox, as in a directory.
//!
//! While a mailbox has few messages in all, one request shows that no sender has too many. Otherwise the mailbox's
//! records are read, which name their senders. The quota is back-pressure and not an invariant: senders that publish
//! at the same time may exceed it by a few messages.

use std::path::Path;

use async_nats::jetstream::consumer::DeliverPolicy;

use super::consumer::PullConsumer;
use super::record::MessageStage;
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::mail::{SenderUsage, attached_bytes};
use ensemble_core::message::{Envelope, Name};

impl NatsTransport {
    pub(super) fn check_quota(&self, envelope: &Envelope) -> Result<()> {
        let Some(quota) = self.quota.as_ref().filter(|q| !q.exempt.contains(&envelope.from)) else {
            return Ok(());
        };
        if attached_bytes(envelope) == 0 && self.has_room(&envelope.to, quota.messages)? {
            return Ok(());
        }
        let (mut used, sender) = (SenderUsage::default(), &envelope.from);
        let watch = self.current(&envelope.to)?;
        for (id, entry) in watch.index().entries() {
            let waits = matches!(entry.record.place, MessageStage::Queued { .. });
            if waits && entry.record.from.as_ref() == Some(sender) {
                match &entry.payload {
                    Some(content) => {
                        let read = Envelope::decode(content, Path::new(id.as_str()));
                        used.count_message(content, read, sender);
                    }
                    None => used.messages += 1,
                }
            }
        }
        quota.check(used, envelope, &*self.recorder)
    }

    /// Whether the mailbox has so few messages that no sender can have too many.
    fn has_room(&self, mailbox: &Name, messages_max: u64) -> Result<bool> {
        if let Some(room) = lock(&self.room).get_mut(mailbox)
            && *room > 0
        {
            *room -= 1;
            return Ok(true);
        }
        let (wire, pattern) = (self.wire.clone(), self.subjects.messages(mailbox));
        let count = self.call("count the messages of a mailbox", async move {
            let last = DeliverPolicy::LastPerSubject;
            let opened = PullConsumer::open(&wire, &pattern, last, true).await;
            let failed = |error| wire.unheard("count the messages of a mailbox", &pattern, error);
            Ok(opened.map_err(failed)?.pending())
        })?;
        let room = messages_max.saturating_sub(count);
        lock(&self.room).insert(mailbox.clone(), room.saturating_sub(1));
        Ok(room > 0)
    }
}
