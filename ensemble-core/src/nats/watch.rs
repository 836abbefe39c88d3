//! Keeps the index of a mailbox up to date: a task in the runtime follows the mailbox's subjects.
//!
//! It begins with the last version of every message and then gets each new one. When the connection
//! comes back, the consumer fails, or a reader that waits hears nothing for [`SILENCE`] (a consumer
//! may be lost with the leader of its cluster, and nobody says so), it begins anew; versions that are
//! known already change nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::DeliverPolicy;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

use super::bell::Bell;
use super::consumer::{Consumer, Told};
use super::door::Reached;
use super::index::Index;
use super::lock;
use super::record::{Record, Stored};
use super::subject::Subjects;
use super::wire::Wire;

/// Between two tries to follow a mailbox.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// After so long without any news, a reader that knows of some has the mailbox followed anew.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// News gather for so long after a question before the next one is asked, unless somebody waits for them. A
/// connection that works hears mostly of itself: of all that it does in this time it is told at once.
const GATHERING: Duration = Duration::from_millis(4);
/// As long as it has heard of nothing else, twice as long each time, up to this.
const GATHERING_MAX: Duration = Duration::from_millis(64);
/// For so long after a race was lost to somebody else, nothing is left to gather.
const RIVALRY: Duration = Duration::from_secs(1);
/// How many are asked for at a time where nothing is left to gather.
const CLOSE_BATCH: u64 = 128;

/// In the place of a content that is not told.
const SIZE: &str = "Nats-Msg-Size";

/// Counts what has changed in all mailboxes that are followed.
#[derive(Debug, Default)]
pub(super) struct News {
    count: Mutex<u64>,
    changed: Bell,
    /// How many wait for what is not told yet.
    haste: tokio::sync::watch::Sender<usize>,
}

/// Somebody waits for what is not told yet; ends when dropped.
pub(super) struct Haste<'a>(&'a News);

impl Drop for Haste<'_> {
    fn drop(&mut self) {
        self.0.haste.send_modify(|hasty| *hasty -= 1);
    }
}

impl News {
    /// To be held by whoever waits for news, so that they are not left to gather.
    pub(super) fn haste(&self) -> Haste<'_> {
        self.haste.send_modify(|hasty| *hasty += 1);
        Haste(self)
    }

    pub(super) fn ring(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.ring();
    }

    /// Waits for a change after number `seen`; returns the number of the last one.
    pub(super) fn wait(&self, seen: u64, patience: Duration) -> u64 {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_until(count, patience, |count| *count != seen).0
    }
}

/// The index of a mailbox, shared with the task that follows it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    index: Mutex<Index>,
    changed: Bell,
    news: Arc<News>,
    anew: Arc<Notify>,
    /// When a race for one of its messages was lost last.
    rival_at: Mutex<Option<Instant>>,
}

impl Watch {
    /// `anew` is rung to have everything told anew.
    pub(super) fn new(news: Arc<News>, anew: Arc<Notify>) -> Self {
        Self { news, anew, ..Self::default() }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the index satisfies `condition`; `false` once `patience` is over.
    pub(super) fn wait_until(
        &self,
        patience: Duration,
        condition: impl Fn(&Index) -> bool,
    ) -> bool {
        self.changed.wait_until(self.index(), patience, condition).1
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

    /// Somebody else takes messages from the same mailbox.
    pub(super) fn note_rival(&self) {
        *lock(&self.rival_at) = Some(Instant::now());
    }

    pub(super) fn note_changed(&self) {
        self.changed.ring();
        self.news.ring();
    }
}

/// What the task needs.
pub(super) struct Following {
    pub(super) wire: Arc<Wire>,
    pub(super) pattern: String,
    /// Contents are not told.
    pub(super) is_headers_only: bool,
    /// Counts the connections that were made.
    pub(super) connections: Receiver<u64>,
}

/// Who takes what a consumer tells.
pub(super) trait Hearer: Send + Sync {
    /// A version that is new, or was there before; versions come in order, and again when it is
    /// followed anew. Returns whether it was not known yet.
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool;

    /// Rung to have everything told anew.
    fn anew(&self) -> Arc<Notify>;

    fn news(&self) -> Arc<News>;

    /// Whether nothing is to be left to gather.
    fn is_close(&self) -> bool {
        false
    }
}

impl Hearer for Watch {
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool {
        let mut index = self.index();
        // What was written over this connection is known already, and need not be read again.
        let id = Subjects::id_in(&message.subject).filter(|id| index.is_news(id, seq));
        let is_news = id.is_some();
        if let Some(id) = id {
            let headers = message.headers.as_ref();
            let record = Record::of(headers);
            let is_bare = headers.is_some_and(|headers| headers.get(SIZE).is_some());
            let content = (!is_bare).then(|| message.payload.clone());
            index.apply(id, Stored::new(seq, record, (), at_millis), content);
        }
        index.seen_seq = index.seen_seq.max(seq);
        index.heard += 1;
        drop(index);
        self.note_changed();
        is_news
    }

    fn anew(&self) -> Arc<Notify> {
        Arc::clone(&self.anew)
    }

    fn news(&self) -> Arc<News> {
        Arc::clone(&self.news)
    }

    fn is_close(&self) -> bool {
        lock(&self.rival_at).is_some_and(|at| at.elapsed() < RIVALRY)
    }
}

/// Follows subjects for as long as somebody hears.
pub(super) async fn follow<H: Hearer>(mut following: Following, hearer: std::sync::Weak<H>) {
    while hearer.strong_count() > 0 {
        following.connections.mark_unchanged();
        if follow_once(&mut following, &hearer).await.is_none() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Until the connection is a new one (`Some`) or something failed (`None`).
async fn follow_once<H: Hearer>(
    following: &mut Following,
    hearer: &std::sync::Weak<H>,
) -> Option<()> {
    let Following { wire, pattern, is_headers_only, connections } = following;
    if wire.reach().await != Reached::Open {
        return None;
    }
    let last = DeliverPolicy::LastPerSubject;
    let mut consumer = Consumer::open(wire, pattern, last, *is_headers_only).await.ok()?;
    let (anew, mut haste) = {
        let hearer = hearer.upgrade()?;
        (hearer.anew(), hearer.news().haste.subscribe())
    };
    let mut gathering = GATHERING;
    loop {
        let (asked_at, is_close) = (tokio::time::Instant::now(), hearer.upgrade()?.is_close());
        consumer.ask(if is_close { CLOSE_BATCH } else { 1 }).await.ok()?;
        let mut is_news = false;
        loop {
            let told = tokio::select! {
                told = consumer.hear() => told.ok()?,
                changed = connections.changed() => return changed.ok(),
                () = anew.notified() => return Some(()),
            };
            let Some(Told { message, seq, at }) = told else { break };
            is_news |= hearer.upgrade()?.hear(&message, seq, at);
        }
        gathering = if is_news { GATHERING } else { GATHERING_MAX.min(gathering * 2) };
        if is_close || consumer.pending() >= CLOSE_BATCH {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until(asked_at + gathering) => {}
            hurried = haste.wait_for(|hasty| *hasty > 0) => drop(hurried.ok()?),
            changed = connections.changed() => return changed.ok(),
            () = anew.notified() => return Some(()),
        }
    }
}
