//! Keeps the index of a mailbox up to date: a task in the runtime follows the mailbox's subjects.
//!
//! It begins with the last version of every message and then gets each new one. When the connection
//! comes back, the consumer fails, or a reader that waits hears nothing for [`SILENCE`] (a consumer
//! may be lost with the leader of its cluster, and nobody says so), it begins anew; versions that are
//! known already change nothing.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

use super::index::Index;
use super::record::{Record, Stored};
use super::subject::Subjects;
use super::wire::{ANSWER_PATIENCE, Wire, millis};

/// Between two tries to follow a mailbox.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// After so long without any news, a reader that knows of some has the mailbox followed anew.
const SILENCE: Duration = Duration::from_secs(2);

/// Counts what has changed in all mailboxes that are followed.
#[derive(Debug, Default)]
pub(super) struct News {
    count: Mutex<u64>,
    changed: Condvar,
}

impl News {
    fn ring(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits for a change after number `seen`; returns the number of the last one.
    pub(super) fn wait(&self, seen: u64, patience: Duration) -> u64 {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, patience, |count| *count == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The index of a mailbox, shared with the task that follows it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    index: Mutex<Index>,
    changed: Condvar,
    news: Arc<News>,
    anew: Arc<Notify>,
}

impl Watch {
    pub(super) fn new(news: Arc<News>) -> Self {
        Self { news, ..Self::default() }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the index satisfies `condition`; `false` once `patience` is over.
    pub(super) fn wait_until(
        &self,
        patience: Duration,
        mut condition: impl FnMut(&Index) -> bool,
    ) -> bool {
        let deadline = Instant::now() + patience;
        let mut index = self.index();
        while !condition(&index) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            index =
                self.changed.wait_timeout(index, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits until everything up to number `head` is known; `false` once `patience` is over.
    pub(super) fn catch_up(&self, head: u64, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut heard = self.index().heard;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.wait_until(left.min(SILENCE), |index| index.seen_seq >= head) {
                return true;
            }
            if left <= SILENCE {
                return false;
            }
            let now = self.index().heard;
            if now == heard {
                self.anew.notify_one();
            }
            heard = now;
        }
    }

    pub(super) fn note_changed(&self) {
        self.changed.notify_all();
        self.news.ring();
    }
}

/// What the task needs.
pub(super) struct Following {
    pub(super) wire: Wire,
    pub(super) pattern: String,
    /// Counts the connections that were made.
    pub(super) connections: Receiver<u64>,
}

/// Follows a mailbox for as long as somebody has its index.
pub(super) async fn follow(mut following: Following, watch: std::sync::Weak<Watch>) {
    while watch.strong_count() > 0 {
        following.connections.mark_unchanged();
        if follow_once(&mut following, &watch).await.is_none() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Until the connection is a new one (`Some`) or something failed (`None`).
async fn follow_once(following: &mut Following, watch: &std::sync::Weak<Watch>) -> Option<()> {
    let Following { wire, pattern, connections } = following;
    let config = wire.ordered(pattern);
    let following = async { wire.stream.create_consumer(config).await.ok()?.messages().await.ok() };
    let mut messages = tokio::time::timeout(ANSWER_PATIENCE, following).await.ok()??;
    let anew = Arc::clone(&watch.upgrade()?.anew);
    loop {
        let message = tokio::select! {
            message = messages.next() => message?.ok()?,
            changed = connections.changed() => return changed.ok(),
            () = anew.notified() => return Some(()),
        };
        let info = message.info().ok()?;
        let seq = info.stream_sequence;
        let watch = watch.upgrade()?;
        let mut index = watch.index();
        // What was written over this connection is known already, and need not be read again.
        let id = Subjects::id_in(&message.subject).filter(|id| index.is_news(id, seq));
        if let Some(id) = id {
            let record = Record::of(message.headers.as_ref());
            let content = message.payload.clone();
            index.apply(id, Stored::new(seq, record, content, millis(info.published)));
        }
        index.seen_seq = index.seen_seq.max(seq);
        index.heard += 1;
        drop(index);
        watch.note_changed();
    }
}
