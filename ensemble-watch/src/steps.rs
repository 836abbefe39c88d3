//! Step queues: leases end, and orchestrators are told, though nobody asks for a step.
//!
//! A worker that was killed never says so, and one that was killed after its report has not told its
//! orchestrator. Whoever works with a queue makes up for that, but at night nobody may. So the watcher
//! looks every 30 s, when a lease may end, and shortly after somebody has written to the database:
//! its log rings. It hands nothing out; `ensemble step run` does, and is woken by what changes here.
//!
//! The log rings when a change is written, and the change can be seen when it is committed. Between the
//! two the log is synced at `power`, and a process may stand still as long as it likes. So after a ring it
//! looks again and again, each time after twice as long a pause, until the regular look is as soon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::Recorder;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::spool::Spool;
use ensemble_core::steps::{STEPS_FILE, StepOptions, StepStore};
use serde_json::{Value, json};

use crate::doorbell::Doorbell;
use crate::project::Project;

/// How long after a ring it looks first: busy queues change many times a second.
const QUIET: Duration = Duration::from_millis(100);
/// How long the loop waits for others that write.
const PATIENCE: Duration = Duration::from_millis(250);
/// How soon it tries again after it could not.
const RETRY: Duration = Duration::from_secs(2);

/// What the watcher does about step queues.
pub(crate) struct Steps {
    path: PathBuf,
    options: StepOptions,
    open: Option<Open>,
    /// A file that is no database of ours; said once.
    refused: Option<(u64, u64)>,
    next_look: Monotonic,
    /// How many steps were held when that was last said.
    said: Option<usize>,
}

struct Open {
    store: StepStore,
    id: (u64, u64),
    held: usize,
    /// How long it waits for what has rung and may not be seen yet.
    pause: Option<Duration>,
}

impl Steps {
    /// Nothing is opened before somebody has added a step.
    pub(crate) fn new(now: Monotonic, project: &Project, recorder: Arc<dyn Recorder>) -> Self {
        let mut options = StepOptions::new(project.root())
            .with_durability(project.config.durability.unwrap_or_default())
            .with_recorder(recorder);
        options.patience = PATIENCE;
        let path = project.state.join(STEPS_FILE);
        Self { path, options, open: None, refused: None, next_look: now, said: None }
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.open.as_ref().map(|_| self.next_look)
    }

    /// Whether a ring in this directory is about the database's log.
    pub(crate) fn concerns(&self, dir: &Path, name: &str) -> bool {
        self.path.parent() == Some(dir) && name == log_name()
    }

    /// Somebody has written to the database, maybe this.
    pub(crate) fn rung(&mut self, now: Monotonic) {
        if let Some(open) = &mut self.open {
            open.pause = Some(QUIET);
            self.next_look = self.next_look.min(now + QUIET);
        }
    }

    /// Opens the database once there is one, and another one that has taken its place.
    pub(crate) fn find(&mut self, now: Monotonic, doorbell: Option<&mut Doorbell>) {
        let found = id_of(&self.path);
        if found == self.open.as_ref().map(|open| open.id) {
            return;
        }
        let log = self.path.with_file_name(log_name());
        self.open = None;
        let Some(id) = found.filter(|found| self.refused != Some(*found)) else { return };
        match self.begin(id) {
            Ok(open) => {
                self.open = Some(open);
                self.next_look = now;
                self.watch(doorbell, &log);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot open the step queues");
                // What somebody else is at is tried again.
                self.refused = Some(id).filter(|_| !error.is_transient());
            }
        }
    }

    /// Listens to the log anew, with a new doorbell.
    pub(crate) fn rewatch(&mut self, doorbell: &mut Doorbell) {
        let log = self.path.with_file_name(log_name());
        if self.open.is_some() {
            self.watch(Some(doorbell), &log);
        }
    }

    fn watch(&self, doorbell: Option<&mut Doorbell>, log: &Path) {
        let Some(doorbell) = doorbell else { return };
        // The same path may be another file now.
        doorbell.unwatch(log);
        if let Err(why) = doorbell.watch_logs(log) {
            tracing::warn!(%why, "step queues are looked at every 30 s only");
        }
    }

    fn begin(&self, id: (u64, u64)) -> Result<Open> {
        let store = StepStore::open(&self.path, self.options.clone())?;
        // Reading makes the log, which stays as long as this is open.
        store.queues()?;
        Ok(Open { store, id, held: 0, pause: None })
    }

    /// Takes back what is due, and tells what is owed. Says whether the summary is another one.
    pub(crate) fn drive(&mut self, now: Monotonic, spool: &Spool) -> bool {
        if let Some(open) = self.open.as_mut().filter(|_| now >= self.next_look) {
            let wait = open.look(spool).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot look after the step queues");
                RETRY
            });
            self.next_look = now + wait;
        }
        let held = self.open.as_ref().map(|open| open.held);
        std::mem::replace(&mut self.said, held) != held
    }

    pub(crate) fn summary(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, |open| json!({ "held": open.held }))
    }
}

impl Open {
    /// How long there is nothing to do.
    fn look(&mut self, spool: &Spool) -> Result<Duration> {
        let observed = self.store.observe()?;
        self.held = observed.held;
        self.store.post_notices(spool)?;
        let next = observed.next_in.map_or(LOOK_INTERVAL, |next| next.clamp(QUIET, LOOK_INTERVAL));
        self.pause = self.pause.map(|pause| pause * 2).filter(|pause| *pause < LOOK_INTERVAL);
        Ok(self.pause.map_or(next, |pause| next.min(pause)))
    }
}

/// Whether something that landed beside the database may be a reason to look.
pub(crate) fn rings(name: &str) -> bool {
    name.strip_prefix(STEPS_FILE) == Some("-wal")
}

fn log_name() -> String {
    format!("{STEPS_FILE}-wal")
}

/// Which file it is, if there is one.
fn id_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
