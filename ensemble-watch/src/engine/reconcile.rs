//! Watching and listing: the effects of [`Reconcile`](ensemble_core::proto::reconcile::Reconcile).

use ensemble_core::event_log::types;
use ensemble_project::Project;
use ensemble_project::panes;
use std::path::{Path, PathBuf};

use ensemble_core::durable::Dir;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::reconcile::{Effect, Event, POLLING_INTERVAL, WatchMode};
use ensemble_core::watch::WatchError;
use serde_json::json;

use super::WatchEngine;
use super::upkeep::Upkeep;
use crate::watch_set::WatchedPlace;

const LANDING_DIRECTORIES: [&str; 2] = ["new", "front"];

/// The directory, in the state directory, whose file the watcher writes to check that events arrive.
const CANARY_DIRECTORY: &str = "canary";

pub(super) fn canary(project: &Project) -> PathBuf {
    project.state.join(CANARY_DIRECTORY)
}

/// Makes a directory of the state directory. That one itself is not made again: the project may have been moved.
fn makes_directory(path: &Path) -> bool {
    std::fs::create_dir(path).is_ok() || path.is_dir()
}

impl WatchEngine {
    pub(super) fn reconcile(&mut self, now: Monotonic) {
        while let Some(effect) = self.reconcile.poll_effect() {
            match effect {
                Effect::Rewatch => match self.rewatch(now) {
                    Ok(()) => self.reconcile.handle(now, Event::SourceUp),
                    Err(why) => self.reconcile.handle(now, Event::SourceFailed { why }),
                },
                Effect::Scan => self.scan(now),
                Effect::CheckPaths => self.check_paths(now),
                Effect::RingCanary => {
                    let dir = Dir::open(&canary(&self.context.project));
                    if let Err(error) = dir.and_then(|dir| dir.begin_file("canary")) {
                        tracing::warn!(%error, "cannot write the canary");
                    }
                }
                Effect::Degraded { why } => {
                    let interval = self.context.project.config.poll_interval();
                    let seconds = interval.min(POLLING_INTERVAL).as_secs();
                    tracing::warn!(%why, "no events: files are found by looking every {seconds} s");
                    self.context.record(types::WATCH_DEGRADED, json!({ "why": why }));
                    self.status.degraded(Some(why));
                }
                Effect::SourceDead => self.context.record(types::WATCH_SOURCE_DEAD, json!({})),
                Effect::Recovered => {
                    self.context.record(types::WATCH_RECOVERED, json!({}));
                    self.status.degraded(None);
                }
            }
        }
    }

