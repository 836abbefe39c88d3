//! Follows the servers that have the mailboxes, on a thread of its own, so that a server that does not
//! answer holds up nobody.
//!
//! | each round | what is done |
//! |---|---|
//! | connect, if there is no connection | the loop is told, and the log |
//! | outbox, and what landed in the queue's directory | carried to the servers, stored once by id |
//! | mailboxes of this host's agents | what waits is told to the loop, which nudges the panes |
//! | every 30 s: leases | those of silent holders are taken back |
//! | every hour: settled messages | those older than `done_days` are removed |
//!
//! A host runs one watcher, so one such thread, and nudges only panes of its own. Several watchers that
//! look at the same leases harm nobody: one of them takes a message back, the others come too late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use ensemble_core::bridge::{Bridge, Unknown};
use ensemble_core::broker::Broker as _;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::nats::{NatsOptions, NatsTransport, Outbox};
use ensemble_core::spool::{Settings, Spool};
use ensemble_core::{Error, Result};
use serde_json::json;

use crate::couriers::COUNT_MAX;
use crate::engine::{Told, Wake};
use crate::leases::Leases;
use crate::panes;
use crate::project::Project;
use crate::run::ACTOR;

/// How long a round waits for news before it looks again.
const ROUND: Duration = Duration::from_millis(250);
/// Before the next try to connect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// How often the names of the mailboxes are compared.
const NAMES_INTERVAL: Duration = Duration::from_secs(5);
/// How often settled messages past their time are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Who holds messages on their way from the directory to the servers.
const HOLDER: &str = "bridge";

/// The thread's own things.
pub(crate) struct Follower {
    project: Project,
    options: NatsOptions,
    spool: Arc<Spool>,
    outbox: Outbox,
    recorder: Arc<dyn Recorder>,
    wakes: Sender<Wake>,
    /// Ends when its other side is dropped.
    stop: Receiver<()>,
    leases: Leases,
    next_lease_look: Monotonic,
    next_names: Monotonic,
    next_sweep: Monotonic,
    told: BTreeMap<Name, Vec<MessageId>>,
    condition: serde_json::Value,
}

impl Follower {
    /// For a project whose mailboxes are on servers; `None` for others.
    pub(crate) fn new(
        project: &Project,
        spool: Arc<Spool>,
        recorder: Arc<dyn Recorder>,
        wakes: Sender<Wake>,
        stop: Receiver<()>,
    ) -> Result<Option<Self>> {
        let Some(mut options) = project.nats_options()? else { return Ok(None) };
        options.recorder = Arc::clone(&recorder);
        let now = SystemClock.monotonic();
        Ok(Some(Self {
            outbox: project.open_outbox()?,
            leases: Leases::open(now, &project.state.join("servers")),
            project: project.clone(),
            options,
            spool,
            recorder,
            wakes,
            stop,
            next_lease_look: now,
            next_names: now,
            next_sweep: now,
            told: BTreeMap::new(),
            condition: serde_json::Value::Null,
        }))
    }

