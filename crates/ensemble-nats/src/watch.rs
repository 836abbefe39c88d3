//! Keeps the index of a mailbox up to date: a task in the runtime follows the mailbox's subjects.
//!
//! The task starts with the last version of every message and then gets each new one. It starts
//! again after a reconnect, after a failure of the consumer, or when a waiting reader hears nothing
//! for [`SILENCE`]. (A consumer may be lost without notice with the leader of its cluster.) Known
//! versions change nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::DeliverPolicy;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

use super::change_notifier::ChangeNotifier;
use super::consumer::{DeliveredVersion, PullConsumer};
use super::index::MailboxIndex;
use super::record::{MessageRecord, StoredVersion};
use super::stream_probe::ProbeOutcome;
use super::subject::TeamSubjects;
use super::wire::Wire;
use super::{NatsTransport, lock};

const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The same after a denial, which only an administrator can end.
const DENIED_INTERVAL: Duration = Duration::from_secs(10);
/// After this silence, a reader that expects updates restarts the follower.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// The first silence is shorter: the consumer of a new follower may be on a server that is behind its cluster.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// The first silence lasts for this many round trips, on a slow network.
const SILENCE_ROUND_TRIPS: u32 = 8;
/// Pause after each pull in which updates accumulate, unless a caller waits for them. A working
/// connection mostly receives its own changes, and all changes of the pause come in one batch.
const GATHERING: Duration = Duration::from_millis(4);
/// Longest pause; the pause doubles while only the connection's own changes arrive.
const GATHERING_MAX: Duration = Duration::from_millis(64);
/// After a race was lost to another client, there is no pause for this long.
const RIVALRY: Duration = Duration::from_secs(1);
const CLOSE_BATCH: u64 = 128;

/// Header with the size of a content that is not sent.
const SIZE: &str = "Nats-Msg-Size";

/// Counts the changes in all followed mailboxes.
#[derive(Debug, Default)]
pub(super) struct TeamNews {
    count: Mutex<u64>,
    changed: ChangeNotifier,
    haste: tokio::sync::watch::Sender<usize>,
}

/// A caller that waits for updates, until this is dropped.
pub(super) struct HasteGuard<'a>(&'a TeamNews);

impl Drop for HasteGuard<'_> {
    fn drop(&mut self) {
        self.0.haste.send_modify(|hasty| *hasty -= 1);
    }
}

impl TeamNews {
    /// A guard that a caller holds while it waits for updates, so that there is no pause.
    pub(super) fn haste(&self) -> HasteGuard<'_> {
        self.haste.send_modify(|hasty| *hasty += 1);
        HasteGuard(self)
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
pub(super) struct MailboxWatch {
    index: Mutex<MailboxIndex>,
    changed: ChangeNotifier,
    news: Arc<TeamNews>,
    anew: Arc<Notify>,
    /// When a race for one of its messages was last lost.
    rival_at: Mutex<Option<Instant>>,
}

impl MailboxWatch {
    /// Notifying `anew` restarts the follower from the beginning.
    pub(super) fn new(news: Arc<TeamNews>, anew: Arc<Notify>) -> Self {
        Self { news, anew, ..Self::default() }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, MailboxIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the index satisfies `condition`; `false` once `patience` has passed.
    pub(super) fn wait_until(
        &self,
        patience: Duration,
        condition: impl Fn(&MailboxIndex) -> bool,
    ) -> bool {
        self.changed.wait_until(self.index(), patience, condition).1
    }

    /// Waits until everything up to sequence `head` is known; `false` once `patience` has passed.
    /// It ends early once following is denied. To learn of `head` has taken `round_trip`.
    pub(super) fn catch_up(
        &self,
        head: u64,
        patience: Duration,
        round_trip: Duration,
        is_denied: impl Fn() -> bool,
    ) -> bool {
        let deadline = Instant::now() + patience;
        let mut heard = self.index().heard;
        let mut silence = (round_trip * SILENCE_ROUND_TRIPS).clamp(SILENCE_MIN, SILENCE);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.wait_until(left.min(silence), |index| index.seen_seq >= head) {
                return true;
            }
            if left <= silence || is_denied() {
                return false;
            }
            silence = SILENCE.min(silence * 2);
            let now = self.index().heard;
            if now == heard {
                self.anew.notify_one();
            }
            heard = now;
        }
    }

