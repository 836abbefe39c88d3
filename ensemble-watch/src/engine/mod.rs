//! The one loop: wake-ups in, one step at a time, deadlines out.
//!
//! A step takes whatever has changed since the last one, looks there, routes what is there,
//! tells the agents, makes the messages safe, and lets the machines' time pass. Everything the
//! loop knows can be found again by a scan, so a step that fails in the middle is simply repeated.

mod describe;
mod remote;
mod rewatch;
mod route;
mod sweep;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::driver::{Reviews, TaskEnds};
use ensemble_core::dropbox::{Ledger, Routes};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::reconcile::{Effect, Event, Reconcile};
use ensemble_core::roster::PaneObservation;
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use serde_json::json;

use crate::alarms::{self, Alarms};
use crate::answers::Answers;
use crate::board_leases::BoardWatch;
use crate::boxes::{Boxes, Look};
use crate::judge::Judge;
use crate::leases::Leases;
use crate::members::Members;
use crate::notifier::Notifier;
use crate::pane_worker::{PaneResult, PaneWorkers};
use crate::panes;
use crate::project::Project;
use crate::rate_limit_hold::{Moment, RateLimitHold};
use crate::requests::{DecisionHandler, RequestWatch, keep_gated};
use crate::roles::Roles;
use crate::run::ACTOR;
use crate::status::Status;
use crate::steps::Steps;
use ensemble_core::watch::{FsEvent, FsWatcher, Landing};
use remote::Remote;
pub(crate) use remote::{Absent, Told};
pub(crate) use rewatch::WatchSet;

/// How many files of a backlog one step routes, so that a step stays short.
const FILES_A_STEP: usize = 256;
/// How often leases are looked at.
const LEASE_INTERVAL: Duration = ensemble_core::proto::lease::LOOK_INTERVAL;
/// How often side files that no client needs are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// The first sweep comes this long after the start, so that clients of a new watcher do not wait
/// for it.
const FIRST_SWEEP_AFTER: Duration = Duration::from_secs(1);
/// How soon a file is tried again whose recipient has no mailbox or no room.
const ROUTE_RETRY: Duration = Duration::from_secs(2);
/// The directory, in the state directory, whose file the watcher writes to hear itself.
const CANARY_DIRECTORY: &str = "canary";

/// An event that wakes the loop.
#[derive(Debug)]
pub(crate) enum Wake {
    /// A watched directory changed.
    Changed(FsEvent),
    /// A pane task has a result.
    PaneResult(PaneResult),
    /// Something is new on the servers that have the mailboxes.
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no servers are followed"))]
    Remote(Told),
    /// It is time to go.
    Stop,
}

/// Everything the watcher knows.
pub(crate) struct Engine {
    project: Project,
    spool: Arc<Spool>,
    recorder: Arc<dyn Recorder>,
    fs_watcher: Option<FsWatcher>,
    quiet: Vec<PathBuf>,
    reconcile: Reconcile,
    boxes: Option<Boxes>,
    routes: Routes,
    judge: Judge,
    answers: Answers,
    reviews: Reviews,
    ends: TaskEnds,
    ledger: Ledger,
    notifier: Notifier,
    leases: Leases,
    board: BoardWatch,
    members: Members,
    rate_limit_hold: RateLimitHold,
    roles: Roles,
    requests: RequestWatch,
    steps: Steps,
    alarms: Alarms,
    status: Status,
    remote: Remote,
    mailbox_dirs: HashMap<PathBuf, Name>,
    changed: BTreeSet<Name>,
    /// Messages that were seen to land and were not looked at yet.
    arrived: Vec<(Name, MessageId)>,
    backlog: bool,
    troubled: HashSet<String>,
    next_lease_look: Monotonic,
    next_sweep: Monotonic,
    routed: u64,
    rejected: u64,
}

