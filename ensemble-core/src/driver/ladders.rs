//! The ladders of all tasks, whichever door they came through: kept in files, run by one process a mailbox.
//!
//! ```text
//! the message                      its ladder (state of the file)
//! a task, seen waiting             behind       nothing is done
//! first in line, its worker free   open         nudges and keys, as proto::ack has them
//! is received, or settled          acked        over; the file stays for a minute, for those who wait for it
//! comes back after that            behind       a new ladder for the new delivery
//! all phases are over              escalating, then escalated: the conductor is told once
//! escalated, received              acked        (`ladder.late_ack`)
//! expires, is removed              no file
//! is a dead letter                 escalated, as undeliverable
//! ```
//!
//! *One at a time.* A worker is pressed for one task at a time: the one that it would receive next.
//! The other tasks of its mailbox wait `behind`, and so does the first one while the worker holds a
//! message. A worker that has received something is alive, and works. When a ladder ends without an
//! answer, the tasks that have waited behind it for at least one phase end with it. The same
//! silence speaks of them all.
//!
//! *One process.* The runner of a mailbox holds `.ensemble/locks/ladder-<mailbox>.lock`: the watcher, or where
//! none runs a waiting `ensemble assign`. The kernel drops the lock of a runner that is killed, and the next one
//! continues with the files ([`Ladder::resume`](crate::proto::ack::Ladder::resume) says how).
//!
//! *One host.* Mailboxes on servers are seen by several hosts, and each host has its own files. The host says by
//! [`LadderHost::may_run`] whether it is the one that runs the ladders of a mailbox. One that may not, or not any more,
//! removes its files, so the ladder begins again on the other host.
//!
//! # Limits
//!
//! The first [`LADDERS_MAX`] waiting messages of a mailbox have a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::adopted::finish_escalation;
use super::delivery::{DeliveryContext, DeliveryOrder, DurableLadders, Ended, TaskDelivery};
use super::ladder_file::{LadderFile, LadderState, LadderStore, boot_ms};
use super::shared::SharedRef;
use crate::agent::AgentPane;
use crate::broker::Broker;
use crate::durable::FileLock;
use crate::env::{Clock, Monotonic, boot_id};
use crate::event_log::{Recorder, types};
use crate::message::{Envelope, MessageId, Name};
use crate::proto::ack::{LadderSettings, Phase};
use crate::spool::{Found, Spool, State};
use crate::{Error, Result};

mod mailbox;

use mailbox::MailboxLadders;

/// How many waiting messages of a mailbox have a ladder.
pub const LADDERS_MAX: usize = 1_000;
pub const TASK_TYPE: &str = "task";
/// How often a mailbox with open ladders is checked without an event.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The same where nothing is still to happen by itself.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// How soon a runner asks again for a lock that another process holds.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the file of a ladder that was acked stays.
const ACKED_KEEP: Duration = Duration::from_secs(60);

/// In the order of their receiving, with the content of those that have no ladder yet.
type WaitingTasks = Vec<(MessageId, Option<Envelope>)>;

/// A line that a ladder wants to be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderPrompt {
    pub mailbox: Name,
    pub message: MessageId,
    pub phase: Phase,
    /// How long the phase lasts.
    pub phase_timeout: Duration,
}

pub struct MailboxReader {
    pub agent: Name,
    /// How many agents read the mailbox, at least one.
    pub count: usize,
    /// Where the worker runs. With several readers, or without a pane, no key is pressed.
    pub pane: Option<Box<dyn AgentPane>>,
    /// Which place that is: another text is another pane.
    pub place: String,
    /// The times of the ladder, for this worker.
    pub config: LadderSettings,
}

impl MailboxReader {
    /// The only reader of a mailbox, without a pane.
    pub fn new(agent: Name, config: LadderSettings) -> Self {
        Self { agent, count: 1, pane: None, place: String::new(), config }
    }

    /// With the pane in which it runs; `place` distinguishes it from others.
    pub fn in_pane(mut self, pane: Box<dyn AgentPane>, place: String) -> Self {
        (self.pane, self.place) = (Some(pane), place);
        self
    }

