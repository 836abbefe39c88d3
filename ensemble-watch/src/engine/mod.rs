//! The one loop: wake-ups in, one step at a time, deadlines out.
//!
//! ```text
//! a step                              done by
//! takes each wake-up                  the part that the place of the event belongs to
//! notifies agents with mail           mail
//! watches, lists, checks paths        reconcile
//! examines and routes files           drop_boxes, feedback
//! does what is due by the clock       team, requests, upkeep
//! ```
//!
//! Everything the loop knows can be found again by a scan, so a step that fails in the middle is
//! simply repeated.

mod drop_boxes;
mod feedback;
mod held_work;
mod mail;
mod reconcile;
mod remote;
mod team;
mod upkeep;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ensemble_core::Result;
use ensemble_core::durable::make_directory;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::reconcile::{Event, Reconcile};
use ensemble_core::spool::Spool;
use ensemble_core::watch::{FsEvent, Landing};
use ensemble_tmux::session::Sessions;
use serde_json::{Value, json};

use crate::context::WatchContext;
use crate::failure_log::FAILURES;
use crate::ladders::LadderThread;
use crate::requests::RequestWatch;
use crate::servers::{ServerNews, SharedSight};
use crate::status_file::StatusFile;
use crate::wakes::{LoopWake, LoopWaker};
use crate::watch_set::{LoopSources, WatchedPlace};
use drop_boxes::DropBoxes;
use ensemble_core::dropbox::BoxFinding;
use mail::EngineMail;
use team::EngineTeam;
use upkeep::Upkeep;

pub(crate) struct WatchEngine {
    context: Arc<WatchContext>,
    sources: LoopSources,
    reconcile: Reconcile,
    drop_boxes: DropBoxes,
    mail: EngineMail,
    team: EngineTeam,
    requests: RequestWatch,
    upkeep: Upkeep,
    status: StatusFile,
    /// Where the mailboxes are on servers, the thread that follows them has it.
    ladders: Option<LadderThread>,
    /// Mailboxes whose ladders are to be checked, once the agents are notified; with messages that are not tasks.
    laddered: BTreeMap<Name, Vec<MessageId>>,
    /// When roster, bindings and sessions were changed, as of the last poll.
    polled: [Option<SystemTime>; 3],
}

impl WatchEngine {
    pub(crate) fn new(
        context: Arc<WatchContext>,
        sight: SharedSight,
        (waker, sources): (LoopWaker, LoopSources),
    ) -> Result<Self> {
        let now = SystemClock.monotonic();
        let project = &context.project;
        let drop_boxes = DropBoxes::new(&context)?;
        make_directory(&reconcile::canary(project))?;
        let mail = EngineMail::new(&context, waker.clone(), sight)?;
        let ladders = match project.is_shared()? {
            true => None,
            false => Some(LadderThread::start(&context, None, waker)?),
        };
        let mut requests = RequestWatch::new(project)?;
        requests.carry_out_for(&context, Arc::<Spool>::clone(&context.spool));
        Ok(Self {
            drop_boxes,
            mail,
            ladders,
            laddered: BTreeMap::new(),
            team: EngineTeam::new(now, &context),
            requests,
            upkeep: Upkeep::new(now, &context),
            sources,
            reconcile: Reconcile::new(project.config.poll_interval()),
            polled: [None; 3],
            status: StatusFile::new(project.watch_status()),
            context,
        })
    }

