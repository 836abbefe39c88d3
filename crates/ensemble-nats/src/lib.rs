//! Mailboxes on a NATS server with JetStream: the transport for a team on several machines.
//!
//! ```text
//!   publish          receive (= ack)         settle
//! ---------> queued ----------------> held ----------> settled
//!              ^   release, lease over |  \ dead-letter
//!              +-----------------------+   +---------> dead --redrive--> queued
//! ```
//!
//! A message is one subject of a stream. The last version in that subject is the message with its state. Every change
//! of state is one publish that names the sequence of the version it replaces. This compare-and-set takes the place
//! of a rename in a directory. Of many competing clients one succeeds. A holder whose lease has ended names a version
//! that is no longer the last one. There is no second place that could disagree. `docs/protocol/servers.md` specifies
//! the subjects and keys, and `docs/guides/hosts.md` says what each failure does.
//!
//! A crash of a client leaves the current version; its leases expire. With a silent server every
//! call ends within [`NatsOptions::patience`] with [`Error::Server`]; no call waits forever.
//! Observers measure leases on their own clocks, as for a directory. Delays, expiry dates and
//! retention use the server's time, so a wrong clock of a host changes nothing.
#![forbid(unsafe_code)]

mod answer;
mod apart;
mod api;
mod broker;
mod bucket;
mod change_notifier;
mod clock;
mod connect;
mod connect_fault;
mod consumer;
mod denials;
mod files;
mod gate;
mod gates;
mod handed_in;
mod holder;
mod hosts;
mod index;
mod ladders;
mod lazy_stream;
mod options;
mod patience;
mod publish;
mod publish_rules;
mod quota;
mod receive;
mod record;
mod registry;
mod request_store;
mod reserve;
mod restore;
mod runtime;
mod server_time;
mod shared_files;
mod shipping;
mod stream_probe;
mod stream_state;
mod subject;
mod sweep;
mod team;
mod versions;
mod watch;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_core::env::{Clock, Counts, Delivery, Lease, PublishOutcome, Transport};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{AgentAddresses, Quota, Settings, Standstill};
use ensemble_core::{Error, Result};

pub use hosts::{HostCall, HostNews, SILENCE_MAX};
pub use ladders::{ClaimReason, LadderClaims};
pub use options::{NatsOptions, PATIENCE_DEFAULT};
pub use shipping::ShippedLine;

use bucket::BucketChanges;
use handed_in::HandedIn;
use lazy_stream::LazyStream;
use record::{MessageRecord, StoredVersion};
use runtime::Runtime;
use subject::TeamSubjects;
use team::{MailboxWatches, OpenMailboxes, TeamFollower};
use versions::{NOTHING, PutOutcome};
use watch::{MailboxWatch, TeamNews};
use wire::Wire;

const SETTINGS_AGE_MAX: Duration = Duration::from_secs(10);

/// A connection to a team's mailboxes on a NATS server. Share it between threads by reference. It
/// owns a private runtime and one thread, which drives the runtime between calls. Dropping the
/// connection ends both.
pub struct NatsTransport {
    runtime: Runtime,
    wire: Arc<Wire>,
    /// Requests and plan gates.
    bucket: LazyStream,
    bucket_changes: Mutex<Option<Arc<BucketChanges>>>,
    files: LazyStream,
    subjects: TeamSubjects,
    /// The embedder's clock; without one, the server's time counts.
    clock: Option<Arc<dyn Clock + Send + Sync>>,
    recorder: Arc<dyn Recorder>,
    standstill: Option<Arc<dyn Standstill>>,
    addresses: Option<AgentAddresses>,
    connections: tokio::sync::watch::Receiver<u64>,
    watches: MailboxWatches,
    team: Mutex<Option<Arc<TeamFollower>>>,
    handed_in: Mutex<Option<Arc<HandedIn>>>,
    /// Mailboxes that these credentials may follow; `None` if they may follow the whole team.
    open: Mutex<Option<OpenMailboxes>>,
    news: Arc<TeamNews>,
    settings: Mutex<HashMap<Name, (Settings, Instant)>>,
    /// All mailboxes, and the sequence of the last one that was added.
    names: Mutex<Option<(u64, Vec<Name>)>>,
    has_log: AtomicBool,
    quota: Option<Quota>,
    /// How many messages a mailbox can accept before the quota is checked again.
    room: Mutex<HashMap<Name, u64>>,
    /// When settled messages were copied, in milliseconds since the Unix epoch.
    copied: Mutex<HashMap<(Name, MessageId), u64>>,
    /// Messages that this connection has received, so that settling needs no read first.
    held: Mutex<HashMap<(Name, MessageId), StoredVersion>>,
}

impl fmt::Debug for NatsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsTransport").field("server", &self.wire.server).finish_non_exhaustive()
    }
}

impl NatsTransport {
    pub fn is_connected(&self) -> bool {
        self.wire.client.connection_state() == async_nats::connection::State::Connected
    }

    /// The configured server address, without secrets.
    pub fn server(&self) -> &str {
        &self.wire.server
    }

    /// The version of the server that this connection has reached, such as `2.12.1`.
    ///
    /// # Errors
    /// It does not note what it removes: once such a server is killed, settled work may be handed out again.
    pub fn server_version(&self) -> Result<String> {
        let version = self.wire.client.server_info().version;
        if wire::notes_removals(&version) {
            return Ok(version);
        }
        let detail = format!(
            "nats-server {version} is too old, because one before 2.10 that is killed may hand out settled work again"
        );
        Err(self.wire.refused("work", detail))
    }