    pub const fn of(mut self, count: usize) -> Self {
        self.count = count;
        self
    }
}

pub trait LadderHost: Send + Sync {
    fn reader(&self, mailbox: &Name) -> Result<MailboxReader>;

    /// Whether this host runs the ladders of a mailbox that other hosts see, too. The runner asks
    /// before it begins a ladder and each time it checks a running one. `is_handing_out` means that
    /// an agent of this host has just stored a task there and waits for its ladder to end.
    fn may_run(&self, mailbox: &Name, is_handing_out: bool) -> Result<bool> {
        let _ = (mailbox, is_handing_out);
        Ok(true)
    }

    /// The escalated ladders of a mailbox that another host runs. This host has no files of them.
    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        let _ = mailbox;
        Ok(Vec::new())
    }

    /// Has a line typed, if another part of the process types. `false` if the ladder is to type it.
    fn prompt(&self, prompt: LadderPrompt) -> bool {
        let _ = prompt;
        false
    }

    /// Whether a ladder sets the pace of the lines for this mailbox from now on.
    fn set_pace(&self, mailbox: &Name, is_laddered: bool) {
        let _ = (mailbox, is_laddered);
    }
}

/// Runs ladders; see the module. Looks at a mailbox when something landed in it or left it
/// ([`Ladders::observe_mailbox`]), and lets time pass ([`Ladders::handle_timeout`]).
pub struct Ladders<'a> {
    world: DeliveryContext<'a>,
    store: LadderStore,
    mailboxes: BTreeMap<Name, MailboxLadders<'a>>,
    /// Mailboxes that are to be checked even without an event.
    waits: BTreeMap<Name, Monotonic>,
    others: BTreeMap<Name, BTreeSet<MessageId>>,
    /// Mailboxes that could not be read at the last look. A ladder that cannot see the ack pauses.
    unseen: BTreeSet<Name>,
}

impl Ladders<'static> {
    /// A runner that owns what it works with. `actor` is in the log.
    pub fn new(
        spool: Arc<Spool>,
        store: LadderStore,
        host: Arc<dyn LadderHost>,
        actor: Name,
    ) -> Self {
        Self::with(DeliveryContext::owning(spool, actor), store, SharedRef::Owned(host))
    }

    /// With mailboxes that are elsewhere; the directory keeps the escalation files and the `ack/` files.
    pub fn with_queue(mut self, queue: Arc<dyn Broker>) -> Self {
        self.world.elsewhere = Some(SharedRef::Owned(queue));
        self
    }
}

