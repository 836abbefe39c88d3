//! Follows the servers that have the mailboxes, in its own thread. A server that does not
//! answer therefore never blocks the watcher.
//! Each round does [`JOBS`], each at its interval: mail and logs are carried, leases kept or taken back, requests
//! continued, and the loop learns what has changed. Ladders have their own thread.
//!
//! A host runs one watcher with one such thread, which nudges only its own panes. Several watchers
//! may observe the same leases safely: one takes a message back, the others come too late. The same
//! holds for requests. A departing agent is shut down by the host whose roster lists it.

mod board;
mod calls;
mod carrying;
mod ends;
mod hosts;
mod leases;
mod log;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::history::sweep_attachments;
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::requests::Requests;
use ensemble_core::transfer::Outbox;
use ensemble_core::{Error, Result};
use ensemble_nats::{NatsOptions, NatsTransport};
use ensemble_project::TeamLink as _;
use ensemble_project::panes;
use ensemble_project::workload::{TaskBooks, Workload};
use ensemble_team::driver::retention;
use serde_json::json;

use self::board::SharedBoard;
use self::calls::HostCalls;
use self::carrying::{CurrentTroubles, MailCarrier};
use self::ends::AckedTasks;
use self::hosts::HostExchange;
use self::log::LogExchange;
use crate::context::WatchContext;
use crate::dead_letters::tell_senders;
use crate::held_work::KeptLeases;
use crate::ladders::LadderThread;
use crate::notifier::COUNT_MAX;
use crate::requests::RequestWatch;
use crate::servers::{ServerNews, SharedObservation, SharedSight};
use crate::wakes::{LoopWake, LoopWaker};