    /// Runs a call in the runtime. The call's own patience ends it; this limit only guards against
    /// a task that does not return.
    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.call_for(Duration::ZERO, operation, call)
    }

    /// As [`NatsTransport::call`], with so much more time.
    fn call_for<T: Send + 'static>(
        &self,
        more: Duration,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let limit = self.wire.patience.left() + wire::ANSWER_PATIENCE + more;
        self.runtime
            .run(limit, call)
            .unwrap_or_else(|| Err(self.wire.unreachable(operation, "no answer in time")))
    }

    /// The index of a mailbox, which is followed from now on.
    fn watch(&self, mailbox: &Name) -> Result<Arc<MailboxWatch>> {
        self.settings_of(mailbox)?;
        let team = lock(&self.team).clone();
        let mut watches = lock(&self.watches);
        if let Some(watch) = watches.get(mailbox) {
            return Ok(Arc::clone(watch));
        }
        if let Some(team) = team {
            drop(watches);
            let watch = team.watch(mailbox);
            self.catch_up(mailbox, &watch)?;
            return Ok(watch);
        }
        let watch = Arc::new(MailboxWatch::new(Arc::clone(&self.news), Arc::default()));
        self.follow(&watch, Arc::clone(&self.wire), self.subjects.messages(mailbox), false);
        watches.insert(mailbox.clone(), Arc::clone(&watch));
        drop(watches);
        self.catch_up(mailbox, &watch)?;
        Ok(watch)
    }

    /// Returns once the index contains everything that was stored before this call.
    fn catch_up(&self, mailbox: &Name, watch: &MailboxWatch) -> Result<()> {
        let _haste = self.news.haste();
        let pattern = self.subjects.messages(mailbox);
        let asked_at = Instant::now();
        let head = self.head("read a mailbox's state", pattern.clone())?;
        if watch.index().seen_seq >= head {
            return Ok(());
        }
        let _waiting = self.runtime.waiting();
        let denied = || self.wire.denial_of_consumers(&pattern);
        let (left, round_trip) = (self.wire.patience.left(), asked_at.elapsed());
        if watch.catch_up(head, left, round_trip, || denied().is_some()) {
            return Ok(());
        }
        Err(match denied() {
            Some(denied) => self.wire.refused("follow a mailbox", denied),
            None => self.wire.unreachable("follow a mailbox", "its updates did not come in time"),
        })
    }

    /// The last sequence in the subjects of a pattern; 0 if there is none.
    fn head(&self, operation: &'static str, pattern: String) -> Result<u64> {
        let wire = self.wire.clone();
        self.call(operation, async move {
            Ok(wire.last(&pattern).await?.map_or(0, |message| message.sequence))
        })
    }

    /// An index that contains everything that was stored before this call.
    fn current(&self, mailbox: &Name) -> Result<Arc<MailboxWatch>> {
        let is_new = !lock(&self.watches).contains_key(mailbox);
        let watch = self.watch(mailbox)?;
        if !is_new {
            self.catch_up(mailbox, &watch)?;
        }
        Ok(watch)
    }

    fn read(&self, mailbox: &Name, id: &MessageId) -> Result<Option<StoredVersion>> {
        let (wire, subject) = (self.wire.clone(), self.subjects.message(mailbox, id));
        self.call("read a message", async move { wire.read(&subject).await })
    }

    /// Replaces the last version of a message; `None` if another version came before.
    fn replace(
        &self,
        mailbox: &Name,
        id: &MessageId,
        last: &StoredVersion,
        record: MessageRecord,
    ) -> Result<Option<StoredVersion>> {
        self.replace_while(mailbox, id, last, record, NOTHING)
    }

    /// As [`NatsTransport::replace`], and runs a function until the server has answered.
    fn replace_while(
        &self,
        mailbox: &Name,
        id: &MessageId,
        last: &StoredVersion,
        record: MessageRecord,
        meanwhile: Option<impl FnOnce() + Send + 'static>,
    ) -> Result<Option<StoredVersion>> {
        let (wire, subject) = (self.wire.clone(), self.subjects.message(mailbox, id));
        let (expected, payload) = (last.seq, last.payload.clone());
        let content = payload.clone();
        let (put, record) = self.call("store a message", async move {
            wire.put(subject, expected, record, payload, meanwhile).await
        })?;
        let PutOutcome::Done(seq) = put else { return Ok(None) };
        let stored = StoredVersion { seq, record, payload: content, at: self.now_millis() };
        if let Some(watch) = lock(&self.watches).get(mailbox) {
            watch.index().apply_own(id.clone(), &stored);
            watch.note_changed();
        }
        Ok(Some(stored))
    }

    fn lost(lease: &Lease, now: impl Into<String>) -> Error {
        Error::LeaseLost { lease: lease.to_string(), now: now.into() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport for NatsTransport {
    ensemble_core::forward_calls! {
        publish(envelope: &Envelope) -> PublishOutcome;
        receive(mailbox: &Name, holder: &Name) -> Option<Delivery>;
        settle(lease: &Lease) -> ();
        release(lease: &Lease, delay: Duration) -> ();
        extend(lease: &Lease, duration: Duration) -> ();
    }

    fn scan(&self, mailbox: &Name) -> Result<Counts> {
        Ok(self.current(mailbox)?.index().counts(self.now_millis()))
    }
}