impl Engine {
    pub(crate) fn new(
        project: &Project,
        spool: Arc<Spool>,
        recorder: Arc<dyn Recorder>,
        pane_workers: PaneWorkers,
        absent: Absent,
    ) -> Result<Self> {
        let now = SystemClock.monotonic();
        let routes = Routes::new(&project.config.routes)?;
        let canary = project.state.join(CANARY_DIRECTORY);
        std::fs::create_dir_all(&canary).map_err(|source| Error::Io {
            operation: "create directory",
            path: canary,
            source,
        })?;
        Ok(Self {
            ledger: Ledger::open(&project.state)?,
            leases: Leases::open(now, &project.state),
            board: BoardWatch::default(),
            members: Members::new(now, project),
            notifier: Notifier::new(project.profiles()?, pane_workers),
            rate_limit_hold: RateLimitHold::default(),
            roles: Roles::new(&project.config),
            requests: RequestWatch::new(&project.queue, project.kinds()?),
            steps: Steps::new(now, project, Arc::clone(&recorder)),
            alarms: Alarms::open(now, project),
            reconcile: Reconcile::new(project.config.poll_interval()),
            status: Status::new(project.watch_status()),
            project: project.clone(),
            spool,
            recorder,
            remote: Remote::new(project, absent)?,
            fs_watcher: None,
            quiet: Vec::new(),
            boxes: None,
            routes,
            judge: Judge::new(project),
            answers: Answers::default(),
            reviews: project.reviews(),
            ends: project.task_ends(),
            mailbox_dirs: HashMap::new(),
            changed: BTreeSet::new(),
            arrived: Vec::new(),
            backlog: false,
            troubled: HashSet::new(),
            next_lease_look: now,
            next_sweep: now + FIRST_SWEEP_AFTER,
            routed: 0,
            rejected: 0,
        })
    }

    /// Who carries out what was decided.
    pub(crate) fn set_consequence(&mut self, consequence: Box<dyn DecisionHandler>) {
        self.requests.set_consequence(consequence);
    }

