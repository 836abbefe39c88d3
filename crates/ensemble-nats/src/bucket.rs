//! The team's key-value bucket with its requests, its plan gates and the reports of its hosts. It is created at the
//! first write, and followed by clients that wait for answers or handle requests.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use tokio::sync::Notify;

use super::subject::{BucketKey, TeamSubjects};
use super::versions::PutOutcome;
use super::watch::{TeamNews, VersionListener};
use super::wire::Wire;
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::document::SharedFile;
use ensemble_core::message::Name;

/// Header with the meaning of a version without content, as `nats kv del` writes it.
const OPERATION: &str = "KV-Operation";

pub(super) type NamedFiles = Vec<(String, SharedFile)>;

/// The control files as they were last read, and the number of changes heard since the connection was made.
#[derive(Debug, Default)]
pub(super) struct ControlCache {
    heard: AtomicU64,
    read: Mutex<Option<(u64, NamedFiles)>>,
}

impl ControlCache {
    /// Forgets what was read, because it has changed.
    pub(super) fn forget(&self) {
        self.heard.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of changes so far. Taken before a read, so that a change during the read counts as not read.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }

    pub(super) fn known(&self) -> Option<NamedFiles> {
        let heard = self.heard();
        lock(&self.read).as_ref().filter(|(at, _)| *at == heard).map(|(_, files)| files.clone())
    }

    pub(super) fn remember(&self, heard: u64, files: NamedFiles) {
        *lock(&self.read) = Some((heard, files));
    }
}

/// Changes in the bucket that were received and not fetched yet.
pub(super) struct BucketChanges {
    changed: Mutex<BTreeSet<Name>>,
    gates: Mutex<HashSet<(Name, String)>>,
    demands: Mutex<HashSet<String>>,
    /// Hosts with new calls; and whether a host has published a new report.
    called: Mutex<BTreeSet<Name>>,
    hosts_changed: AtomicBool,
    shared_changed: AtomicBool,
    pub(super) control: ControlCache,
    news: Arc<TeamNews>,
    anew: Arc<Notify>,
}

impl BucketChanges {
    /// Whether a shared file has changed since the last call.
    pub(super) fn shared_changed(&self) -> bool {
        self.shared_changed.swap(false, Ordering::Relaxed)
    }
}

impl VersionListener for BucketChanges {
    fn hear(&self, message: &async_nats::Message, _seq: u64, _at_millis: u64) -> bool {
        match TeamSubjects::key_of(&message.subject) {
            Some(BucketKey::Request(id)) => {
                lock(&self.changed).insert(id);
            }
            Some(BucketKey::Gate(agent)) => {
                let gate = (agent, message.subject.to_string());
                if message.payload.is_empty() {
                    lock(&self.gates).remove(&gate);
                } else {
                    lock(&self.gates).insert(gate);
                }
            }
            Some(BucketKey::Demand) => {
                let subject = message.subject.to_string();
                let mut demands = lock(&self.demands);
                let _ = match message.payload.is_empty() {
                    true => demands.remove(&subject),
                    false => demands.insert(subject),
                };
            }
            // It is renewed all the time, and read when it is needed.
            Some(BucketKey::Claim) => return false,
            Some(BucketKey::Control) => {
                self.control.forget();
                self.shared_changed.store(true, Ordering::Relaxed);
            }
            Some(BucketKey::Board) => self.shared_changed.store(true, Ordering::Relaxed),
            Some(BucketKey::Host) => self.hosts_changed.store(true, Ordering::Relaxed),
            Some(BucketKey::Call(host)) if !message.payload.is_empty() => {
                lock(&self.called).insert(host);
            }
            Some(BucketKey::Call(_) | BucketKey::Answer) | None => {}
        }
        self.news.ring();
        true
    }

    fn signals(&self) -> (Arc<Notify>, Arc<TeamNews>) {
        (Arc::clone(&self.anew), Arc::clone(&self.news))
    }
}

impl NatsTransport {
    /// The changes in the bucket, if it is followed.
    pub(super) fn followed(&self) -> Option<Arc<BucketChanges>> {
        lock(&self.bucket_changes).clone()
    }

    /// Follows the requests from now on. [`NatsTransport::wait_for_news`] returns when one has
    /// changed, and [`NatsTransport::changed_requests`] returns which; at first, all.
    pub fn follow_requests(&self) -> Result<()> {
        if lock(&self.bucket_changes).is_some() {
            return Ok(());
        }
        let wire = self.bucket_for_writing()?;
        let pages = Arc::new(BucketChanges {
            changed: Mutex::default(),
            gates: Mutex::default(),
            demands: Mutex::default(),
            called: Mutex::default(),
            hosts_changed: AtomicBool::new(true),
            shared_changed: AtomicBool::new(true),
            control: ControlCache::default(),
            news: Arc::clone(&self.news),
            anew: Arc::default(),
        });
        self.follow(&pages, Arc::new(wire), self.subjects.bucket_all(), false);
        *lock(&self.bucket_changes) = Some(pages);
        Ok(())
    }

    pub fn changed_requests(&self) -> Vec<Name> {
        let pages = self.followed();
        pages.map_or_else(Vec::new, |pages| {
            std::mem::take(&mut *lock(&pages.changed)).into_iter().collect()
        })
    }

    /// Whether a host has published a report since the last call. Also true for the first call, and if the bucket is
    /// not followed.
    pub fn hosts_have_changed(&self) -> bool {
        let pages = self.followed();
        pages.is_none_or(|pages| pages.hosts_changed.swap(false, Ordering::Relaxed))
    }

    /// Whether something was asked of this host since the last call; always true if the requests are not followed.
    pub fn was_called(&self, host: &Name) -> bool {
        let pages = self.followed();
        pages.is_none_or(|pages| lock(&pages.called).remove(host))
    }

    /// Whether an agent may have plan gates, to this process's knowledge; always true if the requests are not
    /// followed.
    pub(super) fn may_have_gates(&self, agent: &Name) -> bool {
        let pages = self.followed();
        pages.is_none_or(|pages| {
            !lock(&pages.demands).is_empty() || lock(&pages.gates).iter().any(|(of, _)| of == agent)
        })
    }

    pub(super) fn bucket_for_writing(&self) -> Result<Wire> {
        self.bucket.for_writing(self, "open the bucket of the requests")
    }

    /// The last version of a key, also an empty one.
    pub(super) fn last_key(
        &self,
        operation: &'static str,
        subject: String,
    ) -> Result<Option<StreamMessage>> {
        let wire = self.bucket.wire();
        self.call(operation, async move { wire.last(&subject).await })
    }

    /// Writes a key whose last version has the sequence `expected`; 0 for none. Readers treat a key
    /// without content as missing.
    pub(super) fn write_key(
        &self,
        subject: String,
        expected: u64,
        content: impl Into<Bytes>,
    ) -> Result<PutOutcome> {
        self.write_noted(subject, expected, content, ("", ""))
    }

    /// As [`NatsTransport::write_key`], with one more header of the same version, unless it is empty.
    pub(super) fn write_noted(
        &self,
        subject: String,
        expected: u64,
        content: impl Into<Bytes>,
        (header, note): (&'static str, &str),
    ) -> Result<PutOutcome> {
        let (wire, content, note) = (self.bucket_for_writing()?, content.into(), note.to_owned());
        self.call("write a request", async move {
            let mut headers = wire.replacing(HeaderMap::new(), expected);
            if content.is_empty() {
                headers.insert(OPERATION, "DEL");
            }
            if !note.is_empty() {
                headers.insert(header, note.as_str());
            }
            wire.create(&subject, expected, content, headers).await
        })
    }
}
