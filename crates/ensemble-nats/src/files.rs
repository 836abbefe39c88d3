//! Content that is too large for a message, in an object store of the team. It has NATS's own layout, so `nats object ls`
//! and `nats object get` read it, too.
//!
//! ```text
//! $O.ENSEMBLE_FILES_<team>.C.<upload>   the chunks of one upload, in order
//! $O.ENSEMBLE_FILES_<team>.M.<digest>   which upload has the content; its last version counts
//! ```
//!
//! | a process dies | what remains | who continues |
//! |---|---|---|
//! | between chunks | chunks that nothing names | a sweep removes them after a day; the sender uploads again |
//! | after the last chunk | the same | the same |
//! | before the chunks of a replaced upload are removed | the same | a sweep |
//!
//! Each chunk is a compare-and-set upon the one before it, so one that is sent twice is stored once. An upload is
//! named only when it is whole, and no upload changes afterwards. A reader whose upload is replaced in the meantime
//! begins again. Content that was uploaded within the last hour is not uploaded again. So a sweep, which takes what
//! is older than a day, never removes content that a sender has just found.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::NatsTransport;
use super::versions::{ListedVersion, PutOutcome};
use super::wire::{Wire, rolled_up};
use ensemble_core::broker::Broker as _;
use ensemble_core::message::{Attachment, Digest, MessageId};
use ensemble_core::requests::Requests;
use ensemble_core::spool::ATTACHMENT_BYTES_MAX;
use ensemble_core::{Error, Result};

/// As of NATS's own tools.
const CHUNK_BYTES: usize = 128 * 1024;
/// An upload that is younger is named again.
const NAMED_AGAIN: Duration = Duration::from_secs(60 * 60);
/// How long an upload is kept at least, and chunks that nothing names.
const KEPT_MIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The slowest connection over which content is read: its whole time limit grows by a second for this many bytes.
const BYTES_A_SECOND_MIN: u64 = 1024 * 1024;
/// Reads of one content, if its upload is replaced in the meantime.
const READS_MAX: usize = 8;

/// What NATS's object stores keep of an object.
#[derive(Debug, Serialize, Deserialize)]
struct StoredObject {
    name: String,
    bucket: String,
    nuid: String,
    size: u64,
    chunks: usize,
    digest: String,
    mtime: String,
    #[serde(default)]
    deleted: bool,
}

impl NatsTransport {
    pub(super) fn attach(&self, content: &[u8]) -> Result<Attachment> {
        let (bytes, limit) = (content.len() as u64, ATTACHMENT_BYTES_MAX as u64);
        if bytes > limit {
            return Err(Error::TooLarge { what: "the attachment".to_owned(), bytes, limit });
        }
        let attachment = Attachment { sha256: Digest::of(content), bytes };
        let last = self.object(&attachment)?;
        let is_recent = |(_, at): &(u64, u64)| age(self.now_millis(), *at) < NAMED_AGAIN;
        if last.as_ref().is_some_and(|(_, version)| is_recent(version)) {
            return Ok(attachment);
        }
        let (upload, last_chunk) = self.upload(content)?;
        let expected = last.as_ref().map_or(0, |(_, (seq, _))| *seq);
        match self.name_upload(&attachment, &upload, expected)? {
            PutOutcome::Done(_) => {
                if let Some((replaced, (seq, _))) = last {
                    self.purge_files(self.subjects.upload(&replaced.nuid), seq)?;
                }
            }
            // Another host was quicker; the content is the same.
            PutOutcome::Stale => self.purge_files(self.subjects.upload(&upload), last_chunk)?,
        }
        Ok(attachment)
    }

    pub(super) fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>> {
        let mut detail = "is missing on the servers";
        for _ in 0..READS_MAX {
            let Some((object, _)) = self.object(attachment)? else { break };
            let content = self.download(&object)?;
            if Digest::of(&content) == attachment.sha256 {
                return Ok(content);
            }
            detail = "on the servers is not what was stored";
        }
        Err(Error::malformed(attachment.sha256.to_string(), "attachment", detail))
    }

