//! Step queues in SQLite (seed 003). All steps of a subtask are stored before work on the first
//! begins. They are handed out one after the other and reported with the completion tool.
//!
//! ```text
//! plan.yaml ──add──▶ task_steps ──take──▶ a lease, its files, a focused prompt ──▶ a worker
//!                        ▲                                                            │
//!                        └──────────────────── submit (submit_step_completion) ───────┘
//! ```
//!
//! [`crate::proto::step`] decides the transitions of a step; this module stores them. Each call is
//! one immediate transaction, so a process that is killed at any statement leaves the old or the
//! new state. The tables are described in docs/protocol/steps.md and can be read with `sqlite3`.
//!
//! **Holding.** A step is handed out with an epoch, which only grows, and with locks on its files.
//! While a worker holds a step, no other worker gets a step that works on the same file or on a
//! directory above it.
//!
//! **Leases.** A lease ends when an observer has itself seen no sign of life for the lease's
//! duration on its own monotonic clock ([`ensemble_core::proto::lease`]). The sign is the column `beat`,
//! which each [`StepStore::beat`] changes; timestamps in the tables are for people. Observations
//! are stored in the table `lease_observations` under the id of the boot, so that short-lived
//! commands observe together: see [`StepStore::observe`].
//!
//! **Notices to the orchestrator** are rows in `step_notices`, written in the same transaction. Any
//! process with access to the spool posts pending notices ([`StepStore::post_notices`]). A notice's
//! message id is derived from its row, so repeated posts deliver it once.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::admission::Doorkeeper;
use db::{DbConnection, DbError, DbResult, DbTransaction};
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock, SystemClock};
use ensemble_core::event_log::{NullRecorder, Recorder};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

mod add;
mod change;
mod completion;
mod db;
mod error;
mod files;
mod fixes;
mod leases;
mod look;
mod notices;
mod orders;
mod plan;
pub mod prompt;
mod rows;
mod submit;
mod take;
#[cfg(test)]
mod tests;
mod working;

pub use add::AddOutcome;
pub use completion::{
    ARTIFACTS_MAX, BLOCKERS_MAX, COMPLETION_TOOL, CONTEXT_BYTES_MAX, Completion, CompletionStatus,
    ReportMistakes, SUMMARY_BYTES_MAX, completion_schema,
};
#[cfg(feature = "postgres")]
pub use db::postgres::PostgresOptions;
pub use db::sqlite::SCHEMA_VERSION;
pub use error::StepError;
pub use files::{FilePath, PATH_BYTES_MAX};
pub use leases::ObservedSteps;
pub use look::StuckStep;
pub use notices::Notice;
pub use orders::SplitPart;
pub use plan::{
    Access, LEASE_SECONDS_DEFAULT, LinkedFile, PLAN_BYTES_MAX, PauseScope, PlannedStep, Policy,
    STEPS_MAX, StepPlan,
};
pub use rows::{RunView, StepKey, StepQueueView, StepView};
pub use submit::SubmittedStep;
pub use take::{ClaimOutcome, ClaimRequest, ClaimedStep, NoStep};

/// File name of the database below the state directory.
pub const STEPS_FILE: &str = "steps.db";
/// How long a call waits for other writers, by default.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(5);
const FAULTS_MAX: usize = 20;

#[derive(Clone)]
pub struct StepOptions {
    /// The project's directory; file paths are relative to it.
    pub root: PathBuf,
    pub durability: Durability,
    /// How long a call waits for other writers: for their lock, and then for SQLite's own lock.
    pub patience: Duration,
    pub recorder: Arc<dyn Recorder>,
    /// Asked before an agent takes a task up or hands it in.
    pub door: Option<Arc<dyn Doorkeeper>>,
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// Mailbox that is notified of stuck steps of a queue without an orchestrator.
    pub orchestrator: Option<Name>,
    /// Finds what a worker that lost its step has left, for the next prompt.
    pub leftovers: Option<prompt::FindLeftovers>,
    /// Called with each SQL statement before it runs: for tracing, and for tests that end the
    /// process there.
    pub on_statement: Option<fn(&str)>,
}