    /// Watches everything again, before anything is listed.
    fn rewatch(&mut self, now: Monotonic) -> Result<(), String> {
        self.sources.watch_set = Default::default();
        if let Err(error) = self.watch_places() {
            self.sources.watch_set.stop();
            // A refused directory matters more than how the other files are found.
            let refused = self.drop_boxes.refused();
            return Err(refused.map_or_else(|| error.to_string(), str::to_owned));
        }
        self.rebind(now);
        self.watch_mailboxes().map_err(|error| error.to_string())?;
        self.drop_boxes.refused().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn watch_places(&mut self) -> ensemble_core::Result<()> {
        let (project, watch_set) = (&self.context.project, &mut self.sources.watch_set);
        self.drop_boxes.open()?;
        watch_set.restart()?;
        Upkeep::watch_boards(project, watch_set);
        self.drop_boxes.watch(watch_set)?;
        watch_set.watch(&project.queue.join("mailbox"), WatchedPlace::Mailboxes)?;
        watch_set.watch(&project.panes(), WatchedPlace::Panes)?;
        let roster = project.roster();
        // A project without a team has none; without events the regular look finds what has changed.
        if makes_directory(roster.dir()) {
            let _ = watch_set.watch(roster.dir(), WatchedPlace::Roster);
        }
        let sessions = project.sessions();
        if makes_directory(sessions.dir()) {
            let _ = watch_set.watch(sessions.dir(), WatchedPlace::Sessions);
        }
        watch_set.watch(&canary(project), WatchedPlace::Canary)?;
        self.requests.rewatch(watch_set)?;
        self.upkeep.steps.rewatch(watch_set);
        Ok(())
    }

    fn watch_mailboxes(&mut self) -> ensemble_core::Result<()> {
        let mailboxes = self.context.spool.mailboxes()?;
        for mailbox in mailboxes {
            match self.watch_mailbox(&mailbox) {
                // The regular scan finds the mail of one that cannot be watched, and the others are.
                Err(WatchError::Refused { .. }) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn watch_mailbox(&mut self, mailbox: &Name) -> Result<(), WatchError> {
        let home = self.context.project.queue.join("mailbox").join(mailbox.as_str());
        for dir in LANDING_DIRECTORIES.map(|state| home.join(state)) {
            if dir.is_dir() {
                self.sources.watch_set.rewatch(&dir, WatchedPlace::Mailbox(mailbox.clone()))?;
            } else {
                self.sources.watch_set.unwatch(&dir);
            }
        }
        Ok(())
    }

    pub(super) fn mailbox_added(&mut self, name: &str) {
        if let Ok(mailbox) = Name::new(name) {
            // If it cannot be watched, the regular scan finds its mail.
            let _ = self.watch_mailbox(&mailbox);
            self.mail.changed([mailbox]);
        }
    }

    /// Watches mailboxes whose directories did not exist yet when they were added.
    fn watch_missing_mailboxes(&mut self) {
        let mailboxes = self.context.project.queue.join("mailbox");
        let new = |mailbox: &Name| mailboxes.join(mailbox.as_str()).join("new");
        let notified = self.mail.notifier.mailboxes();
        let missing: Vec<Name> = notified
            .filter(|mailbox| !self.sources.watch_set.has(&new(mailbox)))
            .cloned()
            .collect();
        for mailbox in missing {
            self.mailbox_added(mailbox.as_str());
        }
    }

    /// Opens and watches everything again if a path leads to another directory than before.
    pub(super) fn check_paths(&mut self, now: Monotonic) {
        self.upkeep.steps.find(now, &mut self.sources.watch_set);
        let queue_exists = self.context.project.queue.is_dir();
        if self.drop_boxes.are_current(queue_exists) {
            return;
        }
        if self.drop_boxes.close() && !queue_exists {
            self.context
                .record(types::WATCH_QUEUE_GONE, json!({ "queue": self.context.project.queue }));
        }
        self.reconcile.handle(now, Event::PathsReplaced);
    }

    pub(super) fn rebind(&mut self, now: Monotonic) {
        match panes::read_all(&self.context.project.panes()) {
            Ok((entries, errors)) => {
                for error in errors {
                    tracing::warn!(%error, "cannot read where an agent runs");
                }
                self.mail.bind(now, entries);
                self.team.members.look_soon(now);
                self.watch_missing_mailboxes();
            }
            Err(error) => tracing::warn!(%error, "cannot read where agents run"),
        }
    }

    pub(super) fn roster_changed(&mut self, now: Monotonic, file: &str) {
        if file.ends_with(".yaml") {
            self.team.members.look_soon(now);
        }
    }

    pub(super) fn scan(&mut self, now: Monotonic) {
        self.drop_boxes.scan(now);
        if let Some(ladders) = &self.ladders {
            ladders.all_changed();
        }
        self.requests.scan(now, &*self.context.spool, Some(&mut self.sources.watch_set));
        if self.reconcile.mode() == WatchMode::Polling {
            // Without events nothing else says that they have changed.
            self.upkeep.alarms.changed(now);
            self.upkeep.steps.changed(now);
            self.team.members.stir_everyone(now);
            self.mail.poll();
            self.tell_of_mail(now);
            if !self.has_team_changed() {
                return;
            }
        }
        self.rebind(now);
    }

    /// Whether the roster, bindings or sessions have changed since the last poll: only then are all panes inspected.
    fn has_team_changed(&mut self) -> bool {
        let project = &self.context.project;
        let roster = project.roster();
        let sessions = project.sessions();
        let stamps = [roster.dir(), &project.panes(), sessions.dir()]
            .map(|dir| std::fs::metadata(dir).and_then(|meta| meta.modified()).ok());
        std::mem::replace(&mut self.polled, stamps) != stamps
    }

    pub(super) fn look_at_request(&mut self, now: Monotonic, id: &str) {
        if let Ok(id) = Name::new(id) {
            let watch_set = Some(&mut self.sources.watch_set);
            self.requests.observe_request(now, &id, &*self.context.spool, watch_set);
        }
    }
}