impl<'a> Ladders<'a> {
    /// As [`Ladders::new`], for a caller that has all of this on its stack.
    pub fn borrowing(
        spool: &'a Spool,
        store: LadderStore,
        host: &'a (dyn LadderHost + 'a),
        (clock, recorder): (&'a (dyn Clock + Send + Sync), &'a dyn Recorder),
        actor: Name,
    ) -> Self {
        let world = DeliveryContext::borrowing(spool, clock, recorder, actor);
        Self::with(world, store, SharedRef::Borrowed(host))
    }

    pub fn with_borrowed_queue(mut self, queue: &'a dyn Broker) -> Self {
        self.world.elsewhere = Some(SharedRef::Borrowed(queue));
        self
    }

    fn with(
        mut world: DeliveryContext<'a>,
        store: LadderStore,
        host: SharedRef<'a, dyn LadderHost + 'a>,
    ) -> Self {
        world.durable = Some(DurableLadders { store: store.clone(), host });
        Self {
            world,
            store,
            mailboxes: BTreeMap::new(),
            waits: BTreeMap::new(),
            others: BTreeMap::new(),
            unseen: BTreeSet::new(),
        }
    }

    /// Looks at a mailbox: begins, ends and cleans up its ladders.
    ///
    /// # Errors
    /// The mailbox or its ladders cannot be read or written; it is checked again soon, and its ladders pause until
    /// then. One message or ladder alone pauses no other.
    pub fn observe_mailbox(&mut self, mailbox: &Name) -> Result<()> {
        let looked = self.look_once(mailbox);
        match looked {
            Ok(_) => self.unseen.remove(mailbox),
            Err(_) => self.unseen.insert(mailbox.clone()),
        };
        looked?.map_or(Ok(()), Err)
    }

    /// Returns the failure of a single message or ladder.
    fn look_once(&mut self, mailbox: &Name) -> Result<Option<Error>> {
        let now = self.world.clock.monotonic();
        // Should this fail, it is tried again.
        self.waits.insert(mailbox.clone(), now + LOOK_INTERVAL);
        let found = match self.world.queue().unfinished(mailbox, LADDERS_MAX) {
            Ok(found) => found,
            Err(Error::NoMailbox { .. }) => {
                self.forget(mailbox);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_waited_for = found.iter().any(|found| matches!(found.state, State::Queued { .. }));
        if !self.may_run(mailbox, is_waited_for)? {
            let interval = if is_waited_for { Some(LOOK_INTERVAL_MAX) } else { None };
            return self.leave(mailbox, interval.map(|interval| now + interval)).map(|()| None);
        }
        let (tasks, mut failed) = self.tasks(mailbox, &found)?;
        if !self.mailboxes.contains_key(mailbox) {
            let files = match tasks.is_empty() {
                true if !self.has_files(mailbox)? => {
                    if failed.is_none() {
                        self.waits.remove(mailbox);
                    }
                    return Ok(failed);
                }
                _ => match self.store.lock(mailbox)? {
                    None => {
                        self.waits.insert(mailbox.clone(), now + LOCK_INTERVAL);
                        return Ok(failed);
                    }
                    Some(lock) => MailboxLadders::open(&self.store, mailbox.clone(), lock)?,
                },
            };
            self.mailboxes.insert(mailbox.clone(), files);
        }
        let Some(ladders) = self.mailboxes.get_mut(mailbox) else { return Ok(failed) };
        failed = failed.or(ladders.update_tasks(&self.world, &found, tasks)?);
        self.settle(mailbox, now);
        if failed.is_some() {
            self.waits.insert(mailbox.clone(), now + LOOK_INTERVAL);
        }
        Ok(failed)
    }

    /// Lets time pass: looks where that is due, and performs what the ladders want.
    pub fn handle_timeout(&mut self) -> Result<()> {
        let now = self.world.clock.monotonic();
        let mut failed = None;
        let seen = self.mailboxes.keys().filter(|mailbox| !self.unseen.contains(*mailbox));
        for mailbox in seen.cloned().collect::<Vec<_>>() {
            let Some(ladders) = self.mailboxes.get_mut(&mailbox) else { continue };
            match ladders.handle_timeout(&self.world) {
                Ok(true) => {
                    self.waits.insert(mailbox, now);
                }
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let due = self.waits.iter().filter(|(_, at)| **at <= now);
        for mailbox in due.map(|(mailbox, _)| mailbox.clone()).collect::<Vec<_>>() {
            let looked = self.observe_mailbox(&mailbox).err();
            failed = failed.or(looked);
        }
        failed.map_or(Ok(()), Err)
    }

    /// When to call [`Ladders::handle_timeout`] at the latest; `None` for never.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let seen = self.mailboxes.iter().filter(|(mailbox, _)| !self.unseen.contains(*mailbox));
        let ladders = seen.filter_map(|(_, ladders)| ladders.poll_timeout());
        ladders.chain(self.waits.values().copied()).min()
    }

    pub fn runs(&self, mailbox: &Name) -> bool {
        self.mailboxes.contains_key(mailbox)
    }

    /// Whether this runner looks at a mailbox again by itself.
    pub fn knows(&self, mailbox: &Name) -> bool {
        self.runs(mailbox) || self.waits.contains_key(mailbox)
    }

    /// These messages are not tasks, so they need not be read again.
    pub fn note_others(&mut self, mailbox: Name, ids: Vec<MessageId>) {
        self.others.entry(mailbox).or_default().extend(ids);
    }

    /// Leaves the ladders of a mailbox to another process.
    pub fn forget(&mut self, mailbox: &Name) {
        if let Some(mut ladders) = self.mailboxes.remove(mailbox) {
            ladders.close(&self.world);
        }
        self.waits.remove(mailbox);
        self.others.remove(mailbox);
    }

    /// Whether this host runs the ladders of a mailbox. It is not asked where there are none.
    fn may_run(&self, mailbox: &Name, is_waited_for: bool) -> Result<bool> {
        let Some(durable) = &self.world.durable else { return Ok(true) };
        if is_waited_for || self.runs(mailbox) || self.has_files(mailbox)? {
            return durable.host.may_run(mailbox, false);
        }
        Ok(true)
    }

    /// Another host runs the ladders of a mailbox: what this one knows of them is void.
    fn leave(&mut self, mailbox: &Name, again: Option<Monotonic>) -> Result<()> {
        let lock = match self.mailboxes.remove(mailbox) {
            Some(mut ladders) => {
                ladders.close(&self.world);
                Some(ladders.lock)
            }
            None if self.has_files(mailbox)? => self.store.lock(mailbox)?,
            None => None,
        };
        self.forget(mailbox);
        self.waits.extend(again.map(|again| (mailbox.clone(), again)));
        if lock.is_some() {
            for (name, _) in self.store.of_mailbox(mailbox)? {
                self.store.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Decides when the mailbox is checked again; gives up its lock if no ladder is left.
    fn settle(&mut self, mailbox: &Name, now: Monotonic) {
        let Some(ladders) = self.mailboxes.get(mailbox) else { return };
        if ladders.is_empty() {
            self.mailboxes.remove(mailbox);
            self.waits.remove(mailbox);
            return;
        }
        let interval = if ladders.is_open() { LOOK_INTERVAL } else { LOOK_INTERVAL_MAX };
        self.waits.insert(mailbox.clone(), now + interval);
    }

    fn has_files(&self, mailbox: &Name) -> Result<bool> {
        Ok(!self.store.of_mailbox(mailbox)?.is_empty())
    }

    /// The waiting tasks among the messages of a mailbox, in the order of their receiving. Each message is
    /// read once; one that cannot be is left out, with its error.
    fn tasks(&mut self, mailbox: &Name, found: &[Found]) -> Result<(WaitingTasks, Option<Error>)> {
        let known = self.mailboxes.get(mailbox);
        let others = self.others.remove(mailbox).unwrap_or_default();
        let (mut tasks, mut still_others, mut failed) = (Vec::new(), BTreeSet::new(), None);
        for Found { id, .. } in found.iter().filter(|f| matches!(f.state, State::Queued { .. })) {
            if known.is_some_and(|ladders| ladders.has(id)) {
                tasks.push((id.clone(), None));
            } else if others.contains(id) {
                still_others.insert(id.clone());
            } else {
                match self.world.queue().peek(mailbox, id) {
                    Ok(envelope) if envelope.kind.as_str() == TASK_TYPE => {
                        tasks.push((id.clone(), Some(envelope)));
                    }
                    // A damaged one is dead-lettered by the next that receives.
                    Ok(_) | Err(Error::Malformed { .. } | Error::TooLarge { .. }) => {
                        still_others.insert(id.clone());
                    }
                    // It was received in the meantime.
                    Err(Error::NoMessage { .. }) => {}
                    Err(error) => note_failure(&mut failed, Err(error))?,
                }
            }
        }
        if !still_others.is_empty() {
            self.others.insert(mailbox.clone(), still_others);
        }
        Ok((tasks, failed))
    }
}

/// Notes the first failure, and passes on that of servers: they do not answer for the others either.
fn note_failure(failed: &mut Option<Error>, done: Result<()>) -> Result<()> {
    match done {
        Err(error) if !error.is_server_away() => {
            failed.get_or_insert(error);
            Ok(())
        }
        other => other,
    }
}