impl StepOptions {
    /// Default options for a project in this directory: `power` durability, no recorder.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            durability: Durability::default(),
            patience: BUSY_PATIENCE,
            recorder: Arc::new(NullRecorder),
            door: None,
            clock: Arc::new(SystemClock),
            orchestrator: None,
            leftovers: None,
            on_statement: None,
        }
    }
}

ensemble_core::shared_setters!(StepOptions: durability, recorder, clock);

/// The step queues of one project. Threads may share a store; each process opens its own.
///
/// Calls block on the database, and at most [`StepOptions::patience`] for other writers.
pub struct StepStore {
    db: Mutex<DbConnection>,
    /// Path of the database, or the address of its server.
    path: PathBuf,
    options: StepOptions,
}

impl StepStore {
    /// Opens the database. Creates it, private to its owner, if it does not exist. Its directory
    /// must exist.
    pub fn open(path: &Path, options: StepOptions) -> Result<Self> {
        let db = DbConnection::Sqlite(Box::new(db::sqlite::SqliteDatabase::open(path, &options)?));
        Ok(Self { db: Mutex::new(db), path: path.to_owned(), options })
    }

    /// The queues of a team on a PostgreSQL server, for all hosts. It connects when it is first used, and
    /// makes the tables if there are none.
    #[cfg(feature = "postgres")]
    pub fn on_server(server: PostgresOptions, options: StepOptions) -> Self {
        let path = PathBuf::from(server.place());
        let db = db::postgres::PostgresDatabase::new(server, options.on_statement);
        Self { db: Mutex::new(DbConnection::Postgres(Box::new(db))), path, options }
    }

    /// Waits for a change by another connection of the server, for at most `longest`. Returns whether there was one.
    /// A file cannot notify, so this returns `None` at once.
    pub fn wait_for_news(&self, longest: Duration) -> Result<Option<bool>> {
        self.lock().wait(longest).map_err(|error| error.into_error("read", &self.path))
    }

    /// Reads the whole database. Returns what is wrong with it, in SQLite's words; nothing if it is sound.
    pub fn check_database(&self) -> Result<Vec<String>> {
        self.lock().faults(FAULTS_MAX).map_err(|error| error.into_error("check", &self.path))
    }

    /// Path of the database, or the address of its server.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A number that changes whenever another connection has changed the database. Waiting callers
    /// poll it.
    pub fn data_version(&self) -> Result<i64> {
        self.lock().data_version().map_err(|error| error.into_error("read", &self.path))
    }

    fn lock(&self) -> MutexGuard<'_, DbConnection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&DbTransaction<'_>) -> DbResult<T>) -> Result<T> {
        self.lock().read(read).map_err(|error| error.into_error("read", &self.path))
    }

    /// Runs a transaction that changes everything or nothing.
    fn write<T>(
        &self,
        operation: &'static str,
        write: impl FnOnce(&WriteTransaction<'_, '_>) -> Result<T, DbFailure>,
    ) -> Result<T> {
        let now = self.options.clock.wall().to_string();
        let written = self
            .lock()
            .write(self.options.patience, |tx| write(&WriteTransaction { tx, now: &now }));
        written.map_err(|trouble| match trouble {
            DbFailure::Sql(error) => error.into_error(operation, &self.path),
            DbFailure::Told(error) => error,
        })
    }
}

struct WriteTransaction<'a, 'tx> {
    tx: &'a DbTransaction<'tx>,
    /// The wall-clock time in the tables' format.
    now: &'a str,
}

impl<'tx> Deref for WriteTransaction<'_, 'tx> {
    type Target = DbTransaction<'tx>;

    fn deref(&self) -> &DbTransaction<'tx> {
        self.tx
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum DbFailure {
    Sql(#[from] DbError),
    Told(#[from] Error),
}

impl From<StepError> for DbFailure {
    fn from(error: StepError) -> Self {
        Self::Told(error.into())
    }
}