    fn next_deadline(&self) -> Option<Monotonic> {
        let deadlines = [
            self.reconcile.poll_timeout(),
            self.drop_boxes.next_timeout(),
            self.mail.next_timeout(),
            self.team.next_timeout(),
            self.requests.next_timeout(),
            self.upkeep.next_timeout(),
            self.status.next_due(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Waits for the first wake-up or the next deadline, and does one step with what has come by then.
    pub(crate) fn run_step(&mut self) {
        let longest = self.next_deadline().map(|at| at.since(SystemClock.monotonic()));
        let wakes = self.sources.next_wakes(longest);
        self.step(wakes);
    }

    pub(crate) fn step(&mut self, wakes: Vec<LoopWake>) {
        let now = SystemClock.monotonic();
        self.status.changed_if(!wakes.is_empty());
        let mut findings: Vec<BoxFinding> =
            wakes.into_iter().filter_map(|wake| self.handle_wake(now, wake)).collect();
        // Agents with mail are notified before anything else is done.
        self.tell_of_mail(now);
        self.drive_ladders();
        self.reconcile.handle_timeout(now);
        self.reconcile(now);
        // Further events may wait for the next step.
        findings.extend(self.drop_boxes.examine(now, self.sources.has_events()));
        // Files may be found without an event: by a look, or once they have not changed for a while.
        self.status.changed_if(!findings.is_empty());
        self.drop_boxes.route(now, findings, &mut self.mail, &mut self.team);
        self.pass_time(now);
        self.sources.processes.watch(self.team.members.processes());
        if self.status.is_due(now) {
            self.write_status_now();
        }
    }

    pub(crate) fn write_status_now(&mut self) {
        let now = SystemClock.monotonic();
        self.status.write_now(now, self.describe(now));
    }

    fn describe(&self, now: Monotonic) -> Value {
        let mut status = json!({ "mode": self.reconcile.mode() });
        self.drop_boxes.describe(&mut status);
        status["agents"] = self.mail.notifier.summary(now).into();
        self.team.describe(now, &mut status);
        let requests = self.mail.remote.requests();
        status["requests"] = requests.unwrap_or_else(|| self.requests.summary());
        self.upkeep.describe(&mut status);
        status["failures"] = FAILURES.summary(now);
        status["servers"] = self.mail.remote.summary();
        status
    }

    /// Notifies agents of their mail, and passes on what has landed to the team.
    fn tell_of_mail(&mut self, now: Monotonic) {
        self.mail.notify_changed(now);
        self.return_held();
        let arrivals = std::mem::take(&mut self.mail.arrived);
        self.status.changed_if(!arrivals.is_empty());
        if !arrivals.is_empty() {
            self.upkeep.starts.look_at(now);
        }
        self.mail.announce_weighty(now, &arrivals);
        for arrived in arrivals.iter().filter(|arrived| arrived.is_no_task()) {
            self.laddered.entry(arrived.mailbox.clone()).or_default().push(arrived.id.clone());
        }
        self.team.arrived(now, arrivals);
    }

    fn handle_wake(&mut self, now: Monotonic, wake: LoopWake) -> Option<BoxFinding> {
        match wake {
            LoopWake::Changed(FsEvent::Landed { dir, name, how }) => {
                return self.landed(now, &dir, &name, how);
            }
            LoopWake::Changed(FsEvent::Strange { dir }) => {
                if matches!(self.sources.watch_set.directory(&dir), Some(WatchedPlace::DropBox(_)))
                {
                    self.drop_boxes.reject_strange();
                }
            }
            LoopWake::Changed(FsEvent::Left { dir }) => self.left(now, &dir),
            LoopWake::Changed(FsEvent::Overflow) => {
                self.context.record(types::WATCH_OVERFLOW, json!({}));
                self.reconcile.handle(now, Event::Overflow);
            }
            LoopWake::Changed(FsEvent::Replaced { .. }) => self.check_paths(now),
            LoopWake::Changed(FsEvent::Failed { error }) => {
                // Its file watcher would report this again and again.
                self.sources.watch_set.stop();
                self.reconcile.handle(now, Event::SourceFailed { why: error.to_string() });
            }
            LoopWake::Typed(report) => {
                self.mail.notifier.report(now, report);
            }
            LoopWake::Observed { agent, observation } => {
                let changed = self.team.observed(now, &agent, observation, &mut self.mail);
                self.status.changed_if(changed);
            }
            LoopWake::ScreenChanged(agent) => {
                self.team.members.stir_all(now, [agent]);
            }
            LoopWake::Prompt(prompt) => self.mail.prompt(now, &prompt),
            LoopWake::Pace { mailbox, is_laddered } => {
                self.mail.notifier.set_pace(now, &mailbox, is_laddered);
            }
            LoopWake::Ended(process) => {
                let changed = self.team.process_ended(now, &process, &mut self.mail);
                self.status.changed_if(changed);
            }
            LoopWake::Team(ServerNews::Gone(alarm)) => {
                self.upkeep.alarms.happened(&alarm);
            }
            LoopWake::Team(ServerNews::UnfitAck(ack)) => {
                self.drop_boxes.notify_of_unfit_ack(now, *ack, &mut self.mail);
            }
            LoopWake::Team(news) => {
                let agents = self.mail.take_news(news);
                self.team.members.stir_all(now, agents);
            }
            LoopWake::Stop => {}
        }
        None
    }

    fn landed(
        &mut self,
        now: Monotonic,
        dir: &Path,
        file: &str,
        how: Landing,
    ) -> Option<BoxFinding> {
        match self.sources.watch_set.place(dir, file).cloned()? {
            WatchedPlace::Mailboxes => self.mailbox_added(file),
            WatchedPlace::Mailbox(mailbox) => {
                self.laddered.entry(mailbox.clone()).or_default();
                self.mail.landed(mailbox, file);
            }
            WatchedPlace::DropBox(box_name) => {
                return self.drop_boxes.landed(now, &box_name, file, how);
            }
            WatchedPlace::Requests => self.look_at_request(now, file),
            WatchedPlace::Request(id) => self.look_at_request(now, id.as_str()),
            WatchedPlace::Panes => self.rebind(now),
            WatchedPlace::Canary => self.reconcile.handle(now, Event::CanarySeen),
            WatchedPlace::Roster => self.roster_changed(now, file),
            WatchedPlace::Sessions => self.session_changed(now, file),
            WatchedPlace::Board => {
                self.upkeep.alarms.changed(now);
                self.team.members.stir_everyone(now);
            }
            WatchedPlace::Steps => {
                self.upkeep.steps.changed(now);
                self.team.members.stir_everyone(now);
            }
        }
        None
    }

    fn session_changed(&mut self, now: Monotonic, file: &str) {
        let Some(agent) = Sessions::agent_of(file) else { return };
        self.team.members.stir_all(now, [agent.clone()]);
        self.mail.notifier.session_changed(now, &agent);
    }

    /// Passes changed mailboxes to the thread of the ladders. Their thread would compete with the one that types.
    fn drive_ladders(&mut self) {
        for (mailbox, others) in std::mem::take(&mut self.laddered) {
            if let Some(ladders) = &self.ladders {
                ladders.changed(mailbox, others);
            }
        }
    }

    fn left(&mut self, now: Monotonic, dir: &Path) {
        match self.sources.watch_set.directory(dir).cloned() {
            Some(WatchedPlace::Mailbox(mailbox)) => {
                self.team.members.stir(now, &mailbox);
                self.laddered.entry(mailbox.clone()).or_default();
                self.mail.changed([mailbox]);
            }
            // An agent was unbound.
            Some(WatchedPlace::Panes) => self.rebind(now),
            Some(WatchedPlace::Request(id)) => self.look_at_request(now, id.as_str()),
            Some(WatchedPlace::Requests) => {}
            _ => self.check_paths(now),
        }
    }
}