    /// Removes content that no open message and no open request names, and that is older than `keep` and a day.
    /// Returns the number of removed contents. Several hosts may sweep at the same time.
    ///
    /// # Errors
    /// [`Error::Server`]; what was removed stays removed.
    pub fn sweep_files(&self, keep: Duration) -> Result<u64> {
        let now = self.now_millis();
        let is_old = |found: &ListedVersion| age(now, found.at) > keep.max(KEPT_MIN);
        let uploads = self.list_files(self.subjects.all_uploads(), true)?;
        let named = self.list_files(self.subjects.all_objects(), false)?;
        let read =
            |found: &ListedVersion| serde_json::from_slice::<StoredObject>(&found.payload).ok();
        let objects: Vec<(ListedVersion, StoredObject)> =
            named.into_iter().filter_map(|found| read(&found).map(|it| (found, it))).collect();
        let known: BTreeSet<String> =
            objects.iter().map(|(_, it)| self.subjects.upload(&it.nuid)).collect();
        for upload in uploads.iter().filter(|it| is_old(it) && !known.contains(&it.subject)) {
            self.purge_files(upload.subject.clone(), upload.seq)?;
        }
        let old: Vec<_> = objects.into_iter().filter(|(found, _)| is_old(found)).collect();
        if old.is_empty() {
            return Ok(0);
        }
        let open = self.named_content()?;
        let mut removed = 0;
        for (found, object) in old.into_iter().filter(|(_, it)| !open.contains(&it.name)) {
            // A later upload of the same content has later numbers.
            self.purge_files(self.subjects.upload(&object.nuid), found.seq)?;
            self.purge_files(found.subject, found.seq)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The digests that open messages and open requests name.
    fn named_content(&self) -> Result<BTreeSet<String>> {
        let mut named = BTreeSet::new();
        for mailbox in self.mailboxes()? {
            let unfinished = self.unfinished(&mailbox, usize::MAX)?.into_iter().map(|it| it.id);
            let dead = self.dead_letters(&mailbox)?.into_iter().map(|it| it.id);
            for id in unfinished.chain(dead) {
                match self.peek(&mailbox, &id) {
                    Ok(envelope) => named.extend(envelope.attachment.map(digest)),
                    Err(Error::NoMessage { .. } | Error::Malformed { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let (requests, _) = Requests::new(self).list()?;
        let open = requests.into_iter().filter(|it| !it.is_closed);
        named.extend(open.filter_map(|it| it.request.attachment.map(digest)));
        Ok(named)
    }

    /// The current version of an object, with its sequence and time.
    fn object(&self, attachment: &Attachment) -> Result<Option<(StoredObject, (u64, u64))>> {
        let subject = self.subjects.object(&digest(attachment.clone()));
        let wire = self.files.wire();
        let last = self.call("read a content's place", async move { wire.last(&subject).await })?;
        Ok(last.and_then(|last| {
            let object: StoredObject = serde_json::from_slice(&last.payload).ok()?;
            let version = (last.sequence, super::server_time::millis(last.time));
            (!object.deleted).then_some((object, version))
        }))
    }

    /// Stores the chunks, and returns the name of the upload with the sequence of its last chunk.
    fn upload(&self, content: &[u8]) -> Result<(String, u64)> {
        let upload = MessageId::generate().to_string();
        let subject = self.subjects.upload(&upload);
        let wire = self.files_for_writing()?;
        let mut last = 0;
        for chunk in content.chunks(CHUNK_BYTES) {
            let (wire, subject, chunk) =
                (wire.clone(), subject.clone(), Bytes::copy_from_slice(chunk));
            let put = self.call("store content", async move {
                wire.create(&subject, last, chunk, HeaderMap::new()).await
            })?;
            let PutOutcome::Done(seq) = put else {
                return Err(self
                    .wire
                    .refused("store content", "its upload was removed in between"));
            };
            last = seq;
            // Each chunk has the whole time limit.
            self.wire.patience.renew();
        }
        Ok((upload, last))
    }

    fn name_upload(
        &self,
        attachment: &Attachment,
        upload: &str,
        expected: u64,
    ) -> Result<PutOutcome> {
        let name = digest(attachment.clone());
        let subject = self.subjects.object(&name);
        let chunks = usize::try_from(attachment.bytes).unwrap_or(usize::MAX).div_ceil(CHUNK_BYTES);
        let object = StoredObject {
            digest: format!("SHA-256={}", URL_SAFE.encode(bytes_of(&name))),
            name,
            bucket: self.subjects.files(),
            nuid: upload.to_owned(),
            size: attachment.bytes,
            chunks,
            mtime: self.now().to_string(),
            deleted: false,
        };
        let payload = serde_json::to_vec(&object)
            .map_err(|error| self.wire.refused("store content", error))?
            .into();
        let wire = self.files_for_writing()?;
        self.call("store content", async move {
            let headers = rolled_up(HeaderMap::new());
            wire.create(&subject, expected, payload, headers).await
        })
    }

    fn download(&self, object: &StoredObject) -> Result<Vec<u8>> {
        if object.size > ATTACHMENT_BYTES_MAX as u64 {
            return Ok(Vec::new());
        }
        let more = Duration::from_secs(object.size / BYTES_A_SECOND_MIN);
        let (wire, subject) = (self.files.wire(), self.subjects.upload(&object.nuid));
        let chunks = self.call_for(more, "read content", async move {
            let deadline = wire.patience.deadline() + more;
            wire.list_until(deadline, &subject, DeliverPolicy::All, false).await
        })?;
        self.wire.patience.renew();
        Ok(chunks.iter().map(|chunk| &*chunk.payload).collect::<Vec<&[u8]>>().concat())
    }

    fn purge_files(&self, subject: String, seq: u64) -> Result<()> {
        let wire = self.files.wire();
        self.call("remove content", async move { wire.purge(&subject, seq).await }).map(drop)
    }

    fn list_files(&self, pattern: String, headers_only: bool) -> Result<Vec<ListedVersion>> {
        let wire = self.files.wire();
        self.call("list content", async move {
            let deadline = wire.patience.deadline();
            wire.list_until(deadline, &pattern, DeliverPolicy::LastPerSubject, headers_only).await
        })
    }

    fn files_for_writing(&self) -> Result<Wire> {
        self.files.for_writing(self, "open the object store")
    }
}

fn digest(attachment: Attachment) -> String {
    attachment.sha256.to_string()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let pair = |at: usize| digits.get(at..at + 2).and_then(|it| u8::from_str_radix(it, 16).ok());
    (0..digits.len()).step_by(2).filter_map(pair).collect()
}

const fn age(now: u64, at: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(at))
}
