//! Options of a queue: durability, event log, patience with locks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Queue;
use crate::Result;
use crate::durable::Durability;
use crate::event_log::Recorder;
use crate::requests::PlanGates;
use crate::spool::{Spool, SpoolOptions};

/// Options of a queue, made by [`Queue::options`].
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::events::EventLog;
/// use ensemble_core::{Durability, Queue};
/// # let home = tempfile::tempdir()?;
/// # let (root, logs) = (home.path().join("queue"), home.path().join("logs"));
/// let options = Queue::options()
///     .durability(Durability::Process)             // survives processes, not power cuts
///     .events(EventLog::open(&logs)?)              // one line for each change
///     .lock_patience(Duration::from_millis(500))   // then `Error::Locked`
///     .allow_undecided();                          // no approval of plans here
/// options.clone().open_or_create(&root)?.mailbox("worker-1")?;
/// options.open(&root)?.send("worker-1", "a task")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "ends with `open` or `open_or_create`"]
pub struct QueueOptions {
    options: SpoolOptions,
}

impl Default for QueueOptions {
    /// Messages survive power cuts, and what waits for a decision cannot be settled without it.
    fn default() -> Self {
        Self { options: SpoolOptions::default().with_admission(Arc::new(PlanGates)) }
    }
}

impl QueueOptions {
    /// Sets what a sent message survives; [`Durability::Power`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = durability;
        self
    }

    /// Where each change is recorded, such as an [`EventLog`](crate::event_log::EventLog), or an [`Arc`] of one that
    /// you record in, too; nowhere by default.
    pub fn events(mut self, recorder: impl Recorder + 'static) -> Self {
        self.options.recorder = Arc::new(recorder);
        self
    }

    /// How long a call waits for a lock that another process holds; 5 s by default.
    pub fn lock_patience(mut self, patience: Duration) -> Self {
        self.options.lock_patience = patience;
        self
    }

    /// Lets holders settle requests that have no decision, and receive work whose plan is not approved.
    pub fn allow_undecided(mut self) -> Self {
        self.options.admission = None;
        self
    }

    /// Opens a queue that exists.
    ///
    /// # Errors
    /// As for [`Queue::open`].
    pub fn open(self, root: impl AsRef<Path>) -> Result<Queue> {
        Ok(Queue::from_spool(Spool::open(root.as_ref(), self.options)?))
    }

    /// Opens a queue, and makes it where it is missing.
    ///
    /// # Errors
    /// As for [`Queue::open_or_create`].
    pub fn open_or_create(self, root: impl AsRef<Path>) -> Result<Queue> {
        Ok(Queue::from_spool(Spool::create(root.as_ref(), self.options)?))
    }
}