    /// When the loop must step again although nothing has changed.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        if self.backlog {
            return Some(Monotonic::ZERO);
        }
        let boxes = self.boxes.as_ref().and_then(Boxes::next_due);
        let machines = [
            self.reconcile.poll_timeout(),
            self.notifier.next_timeout(),
            self.roles.next_timeout(),
            self.leases.next_timeout(),
            self.requests.next_timeout(),
            self.steps.next_timeout(),
        ];
        machines
            .into_iter()
            .chain([
                boxes,
                self.status.next_due(),
                Some(self.members.next_timeout()),
                Some(self.alarms.next_timeout()),
                Some(self.next_lease_look),
                Some(self.next_sweep),
            ])
            .flatten()
            .min()
    }

    /// One step.
    pub(crate) fn step(&mut self, wakes: Vec<Wake>) {
        let now = SystemClock.monotonic();
        let mut look = Look::default();
        let any = !wakes.is_empty();
        for wake in wakes {
            self.take(now, wake, &mut look);
        }
        // Agents with new mail are notified before any other work.
        if !self.changed.is_empty() {
            self.tell(now);
        }
        for (mailbox, id) in std::mem::take(&mut self.arrived) {
            self.roles.landed(now, &mailbox, &id, &self.spool);
        }
        self.reconcile.handle_timeout(now);
        self.reconcile_effects(now);
        if let Some(boxes) = &mut self.boxes {
            boxes.look_at_due(now, FILES_A_STEP, &mut self.ledger, &mut look);
            self.backlog = boxes.look_at_found(now, FILES_A_STEP, &mut self.ledger, &mut look);
        }
        self.route(now, look);
        self.upkeep(now);
        if any {
            self.status.changed();
        }
        if self.status.is_due(now) {
            self.write_status_now();
        }
    }

    fn take(&mut self, now: Monotonic, wake: Wake, look: &mut Look) {
        match wake {
            Wake::Changed(FsEvent::Landed { dir, name, how }) => {
                self.landed(now, &dir, &name, how, look)
            }
            Wake::Changed(FsEvent::Left { dir }) => self.left(now, &dir),
            Wake::Changed(FsEvent::Overflow) => {
                self.recorder.record("watch.overflow", ACTOR, json!({}));
                self.reconcile.handle(now, Event::Overflow);
            }
            Wake::Changed(FsEvent::Replaced { .. }) => self.check_paths(now),
            Wake::Changed(FsEvent::Failed { error }) => {
                // It would say so again and again.
                self.fs_watcher = None;
                self.reconcile.handle(now, Event::SourceFailed { why: error.to_string() });
            }
            // A kind of event that is not known yet: look at everything.
            Wake::Changed(_) => self.reconcile.handle(now, Event::Overflow),
            Wake::PaneResult(PaneResult::Typed(report)) => {
                self.notifier.report(now, report, &*self.recorder)
            }
            Wake::PaneResult(PaneResult::Looked { agent, sight }) => {
                self.looked(now, &agent, sight)
            }
            Wake::Remote(told) => self.told(now, told),
            Wake::Stop => {}
        }
    }

    fn looked(&mut self, now: Monotonic, agent: &Name, sight: PaneObservation) {
        let (spool, recorder) = (&*self.spool, &*self.recorder);
        let held = self.leases.held_by(agent);
        let moment = Moment { now, wall: SystemClock.wall() };
        let count = held.len();
        if self.rate_limit_hold.looked(moment, agent, sight.diagnosis(), held, spool, recorder) {
            self.notifier.probe(agent, count);
        }
        let changed = self.members.seen(agent, sight, self.remote.source(spool), recorder);
        self.status.changed_if(changed);
    }

    fn landed(&mut self, now: Monotonic, dir: &Path, name: &str, how: Landing, look: &mut Look) {
        if let Some(mailbox) = self.mailbox_dirs.get(dir) {
            if let Some(id) = name
                .split('@')
                .next()
                .map(|n| n.trim_end_matches(".yaml"))
                .and_then(|id| MessageId::new(id).ok())
            {
                self.notifier.notice(mailbox, id.clone());
                self.arrived.push((mailbox.clone(), id));
            }
            self.changed.insert(mailbox.clone());
        } else if dir == self.project.queue.join("mailbox") {
            self.watch_mailbox_of(name);
        } else if dir == self.project.panes() {
            self.rebind(now);
        } else if self.requests.concerns(dir) {
            self.requests.changed(now, dir, Some(name), &*self.spool, self.fs_watcher.as_mut());
        } else if dir == self.project.state.join(CANARY_DIRECTORY) {
            self.reconcile.handle(now, Event::CanarySeen);
        } else if self.steps.concerns(dir, name) {
            self.steps.changed(now);
        } else if alarms::is_relevant(name)
            && alarms::places(&self.project).iter().any(|p| p == dir)
        {
            self.alarms.changed(now);
        } else if let Some(boxes) = &mut self.boxes {
            boxes.landed(now, dir, name, how, &mut self.ledger, look);
        }
    }

    /// A message was taken, or something else has gone.
    fn left(&mut self, now: Monotonic, dir: &Path) {
        match self.mailbox_dirs.get(dir) {
            Some(mailbox) => {
                self.changed.insert(mailbox.clone());
                self.members.stir(now, mailbox);
            }
            // A binding that was removed.
            None if dir == self.project.panes() => self.rebind(now),
            None if self.requests.concerns(dir) => {
                self.requests.changed(now, dir, None, &*self.spool, self.fs_watcher.as_mut());
            }
            None => self.check_paths(now),
        }
    }

    fn reconcile_effects(&mut self, now: Monotonic) {
        while let Some(effect) = self.reconcile.poll_effect() {
            match effect {
                Effect::Rewatch => match self.rewatch(now) {
                    Ok(()) => self.reconcile.handle(now, Event::SourceUp),
                    Err(why) => self.reconcile.handle(now, Event::SourceFailed { why }),
                },
                Effect::Scan => self.scan(now),
                Effect::CheckPaths => self.check_paths(now),
                Effect::RingCanary => {
                    let canary = self.project.state.join(CANARY_DIRECTORY).join("canary");
                    if let Err(error) = std::fs::write(canary, b"still listening\n") {
                        tracing::warn!(%error, "cannot write the canary");
                    }
                }
                Effect::Degraded { why } => {
                    tracing::warn!(%why, "no events: files are found by looking every {} s", self.project.config.poll_interval().as_secs());
                    self.recorder.record("watch.degraded", ACTOR, json!({ "why": why }));
                    self.status.degraded(Some(why));
                }
                Effect::SourceDead => self.recorder.record("watch.source_dead", ACTOR, json!({})),
                Effect::Recovered => {
                    self.recorder.record("watch.recovered", ACTOR, json!({}));
                    self.status.degraded(None);
                }
            }
        }
    }

    fn check_paths(&mut self, now: Monotonic) {
        self.steps.find(now, self.fs_watcher.as_mut());
        let replaced = match &self.boxes {
            Some(boxes) => !boxes.are_current(),
            None => self.project.queue.is_dir(),
        };
        if replaced {
            if self.boxes.take().is_some() && !self.project.queue.is_dir() {
                let data = json!({ "queue": self.project.queue });
                self.recorder.record("watch.queue_gone", ACTOR, data);
            }
            self.reconcile.handle(now, Event::PathsReplaced);
        }
    }

    fn rebind(&mut self, now: Monotonic) {
        match panes::read_all(&self.project.panes()) {
            Ok((entries, errors)) => {
                for error in errors {
                    tracing::warn!(%error, "cannot read where an agent runs");
                }
                self.notifier.bind(now, entries);
                self.members.look_soon(now);
                self.watch_what_is_missing();
                self.changed.extend(self.notifier.mailboxes().cloned());
            }
            Err(error) => tracing::warn!(%error, "cannot read where agents run"),
        }
    }

    fn scan(&mut self, now: Monotonic) {
        if let Some(boxes) = &mut self.boxes {
            match boxes.scan(&self.ledger) {
                Ok(()) => self.backlog = true,
                Err(error) => tracing::warn!(%error, "cannot list the drop boxes"),
            }
        }
        self.rebind(now);
        self.requests.scan(now, &*self.spool, self.fs_watcher.as_mut());
    }

    /// Looks at the mailboxes that rang and lets the notifier act.
    fn tell(&mut self, now: Monotonic) {
        for mailbox in std::mem::take(&mut self.changed) {
            self.notifier.look(now, &mailbox, self.remote.mail(&self.spool));
        }
        self.notifier.drive(now, self.remote.mail(&self.spool), &*self.recorder);
    }

    /// What is due by the clock.
    fn upkeep(&mut self, now: Monotonic) {
        let due = self.roles.drive(now, &*self.recorder);
        self.status.changed_if(due.ended);
        if due.poll {
            self.scan(now);
            self.changed.extend(self.notifier.mailboxes().cloned());
        }
        if now >= self.next_lease_look || self.leases.wants_look(now) {
            self.next_lease_look = now + LEASE_INTERVAL;
            self.board.look(&self.project, &SystemClock, &self.recorder);
            match self.leases.look(&SystemClock, &*self.spool, &*self.recorder) {
                Ok(returned) => self.changed.extend(returned),
                Err(error) => tracing::warn!(%error, "cannot look at the leases"),
            }
            // Who holds something and has met a usage limit is to keep it.
            let holders = self.leases.holders();
            self.rate_limit_hold.keep(&holders);
            keep_gated(self.leases.held(), &*self.spool);
            for holder in &holders {
                self.notifier.send_to_look(holder);
            }
            // Delayed messages become due without an event.
            self.changed.extend(self.notifier.mailboxes().cloned());
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.sweep();
        }
        for (agent, why) in self.members.gone() {
            self.requests.absent(now, agent, why);
        }
        self.remote.note_absent(self.members.gone());
        self.requests.drive(now, &*self.spool, &*self.recorder);
        let changed = self.steps.drive(now, &self.spool);
        self.status.changed_if(changed);
        let alarmed = self.alarms.drive(now, &self.project, &self.spool, &*self.recorder);
        self.status.changed_if(alarmed);
        self.tell(now);
        let (spool, recorder) = (&*self.spool, &*self.recorder);
        let source = self.remote.source(spool);
        let changed = self.members.drive(now, &self.project, source, &mut self.notifier, recorder);
        self.status.changed_if(changed);
    }
}
