//! Alerts: telling a person what needs one, by the rules of `notify` in `ensemble.yaml` (docs/guides/attention.md).
//!
//! ```text
//! the loop has done a step     -- changed -->  this thread: overview, needs, rules   --> command, terminals, tmux
//! a person runs `status`, …    -- .ensemble/looked -->  repeats nothing that was told before
//! a crash                      alerts.json has what was told: at most the last look is told twice
//! ```
//!
//! A look reads what has changed only. Looks are as far apart as 20 times the last one. Without a rule, no
//! thread runs.

mod channels;
mod schedule;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use ensemble_core::Result;
use ensemble_core::document::{read_json, write_json};
use ensemble_core::durable::{Dir, Durability, write_document};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use serde_json::{Value, json};

use crate::context::WatchContext;
use channels::{AlertCommand, NO_TERMINAL, PeopleTerminals};
use ensemble_project::attention::AwayServers;
use ensemble_project::overview::{
    Overview, OverviewReader, OverviewSource, ProjectChanges, StateSource,
};
use ensemble_project::{AlertRule, OpenQueue, Project};
use schedule::{AlertMemory, AlertMoment, AlertSchedule, AlertSubject, DueAlert};

/// The file beside the queue that lists the alerts sent.
const FILE: &str = "alerts.json";
const FILE_BYTES_MAX: usize = 1024 * 1024;
/// The file beside the queue whose time says when a person has looked.
const LOOKED: &str = "looked";
/// The least time between two looks.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The longest time between two looks: mail grows overdue without an event.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Pause after a look, as a multiple of its cost.
const PAUSE_PER_COST: u32 = 20;
/// Interval of attempts to connect to servers that do not answer.
const CONNECT_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of looks at commands that run.
const REAP_INTERVAL: Duration = Duration::from_millis(100);
/// Most commands that run at once.
const RUNNING_MAX: usize = 8;
/// How long commands may take to exit once the watcher is stopping.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The thread. Dropping it ends the thread, and the commands that it has started.
pub(crate) struct AlertThread {
    changed: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AlertThread {
    fn drop(&mut self) {
        self.changed = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl AlertThread {
    pub(crate) fn start(context: &Arc<WatchContext>) -> Option<Self> {
        let project = &context.project;
        let rules = project.config.notify.clone();
        if rules.is_empty() {
            return None;
        }
        let read = read_json(&project.state.join(FILE), FILE_BYTES_MAX).inspect_err(|error| {
            tracing::warn!(%error, "it is not known which alerts were sent: they are sent again");
        });
        let kept: AlertMemory = read.ok().flatten().unwrap_or_default();
        let (sender, changed) = bounded(1);
        let mut alerter = AlertWorker {
            schedule: AlertSchedule::new(rules.clone(), kept.clone()),
            rules,
            kept,
            reader: OverviewReader::new(project),
            context: Arc::clone(context),
            reader_of_servers: OverviewReader::new(project),
            servers: None,
            connect_after: None,
            running: Vec::new(),
        };
        let thread = thread::spawn(move || alerter.run(&changed));
        Some(Self { changed: Some(sender), thread: Some(thread) })
    }

    /// Something has happened.
    pub(crate) fn changed(&self) {
        // The thread has not looked since the last change if there is no room.
        let _ = self.changed.as_ref().map(|changed| changed.try_send(()));
    }
}

/// The state of the team by its servers.
enum ServerOverview {
    /// The mailboxes are here.
    None,
    /// All that exists, and here.
    Seen(Box<Overview>),
    /// Nothing now: they cannot be asked.
    Away(AwayServers),
}

/// The data of the thread.
struct AlertWorker {
    rules: Vec<AlertRule>,
    schedule: AlertSchedule,
    /// As `alerts.json` has it.
    kept: AlertMemory,
    context: Arc<WatchContext>,
    /// The team of this host.
    reader: OverviewReader,
    reader_of_servers: OverviewReader,
    /// The mailboxes on servers, once they have answered.
    servers: Option<OpenQueue>,
    /// The next attempt to connect, and why the last one failed.
    connect_after: Option<(Monotonic, AwayServers)>,
    running: Vec<(AlertCommand, DueAlert)>,
}

impl AlertWorker {
    fn run(&mut self, changed: &Receiver<()>) {
        if changed.try_recv() == Err(TryRecvError::Disconnected) {
            return self.end();
        }
        let (mut pause, mut looked) = (Duration::ZERO, None);
        let mut is_stale = true;
        loop {
            let now = SystemClock.monotonic();
            let since = looked.map_or(LOOK_INTERVAL_MAX, |at| now.since(at));
            if since >= LOOK_INTERVAL_MAX || (is_stale && since >= pause) {
                self.check_needs();
                let after = SystemClock.monotonic();
                pause = LOOK_INTERVAL_MIN.max(after.since(now) * PAUSE_PER_COST);
                (looked, is_stale) = (Some(after), false);
            }
            self.send_alerts();
            let wait = self.wait(looked, is_stale.then_some(pause));
            match changed.recv_timeout(wait) {
                Ok(()) => is_stale = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    fn wait(&self, looked: Option<Monotonic>, pause: Option<Duration>) -> Duration {
        let now = SystemClock.monotonic();
        let look = looked.map(|at| at + pause.unwrap_or(LOOK_INTERVAL_MAX));
        let due = self.schedule.next_due(self.moment());
        // An alert that is due already waits for a free slot.
        let due = due.map(|at| if at <= now { now + LOOK_INTERVAL_MIN } else { at });
        let reap = (!self.running.is_empty()).then(|| now + REAP_INTERVAL);
        let next = [look, due, reap].into_iter().flatten().min();
        next.map_or(LOOK_INTERVAL_MAX, |at| at.since(now))
    }

    fn moment(&self) -> AlertMoment {
        let local = jiff::Zoned::now();
        let minute = u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute()));
        AlertMoment {
            now: SystemClock.monotonic(),
            minute: minute.unwrap_or_default(),
            looks: looks(&self.context.project.state),
        }
    }

    fn check_needs(&mut self) {
        let servers = self.overview_of_servers();
        let mut here = |source: OverviewSource<'_>| {
            self.reader.refresh_overview(&ProjectChanges::Anywhere, source, StateSource::Watcher)
        };
        let (overview, is_whole) = match servers {
            ServerOverview::None => (here(OverviewSource::Here(&self.context.spool)), true),
            ServerOverview::Seen(overview) => {
                let is_whole = overview.away.is_none();
                (*overview, is_whole)
            }
            // The panes are here also while the servers are away.
            ServerOverview::Away(away) => (here(OverviewSource::Away(&away)), false),
        };
        let work = is_whole.then(|| overview.is_at_work());
        self.schedule.update_needs(self.moment(), &overview.needs, work);
    }

    fn overview_of_servers(&mut self) -> ServerOverview {
        match self.ask_servers() {
            Ok(found) => found,
            Err(error) => {
                let away = AwayServers::from(&error);
                let next = SystemClock.monotonic() + CONNECT_INTERVAL;
                self.connect_after = Some((next, away.clone()));
                ServerOverview::Away(away)
            }
        }
    }

    fn ask_servers(&mut self) -> Result<ServerOverview> {
        let now = SystemClock.monotonic();
        if self.servers.is_none() {
            if !self.context.project.is_shared()? {
                return Ok(ServerOverview::None);
            }
            if let Some((_, away)) = self.connect_after.as_ref().filter(|(at, _)| now < *at) {
                return Ok(ServerOverview::Away(away.clone()));
            }
            let servers = self.context.project.open_unrecorded()?;
            servers.team_link().map_or(Ok(()), |team| team.follow_team())?;
            self.servers = Some(servers);
        }
        let Some(servers) = &self.servers else { return Ok(ServerOverview::None) };
        let source = OverviewSource::Remote(servers.request_store());
        let overview = self.reader_of_servers.refresh_overview(
            &ProjectChanges::Anywhere,
            source,
            StateSource::Watcher,
        );
        Ok(ServerOverview::Seen(Box::new(overview)))
    }

    /// Tells what is due, and sees how commands have ended.
    fn send_alerts(&mut self) {
        self.reap();
        let room = RUNNING_MAX.saturating_sub(self.running.len());
        if room > 0 {
            let due = self.schedule.due(self.moment(), room);
            for (rule, config) in self.rules.clone().iter().enumerate() {
                let of_rule: Vec<DueAlert> =
                    due.iter().filter(|it| it.rule == rule).cloned().collect();
                if !of_rule.is_empty() {
                    self.tell_by(config, of_rule);
                }
            }
        }
        self.save_sent();
    }

    /// Notes what was sent, so that a later watcher does not send it again. Until that succeeds, each call tries it.
    fn save_sent(&mut self) {
        let kept = self.schedule.kept();
        if kept == self.kept {
            return;
        }
        match write_json(&self.context.project.state.join(FILE), &kept) {
            Ok(()) => self.kept = kept,
            Err(error) => tracing::warn!(%error, "cannot note which alerts were sent"),
        }
    }

    /// Tells it by one rule. Terminals get only one signal, for any number of alerts.
    fn tell_by(&mut self, rule: &AlertRule, all: Vec<DueAlert>) {
        let mut reached = 0;
        if rule.terminal.is_some() || rule.tmux {
            let (text, terminals) = (summary(&all), PeopleTerminals::of(&self.context.project));
            reached += rule.terminal.map_or(0, |signal| terminals.signal(signal, &text));
            reached += if rule.tmux { terminals.show(&text) } else { 0 };
        }
        for due in all {
            match &rule.command {
                Some(command) => {
                    let project = &self.context.project;
                    match AlertCommand::start(command, project.root(), &alert(project, &due)) {
                        Ok(running) => self.running.push((running, due)),
                        Err(error) => self.ended(&due, Err(error.to_string())),
                    }
                }
                None if reached > 0 => self.ended(&due, Ok(())),
                None => self.ended(&due, Err(NO_TERMINAL.to_owned())),
            }
        }
    }

    fn reap(&mut self) {
        for (mut running, due) in std::mem::take(&mut self.running) {
            match running.outcome() {
                Some(outcome) => self.ended(&due, outcome),
                None => self.running.push((running, due)),
            }
        }
    }

    fn ended(&mut self, due: &DueAlert, outcome: std::result::Result<(), String>) {
        let mut data = alert(&self.context.project, due);
        data["rule"] = (due.rule + 1).into();
        match outcome {
            Ok(()) => {
                self.schedule.succeeded(due);
                self.context.record(types::ALERT_SENT, data);
            }
            Err(error) => {
                let is_retried = self.schedule.failed(SystemClock.monotonic(), due);
                if error != NO_TERMINAL {
                    tracing::warn!(%error, "cannot notify a person of a need");
                }
                data["error"] = error.into();
                data["retried"] = is_retried.into();
                self.context.record(types::ALERT_FAILED, data);
            }
        }
    }

    /// Lets the commands end that run, for a while.
    fn end(&mut self) {
        let until = SystemClock.monotonic() + END_PATIENCE;
        while !self.running.is_empty() && SystemClock.monotonic() < until {
            self.reap();
            thread::sleep(REAP_INTERVAL);
        }
        for (mut running, due) in std::mem::take(&mut self.running) {
            running.end();
            // The next watcher sends it again.
            self.ended(&due, Err("the watcher has ended".to_owned()));
        }
        self.save_sent();
    }
}

/// The alert as commands get it.
fn alert(project: &Project, due: &DueAlert) -> Value {
    let key = &due.occurrence.key;
    json!({
        "need": key.need, "agent": key.agent, "about": key.about, "since": key.since,
        "text": due.occurrence.text, "help": due.occurrence.help, "count": due.count,
        "project": project.root(), "at": SystemClock.wall(),
    })
}

fn summary(all: &[DueAlert]) -> String {
    match all {
        [one] => one.occurrence.text.clone(),
        [first, more @ ..] => format!("{}, and {} more", first.occurrence.text, more.len()),
        [] => String::new(),
    }
}

/// Notes that a person has seen the needs, so that alerts sent before are not repeated.
pub fn person_looked(project: &Project) -> Result<()> {
    match project.config.notify.is_empty() || !project.state.is_dir() {
        true => Ok(()),
        false => write_document(&project.state.join(LOOKED), b"", Durability::Process),
    }
}

/// Changes whenever a person looks.
fn looks(state: &Path) -> i128 {
    let stat = Dir::open(state).and_then(|dir| dir.stat(LOOKED));
    stat.ok().flatten().map_or(0, |stat| stat.modified_ns)
}

/// Sends a test alert by one rule, now. Returns how many terminals got it; 1 for a command alone.
pub fn test(project: &Project, rule: &AlertRule) -> std::result::Result<usize, String> {
    let due = DueAlert { rule: 0, occurrence: AlertSubject::test(), count: 1 };
    channels::test(project, rule, &alert(project, &due))
}
