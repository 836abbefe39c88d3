//! Step queues: ends leases and notifies orchestrators while no worker asks for a step.
//!
//! A killed worker cannot report. A worker killed after its report has not notified its
//! orchestrator. Every process that uses a queue repairs both, but at night none may run. So the
//! watcher looks every 30 s and when a lease may end. It also looks shortly after a process wrote
//! to the database (its log raises an event). The watcher hands out no steps; `ensemble step run`
//! does, and wakes on changes made here.
//!
//! The log's event comes when a change is written, but the change is visible only after its commit.
//! In between, at `power`, the log is synced, and the writer may be stopped for any time. So after
//! an event the watcher looks repeatedly. Each pause is twice as long as the one before, until the
//! regular look comes first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::spool::Spool;
use ensemble_team::steps::{STEPS_FILE, StepKey, StepOptions, StepStore};
use serde_json::{Value, json};

use crate::context::WatchContext;
use crate::held_work::{KeptLeases, WorkingAgents, keep_steps};
use crate::step_server::StepServer;
use crate::watch_set::{WatchSet, WatchedPlace};

/// How long to wait after an event before looking, because busy queues change many times a second.
const QUIET: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_secs(2);

pub(crate) struct StepUpkeep {
    path: PathBuf,
    options: StepOptions,
    open: Option<OpenSteps>,
    /// The file is not a step database; warned once.
    refused: Option<(u64, u64)>,
    next_look: Monotonic,
    said: Option<usize>,
    /// In the place of a file.
    server: Option<StepServer>,
}

struct OpenSteps {
    store: StepStore,
    id: (u64, u64),
    held: usize,
    /// Pause before a written change is looked for again.
    pause: Option<Duration>,
}

impl StepUpkeep {
    /// Opens no database before a step was added.
    pub(crate) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let WatchContext { project, recorder, .. } = &**context;
        let server = StepServer::start(context);
        let mut options = project.step_options(Arc::clone(recorder));
        options.patience = PATIENCE;
        let path = project.state.join(STEPS_FILE);
        Self { path, options, open: None, refused: None, next_look: now, said: None, server }
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.open.as_ref().map(|_| self.next_look)
    }

    /// A process, perhaps this one, wrote to the database.
    pub(crate) fn changed(&mut self, now: Monotonic) {
        if let Some(open) = &mut self.open {
            open.pause = Some(QUIET);
            self.next_look = self.next_look.min(now + QUIET);
        }
    }

    /// Opens the database once it exists, and a new one that replaced it.
    pub(crate) fn find(&mut self, now: Monotonic, watch_set: &mut WatchSet) {
        if self.server.is_some() {
            return;
        }
        let found = id_of(&self.path);
        if found == self.open.as_ref().map(|open| open.id) {
            return;
        }
        self.open = None;
        let Some(id) = found.filter(|found| self.refused != Some(*found)) else { return };
        match self.begin(id) {
            Ok(open) => {
                self.open = Some(open);
                self.next_look = now;
                self.rewatch(watch_set);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot open the step queues");
                // An error caused by another process is retried.
                self.refused = Some(id).filter(|_| !error.is_transient());
            }
        }
    }

    /// Watches the log of an open database, also with a new file watcher.
    pub(crate) fn rewatch(&self, watch_set: &mut WatchSet) {
        let log = self.path.with_file_name(format!("{STEPS_FILE}-wal"));
        if self.open.is_some()
            && let Err(error) = watch_set.rewatch_log(&log, WatchedPlace::Steps)
        {
            tracing::warn!(%error, "step queues are checked only every 30 s");
        }
    }

    fn begin(&self, id: (u64, u64)) -> Result<OpenSteps> {
        let store = StepStore::open(&self.path, self.options.clone())?;
        // Reading creates the log, which stays while this connection is open.
        store.queues()?;
        Ok(OpenSteps { store, id, held: 0, pause: None })
    }

    /// Takes back expired steps and sends pending notices. Returns whether the summary changed.
    pub(crate) fn drive(&mut self, now: Monotonic, spool: &Spool) -> bool {
        if let Some(server) = &mut self.server {
            return server.is_news();
        }
        if let Some(open) = self.open.as_mut().filter(|_| now >= self.next_look) {
            let wait = open.do_due_work(spool).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot check the step queues");
                RETRY
            });
            self.next_look = now + wait;
        }
        let held = self.open.as_ref().map(|open| open.held);
        std::mem::replace(&mut self.said, held) != held
    }

    pub(crate) fn extend_leases(
        &self,
        now: Monotonic,
        working: &WorkingAgents,
        kept: &mut KeptLeases,
        recorder: &dyn Recorder,
    ) {
        match (&self.server, &self.open) {
            (Some(server), _) => server.extend_leases(working.clone()),
            (None, Some(open)) => keep_steps(&open.store, now, working, kept, recorder),
            (None, None) => {}
        }
    }

    pub(crate) fn summary(&self) -> Value {
        if let Some(server) = &self.server {
            return server.summary();
        }
        self.open.as_ref().map_or(Value::Null, |open| json!({ "held": open.held }))
    }

    /// Takes back the steps of an ended agent. Returns what they were.
    pub(crate) fn take_back(&self, agent: &Name) -> Vec<Value> {
        if let Some(server) = &self.server {
            // The returned steps are recorded in the log.
            server.take_back(agent);
            return Vec::new();
        }
        let Some(open) = &self.open else { return Vec::new() };
        let taken = open.store.take_back(agent).unwrap_or_else(|error| {
            tracing::warn!(%error, %agent, "cannot take back the steps of an ended agent");
            Vec::new()
        });
        let row = |(step, epoch): (StepKey, u64)| json!({ "task_id": step.task_id, "step_index": step.step_index, "epoch": epoch });
        taken.into_iter().map(row).collect()
    }
}

impl OpenSteps {
    fn do_due_work(&mut self, spool: &Spool) -> Result<Duration> {
        let observed = self.store.observe()?;
        self.held = observed.held;
        self.store.post_notices(spool)?;
        let next = observed.next_in.map_or(LOOK_INTERVAL, |next| next.clamp(QUIET, LOOK_INTERVAL));
        self.pause = self.pause.map(|pause| pause * 2).filter(|pause| *pause < LOOK_INTERVAL);
        Ok(self.pause.map_or(next, |pause| next.min(pause)))
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
