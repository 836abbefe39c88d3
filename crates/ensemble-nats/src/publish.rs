//! Publish: stores the first version of a message, only if its subject has none.

use std::path::Path;

use bytes::Bytes;

use super::denials::is_denial;
use super::record::{MessageRecord, MessageStage};
use super::versions::NOTHING;
use super::{NatsTransport, PutOutcome, StoredVersion, lock};
use ensemble_core::Result;
use ensemble_core::env::PublishOutcome;
use ensemble_core::mail;
use ensemble_core::message::Envelope;

/// Most restarts of a publish when the version that it met was gone at the next read.
const TRIES_MAX: usize = 8;

impl NatsTransport {
    /// Stores a message for `envelope.to`: one compare-and-set, so an id is stored once. Credentials that may not
    /// write to the mailbox hand the message in, and a watcher that may stores it.
    ///
    /// # Errors
    /// `Error::NoMailbox`, `Error::Full`, `Error::Conflict`, `Error::TooLarge` or
    /// `Error::Server`. After an error, publishing the same envelope again is safe.
    pub fn publish(&self, envelope: &Envelope) -> Result<PublishOutcome> {
        match self.store(envelope) {
            Err(denied) if is_denial(&denied) => self.hand_in(envelope),
            stored => stored,
        }
    }

    pub(super) fn store(&self, envelope: &Envelope) -> Result<PublishOutcome> {
        let settings = self.settings_of(&envelope.to)?;
        let payload = Bytes::from(envelope.encode()?);
        let record = MessageRecord::of_envelope(envelope);
        if self.quota.is_some() {
            // The same message again is no more than before.
            if Self::may_be_apart(&envelope.id)
                && let Some(stored) = self.read(&envelope.to, &envelope.id)?
            {
                return Self::stored_before(envelope, &stored);
            }
            self.check_quota(envelope)?;
        }
        if let Some(capacity) = settings.capacity {
            if let Some(stored) = self.read(&envelope.to, &envelope.id)? {
                return Self::stored_before(envelope, &stored);
            }
            self.admit(envelope, capacity)?;
        }
        if Self::may_be_apart(&envelope.id)
            && let Some(stored) = self.read_apart(&envelope.to, &envelope.id)?
        {
            return Self::stored_before(envelope, &stored);
        }
        let (seq, written) = match self.put_first(envelope, &record, &payload)? {
            Ok(put) => put,
            Err(stored) => return Self::stored_before(envelope, &stored),
        };
        let stored = StoredVersion::new(seq, written, payload, self.now_millis());
        if let Some(watch) = lock(&self.watches).get(&envelope.to) {
            watch.index().apply_own(envelope.id.clone(), &stored);
            watch.note_changed();
        }
        mail::record_stored(&*self.recorder, envelope);
        Ok(PublishOutcome::Stored)
    }

    /// Writes the first version of a message, and returns it; `Err` is one that was stored before.
    pub(super) fn put_first(
        &self,
        envelope: &Envelope,
        record: &MessageRecord,
        payload: &Bytes,
    ) -> Result<std::result::Result<(u64, MessageRecord), StoredVersion>> {
        for _ in 0..TRIES_MAX {
            let (wire, content) = (self.wire.clone(), payload.clone());
            let (subject, fresh) =
                (self.subjects.message(&envelope.to, &envelope.id), record.clone());
            let (put, written) = self.call("store a message", async move {
                wire.put(subject, 0, fresh, content, NOTHING).await
            })?;
            if let PutOutcome::Done(seq) = put {
                return Ok(Ok((seq, written)));
            }
            if let Some(stored) = self.read(&envelope.to, &envelope.id)? {
                return Ok(Err(stored));
            }
        }
        let detail = "its version appears and disappears: another client removes it";
        Err(self.wire.refused("store a message", detail))
    }

    pub(super) fn stored_before(
        envelope: &Envelope,
        stored: &StoredVersion,
    ) -> Result<PublishOutcome> {
        let read = Envelope::decode(&stored.payload, Path::new(envelope.id.as_str()));
        mail::stored_before(envelope, read, stored.record.place == MessageStage::Settled)
    }
}