const ROUND: Duration = Duration::from_millis(250);
/// Minimum length of a round, so that failures do not occupy a processor.
const ROUND_MIN: Duration = Duration::from_millis(10);
/// Interval of a full scan of requests, in case a notice was lost.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const NAMES_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two reports of what agents hold.
const WORKLOAD_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);
const APART_INTERVAL: Duration = Duration::from_secs(10);
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Its name among the troubles, its interval, and what it does.
type RoundJob = (&'static str, Duration, JobAction);
type JobAction = fn(&mut ServerFollower, Monotonic, &Arc<NatsTransport>) -> Result<()>;

const ALWAYS: Duration = Duration::ZERO;

/// The jobs of a round, in order: what one has stored is seen by the next.
const JOBS: [RoundJob; 20] = [
    ("outbox", ALWAYS, |it, now, queue| it.send_outbox(now, queue)),
    ("mailboxes", NAMES_INTERVAL, |it, _, queue| it.compare_names(queue)),
    ("directory", ALWAYS, |it, now, queue| it.carry(now, queue)),
    ("handed in", ALWAYS, |it, now, queue| it.store_handed_in(now, queue)),
    ("panes", ALWAYS, |it, _, queue| it.tell_of_mail(queue)),
    ("ends", ALWAYS, |it, _, queue| it.end_what_was_seen(queue)),
    ("leases", ALWAYS, |it, now, queue| it.look_at_leases(now, queue)),
    ("dead letters", SCAN_INTERVAL, |_, _, queue| unless_limited(queue, || tell_senders(&**queue))),
    ("sweep of messages", SWEEP_INTERVAL, |it, _, queue| {
        unless_limited(queue, || queue.sweep().map(|removed| it.note_swept(removed, 0)))
    }),
    ("sweep of requests", SWEEP_INTERVAL, |it, _, queue| {
        let sweep = || Requests::new(&**queue).sweep();
        unless_limited(queue, || sweep().map(|removed| it.note_swept(0, removed)))
    }),
    ("sweep of hosts", SWEEP_INTERVAL, |_, _, queue| unless_limited(queue, || queue.sweep_hosts())),
    ("sweep of content", SWEEP_INTERVAL, |it, _, queue| it.sweep_content(queue)),
    ("settled messages", APART_INTERVAL, |_, _, queue| {
        unless_limited(queue, || queue.set_settled_apart())
    }),
    ("reserve", APART_INTERVAL, |_, _, queue| unless_limited(queue, || queue.keep_reserve())),
    ("event log", LOG_INTERVAL, |it, _, queue| it.log.exchange(queue)),
    ("hosts", LOG_INTERVAL, |it, now, queue| it.exchange_hosts(now, queue)),
    ("blackboard", ALWAYS, |it, now, queue| it.look_at_board(now, queue)),
    ("requests", ALWAYS, |it, _, queue| it.see_to_requests(queue)),
    ("calls", ALWAYS, |it, now, queue| it.calls.answer(now, queue)),
    ("workload", ALWAYS, |it, _, queue| it.report_workload(queue)),
];

/// Limited credentials leave the upkeep of the servers to other hosts.
fn unless_limited<T>(queue: &NatsTransport, upkeep: impl FnOnce() -> Result<T>) -> Result<()> {
    if queue.is_limited() { Ok(()) } else { upkeep().map(drop) }
}

pub(crate) struct ServerFollower {
    context: Arc<WatchContext>,
    options: NatsOptions,
    outbox: Outbox,
    carrier: MailCarrier,
    troubles: CurrentTroubles,
    waker: LoopWaker,
    /// Ends when its other side is dropped.
    stop: Receiver<()>,
    leases: MailboxLeases,
    kept: KeptLeases,
    next_lease_look: Monotonic,
    next_jobs: [Monotonic; JOBS.len()],
    next_scan: Monotonic,
    board: SharedBoard,
    requests: RequestWatch,
    waiting: BTreeMap<Name, Vec<MessageId>>,
    /// The last report to the loop, and the earliest time of the next.
    workload: Workload,
    books: TaskBooks,
    next_workload: Monotonic,
    has_news: bool,
    condition: serde_json::Value,
    gone_since: Option<Timestamp>,
    sight: SharedSight,
    log: LogExchange,
    hosts: HostExchange,
    calls: HostCalls,
    acked: AckedTasks,
}

impl ServerFollower {
    /// Starts the thread for a project with mailboxes on servers; `None` for others.
    pub(crate) fn new(
        context: &Arc<WatchContext>,
        sight: SharedSight,
        (waker, stop): (LoopWaker, Receiver<()>),
    ) -> Result<Option<Self>> {
        let project = &context.project;
        let Some(mut options) = project.nats_options()? else { return Ok(None) };
        options.recorder = Arc::clone(&context.recorder);
        options.creates = true;
        let now = SystemClock.monotonic();
        let calls = HostCalls::open(context, now)?;
        Ok(Some(Self {
            outbox: project.open_outbox()?,
            carrier: MailCarrier::default(),
            troubles: CurrentTroubles::default(),
            leases: crate::leases::open(&project.state.join("servers")),
            kept: KeptLeases::open(
                now,
                &project.state.join("servers/leases/kept.json"),
                project.config.leases.extend_max(),
            ),
            context: Arc::clone(context),
            options,
            waker,
            stop,
            next_lease_look: now,
            next_jobs: [now; JOBS.len()],
            next_scan: now,
            board: SharedBoard::new(now, context),
            requests: RequestWatch::new(project)?.only_for(project.roster()),
            waiting: BTreeMap::new(),
            workload: Workload::default(),
            books: TaskBooks::default(),
            next_workload: now,
            has_news: true,
            condition: serde_json::Value::Null,
            gone_since: None,
            sight,
            log: LogExchange::open(project.host()?, &project.logs(), &project.state)?,
            hosts: HostExchange::open(context, now)?,
            calls,
            acked: AckedTasks::open(&project.state.join("servers/acked.json")),
        }))
    }

    pub(crate) fn run(&mut self) {
        let mut was_connected = None;
        loop {
            match NatsTransport::connect(&self.options) {
                Ok(queue) => {
                    let queue = Arc::new(queue);
                    self.note_back(&queue);
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
                    self.report_condition(false, Some(&error));
                }
            }
            if self.stop.recv_timeout(RECONNECT_DELAY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Runs rounds over one connection, which reconnects by itself. Returns `true` once the watcher
    /// has ended.
    fn follow(&mut self, queue: &Arc<NatsTransport>) -> bool {
        let (mut seen, mut is_well) = (0, true);
        self.requests.carry_out_for(&self.context, Arc::<NatsTransport>::clone(queue));
        self.board.forget();
        queue.follow_handed_in();
        let mut follows_team = false;
        let mut ladders = None;
        loop {
            // Until the team's consumer exists, each mailbox is followed separately. Limited credentials follow
            // those mailboxes only that they may follow, and look for new ones.
            follows_team |= queue.follow_team().is_ok();
            if follows_team {
                self.see_to_ladders(queue, &mut ladders);
            }
            match self.round(queue) {
                Ok(()) => {
                    if !is_well {
                        self.note_back(queue);
                    }
                    is_well = true;
                    self.report_condition(true, None);
                }
                Err(error) => {
                    if is_well {
                        self.note_gone(&error);
                    }
                    is_well = false;
                    self.report_condition(queue.is_connected(), Some(&error));
                }
            }
            let now = SystemClock.monotonic();
            let due = self.requests.next_timeout().map_or(ROUND, |at| at.since(now));
            let heard = queue.wait_for_news(seen, ROUND.min(due.max(ROUND_MIN)));
            self.has_news |= heard != seen;
            seen = heard;
            if self.stop.try_recv() != Err(TryRecvError::Empty) {
                let _ = self.end_what_was_seen(queue);
                self.hosts.farewell(queue);
                return true;
            }
        }
    }

    /// The ladders of all tasks, on their own thread; it learns which mailboxes have changed.
    fn see_to_ladders(&self, queue: &Arc<NatsTransport>, ladders: &mut Option<LadderThread>) {
        if ladders.is_none() {
            let state = &self.context.project.state;
            let claims = Arc::<NatsTransport>::clone(queue).ladder_claims(state);
            let team = (Arc::<NatsTransport>::clone(queue) as _, claims.into());
            match LadderThread::start(&self.context, Some(team), self.waker.clone()) {
                Ok(started) => *ladders = Some(started),
                Err(error) => tracing::warn!(%error, "cannot run ladders"),
            }
        }
        if let Some(ladders) = ladders {
            queue.changed_mailboxes().into_iter().for_each(|name| ladders.changed(name, vec![]));
        }
    }

    /// Each job by itself: one that fails is noted, and the others are done. Only servers that do not answer
    /// end the round.
    fn round(&mut self, queue: &Arc<NatsTransport>) -> Result<()> {
        let now = SystemClock.monotonic();
        for (at, (name, interval, run)) in JOBS.iter().enumerate() {
            if now >= self.next_jobs[at] {
                self.next_jobs[at] = now + *interval;
                let done = run(self, now, queue);
                self.troubles.record_result(name, done)?;
            }
        }
        Ok(())
    }

    fn exchange_hosts(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let told = self.hosts.exchange(now, queue);
        self.troubles.record_trouble("agents", self.hosts.conflict.clone());
        told
    }

    fn tell_of_mail(&mut self, queue: &NatsTransport) -> Result<()> {
        let (entries, _) = panes::read_all(&self.context.project.panes())?;
        for entry in entries {
            let due = match queue.due_ids_for(&entry.mailbox, &entry.agent, COUNT_MAX) {
                Err(Error::NoMailbox { .. }) => self
                    .add(queue, &entry.mailbox)
                    .and_then(|()| queue.due_ids_for(&entry.mailbox, &entry.agent, COUNT_MAX)),
                other => other,
            };
            let place = format!("mailbox {}", entry.mailbox);
            let Some(ids) = self.troubles.record_result(&place, due)? else { continue };
            if self.waiting.get(&entry.mailbox) != Some(&ids) {
                self.waiting.insert(entry.mailbox.clone(), ids.clone());
                // The loop receives no more while the watcher stops.
                self.waker.wake(LoopWake::Team(ServerNews::Mail { mailbox: entry.mailbox, ids }));
            }
        }
        Ok(())
    }

    fn report_workload(&mut self, queue: &NatsTransport) -> Result<()> {
        let now = SystemClock.monotonic();
        if !self.has_news || now < self.next_workload {
            return Ok(());
        }
        self.next_workload = now + WORKLOAD_INTERVAL;
        let (members, _) = self.context.project.roster().entries()?;
        self.books.refresh_books(&self.context.project);
        let is_here = |name: &Name| members.iter().any(|member| member.name == *name);
        let workload = Workload {
            waits_for: self.requests.waits_for(),
            holds: self.books.holds(queue, is_here)?.by_agent,
        };
        // A notice that arrived in the meantime triggers another report.
        self.has_news = false;
        if workload != self.workload {
            self.workload = workload.clone();
            self.waker.wake(LoopWake::Team(ServerNews::Workload(workload)));
        }
        Ok(())
    }

    fn sighted<T>(&self, look: impl FnOnce(&mut SharedObservation) -> T) -> T {
        look(&mut self.sight.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn see_to_requests(&mut self, queue: &NatsTransport) -> Result<()> {
        queue.follow_requests()?;
        let now = SystemClock.monotonic();
        for id in queue.changed_requests() {
            self.requests.observe_request(now, &id, queue, None);
        }
        if now >= self.next_scan {
            self.next_scan = now + SCAN_INTERVAL;
            self.requests.scan(now, queue, None);
        }
        let absent = self.sighted(|sight| sight.absent.clone());
        for (agent, why) in &absent {
            self.requests.absent(now, agent, why);
        }
        self.requests.drive(now, queue);
        Ok(())
    }

    fn note_swept(&self, messages: u64, requests: usize) {
        if messages > 0 || requests > 0 {
            let data = json!({ "tmp": 0, "done": messages, "orphans": 0, "requests": requests });
            self.context.record(types::QUEUE_SWEPT, data);
        }
    }

    fn sweep_content(&self, queue: &NatsTransport) -> Result<()> {
        self.log.sweep();
        let spool = &self.context.spool;
        let keep = retention(spool)?;
        let mut calendar = spool.calendar();
        let swept = sweep_attachments(self.outbox.spool(), &mut calendar, keep).map(drop);
        spool.keep_calendar(calendar);
        unless_limited(queue, || queue.sweep_files(keep)).and(swept)
    }

    fn note_gone(&self, error: &Error) {
        tracing::warn!(%error, "the servers of the mailboxes cannot be used");
        self.context.record(types::WATCH_SERVER_GONE, json!({ "why": error.to_string() }));
    }

    fn note_back(&self, queue: &NatsTransport) {
        self.context.record(types::WATCH_SERVER_BACK, json!({ "server": queue.server() }));
    }

    fn report_condition(&mut self, connected: bool, error: Option<&Error>) {
        let connected = connected && error.is_none();
        self.gone_since =
            (!connected).then(|| self.gone_since.unwrap_or_else(|| SystemClock.wall()));
        let condition = json!({
            "server": self.options.servers_shown(),
            "connected": connected,
            "gone_since": self.gone_since,
            "why": error.map(ToString::to_string),
            "outbox": self.outbox.waiting().unwrap_or(0),
            "outbox_dead": self.outbox.dead().unwrap_or(0),
            "troubles": self.troubles.shown(),
            "requests": self.requests.summary(),
        });
        if condition != self.condition {
            self.condition = condition.clone();
            self.waker.wake(LoopWake::Team(ServerNews::Condition(condition)));
        }
    }
}