    /// Runs until the watcher has ended.
    pub(crate) fn run(mut self) {
        let mut was_connected = None;
        loop {
            match NatsTransport::connect(&self.options) {
                Ok(queue) => {
                    self.recorder.record(
                        "watch.server_back",
                        ACTOR,
                        json!({ "server": queue.server() }),
                    );
                    was_connected = Some(true);
                    if self.follow(&queue) {
                        return;
                    }
                }
                Err(error) => {
                    if was_connected != Some(false) {
                        self.note_gone(&error);
                    }
                    was_connected = Some(false);
                    self.tell_condition(false, Some(&error));
                }
            }
            if self.stop.recv_timeout(RECONNECT_DELAY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Rounds over one connection, which comes back by itself. `true` once the watcher has ended.
    fn follow(&mut self, queue: &NatsTransport) -> bool {
        let (mut seen, mut is_well) = (0, true);
        loop {
            match self.round(queue) {
                Ok(()) => {
                    if !is_well {
                        let data = json!({ "server": queue.server() });
                        self.recorder.record("watch.server_back", ACTOR, data);
                    }
                    is_well = true;
                    self.tell_condition(true, None);
                }
                Err(error) => {
                    if is_well {
                        self.note_gone(&error);
                    }
                    is_well = false;
                    self.tell_condition(queue.is_connected(), Some(&error));
                }
            }
            seen = queue.wait_for_news(seen, ROUND);
            match self.stop.try_recv() {
                Err(crossbeam_channel::TryRecvError::Empty) => {}
                Ok(()) | Err(crossbeam_channel::TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn round(&mut self, queue: &NatsTransport) -> Result<()> {
        let now = SystemClock.monotonic();
        if self.outbox.waiting()? > 0 {
            let carried = self.outbox.drain(queue)?;
            self.note_carried("outbox", carried.carried, carried.buried);
        }
        if now >= self.next_names {
            self.next_names = now + NAMES_INTERVAL;
            self.compare_names(queue)?;
        }
        self.carry(queue)?;
        let (entries, _) = panes::read_all(&self.project.panes())?;
        for entry in entries {
            let ids = match queue.due_ids(&entry.mailbox, COUNT_MAX) {
                Err(Error::NoMailbox { .. }) => {
                    self.add(queue, &entry.mailbox)?;
                    queue.due_ids(&entry.mailbox, COUNT_MAX)?
                }
                other => other?,
            };
            if self.told.get(&entry.mailbox) != Some(&ids) {
                self.told.insert(entry.mailbox.clone(), ids.clone());
                // Nobody listens any more while the watcher is stopping.
                let _ = self.wakes.send(Wake::Remote(Told::Mail { mailbox: entry.mailbox, ids }));
            }
        }
        if now >= self.next_lease_look || self.leases.wants_look(now) {
            self.next_lease_look = now + ensemble_core::proto::lease::LOOK_INTERVAL;
            self.leases.look(&SystemClock, queue, &*self.recorder)?;
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.sweep(queue)?;
        }
        Ok(())
    }

    /// A mailbox of an agent here that the servers do not have yet.
    fn add(&self, queue: &NatsTransport, mailbox: &Name) -> Result<()> {
        let settings = self.spool.settings(mailbox).unwrap_or_else(|_| Settings::default());
        match queue.add_mailbox(mailbox, &settings) {
            Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Everybody's mailbox is known here too, so that files here can be routed to them.
    fn compare_names(&self, queue: &NatsTransport) -> Result<()> {
        let here = self.spool.mailboxes()?;
        let there = queue.mailboxes()?;
        for mailbox in here.iter().filter(|name| !there.contains(name)) {
            self.add(queue, mailbox)?;
        }
        for mailbox in there.iter().filter(|name| !here.contains(name)) {
            match self.spool.add_mailbox(mailbox, &queue.settings(mailbox)?) {
                Ok(()) | Err(Error::MailboxExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What was put into the directory, by the routes or by hand, goes to the servers.
    fn carry(&self, queue: &NatsTransport) -> Result<()> {
        let holder = Name::new(HOLDER)?;
        let bridge = Bridge::new(&*self.spool, queue, holder.clone(), Unknown::Create);
        for mailbox in self.spool.mailboxes()? {
            let glance = self.spool.glance(&mailbox, 1)?;
            if glance.waiting + glance.held > 0 {
                let carried = bridge.carry(&mailbox)?;
                self.note_carried(mailbox.as_str(), carried.carried, carried.buried);
            }
        }
        Ok(())
    }

    fn sweep(&self, queue: &NatsTransport) -> Result<()> {
        let removed = queue.sweep()?;
        if removed > 0 {
            let data = json!({ "tmp": 0, "done": removed, "orphans": 0, "requests": 0 });
            self.recorder.record("queue.swept", ACTOR, data);
        }
        Ok(())
    }

    fn note_carried(&self, from: &str, carried: u64, buried: u64) {
        if carried + buried > 0 {
            let data = json!({ "from": from, "carried": carried, "buried": buried });
            self.recorder.record("bridge.carried", ACTOR, data);
        }
    }

    fn note_gone(&self, error: &Error) {
        tracing::warn!(%error, "the servers of the mailboxes cannot be used");
        self.recorder.record("watch.server_gone", ACTOR, json!({ "why": error.to_string() }));
    }

    fn tell_condition(&mut self, connected: bool, error: Option<&Error>) {
        let condition = json!({
            "server": self.options.servers_shown(),
            "connected": connected && error.is_none(),
            "why": error.map(ToString::to_string),
            "outbox": self.outbox.waiting().unwrap_or(0),
        });
        if condition != self.condition {
            self.condition = condition.clone();
            let _ = self.wakes.send(Wake::Remote(Told::Condition(condition)));
        }
    }
}