    /// Records that another client takes messages from the same mailbox.
    pub(super) fn note_rival(&self) {
        *lock(&self.rival_at) = Some(Instant::now());
    }

    pub(super) fn note_changed(&self) {
        self.changed.ring();
        self.news.ring();
    }
}

struct FollowInputs {
    wire: Arc<Wire>,
    pattern: String,
    is_headers_only: bool,
    connections: Receiver<u64>,
}

pub(super) trait VersionListener: Send + Sync {
    /// Takes a version, new or old. Versions come in order, and again after a restart. Returns
    /// whether the version was new.
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool;

    /// Notified to restart from the beginning, and what is rung at news.
    fn signals(&self) -> (Arc<Notify>, Arc<TeamNews>);

    fn is_close(&self) -> bool {
        false
    }
}

impl VersionListener for MailboxWatch {
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool {
        let mut index = self.index();
        // Versions that this connection wrote are already known, and need not be parsed again.
        let id = TeamSubjects::id_in(&message.subject).filter(|id| index.is_news(id, seq));
        let is_news = id.is_some();
        if let Some(id) = id {
            let headers = message.headers.as_ref();
            let record = MessageRecord::of(headers);
            let is_bare = headers.is_some_and(|headers| headers.get(SIZE).is_some());
            let content = (!is_bare).then(|| message.payload.clone());
            index.apply(id, StoredVersion::new(seq, record, (), at_millis), content);
        }
        index.seen_seq = index.seen_seq.max(seq);
        index.heard += 1;
        drop(index);
        self.note_changed();
        is_news
    }

    fn signals(&self) -> (Arc<Notify>, Arc<TeamNews>) {
        (Arc::clone(&self.anew), Arc::clone(&self.news))
    }

    fn is_close(&self) -> bool {
        lock(&self.rival_at).is_some_and(|at| at.elapsed() < RIVALRY)
    }
}

impl NatsTransport {
    /// Follows the subjects of a pattern as long as the listener exists.
    pub(super) fn follow<H: VersionListener + 'static>(
        &self,
        listener: &Arc<H>,
        wire: Arc<Wire>,
        pattern: String,
        is_headers_only: bool,
    ) {
        let connections = self.connections.clone();
        let inputs = FollowInputs { wire, pattern, is_headers_only, connections };
        self.runtime.spawn(follow(inputs, Arc::downgrade(listener)));
    }
}

async fn follow<H: VersionListener>(mut following: FollowInputs, hearer: std::sync::Weak<H>) {
    while hearer.strong_count() > 0 {
        following.connections.mark_unchanged();
        if follow_once(&mut following, &hearer).await.is_none() {
            let is_denied = following.wire.denial_of_consumers(&following.pattern).is_some();
            tokio::time::sleep(if is_denied { DENIED_INTERVAL } else { RETRY_INTERVAL }).await;
        }
    }
}

/// Follows until there is a new connection (`Some`) or a failure (`None`).
async fn follow_once<H: VersionListener>(
    following: &mut FollowInputs,
    hearer: &std::sync::Weak<H>,
) -> Option<()> {
    let FollowInputs { wire, pattern, is_headers_only, connections } = following;
    if wire.reach().await != ProbeOutcome::Open {
        return None;
    }
    let last = DeliverPolicy::LastPerSubject;
    let mut consumer = PullConsumer::open(wire, pattern, last, *is_headers_only).await.ok()?;
    let (anew, mut haste) = {
        let (anew, news) = hearer.upgrade()?.signals();
        (anew, news.haste.subscribe())
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
            let Some(DeliveredVersion { message, seq, at }) = told else { break };
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
