//! Mailboxes as directories: the default [`Transport`].
//!
//! When [`Spool::publish`] returns, the message survives the death of every process. One consumer at a
//! time holds it, under a lease with an epoch that fences earlier holders.
//!
//! ```text
//!        publish          receive (= ack)        settle
//!  tmp ---------> new ----------------> cur ----------------> done
//!  S1             S2  <-- front <------ S3                    S4
//!                   release, lease over  \--- dead-letter ---> dead  (S5, reason beside it)
//! ```
//!
//! A message is one file and its state is where the file lies; each arrow is one rename in one
//! file system. `front/` is the part of S2 for messages that do not simply stand in line: urgent,
//! given back or delayed ones. A crash at any instruction leaves a message in one of the states;
//! [`Spool::sweep`] returns what a dead holder held, and removes what a dead sender left in `tmp/`.
//!
//! A shell script can take part with `mv` and `ls`; PROTOCOL.md has the formats.
//!
//! ```
//! use ensemble_core::message::{Envelope, Name};
//! use ensemble_core::spool::{Options, Spool};
//!
//! let home = tempfile::tempdir()?;
//! let spool = Spool::create(&home.path().join("queue"), Options::default())?;
//! let dispatch = Name::new("dispatch")?;
//! spool.add_mailbox(&dispatch, &Default::default())?;
//!
//! spool.publish(&Envelope::new(dispatch.clone(), "task 7 is done\n"))?;
//! let delivery = spool.receive(&dispatch, &dispatch)?.expect("a message waits");
//! assert_eq!(delivery.envelope.body, "task 7 is done\n");
//! spool.settle(&delivery.lease)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! | limit | constant |
//! |---|---|
//! | size of a message | [`ENVELOPE_BYTES_MAX`](crate::message::ENVELOPE_BYTES_MAX) |
//! | unread messages of one sender in one mailbox | [`SENDER_MESSAGES_MAX`], [`SENDER_BYTES_MAX`] |
//! | length of a lease | [`LEASE_SECONDS_MAX`] |
//! | wait for a lock | [`LOCK_PATIENCE`] |
//!
//! The queue needs one local file system with working `rename` and `flock`. Delivery is at least once:
//! after a crash a message may be delivered again, under a higher epoch.

mod admission;
mod attachment;
mod backlog;
mod dead;
mod emptiness;
mod files;
mod find;
mod finish;
mod fsck;
mod gated;
mod glance;
mod listing;
pub(crate) mod mailbox;
mod opened;
mod owners;
mod place;
mod publish;
mod quota;
mod receive;
pub(crate) mod registry;
mod settings;
mod sweep;
mod waiting;
mod wal;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::durable::{self, Dir, Durability, FileId, Modes};
use crate::env::{Clock, Counts, Delivery, Lease, Published, SystemClock, Transport};
use crate::event_log::{NullRecorder, Recorder};
use crate::message::{Envelope, Name};
use crate::{Error, Result};

pub use admission::Admission;
pub use dead::DeadLetter;
pub(crate) use dead::SUPERSEDED;
pub use files::MessageFile;
pub use find::{Found, State};
pub use fsck::{Finding, Repair};
pub use glance::Glance;
pub use owners::Owners;
pub use publish::{Overflow, Unsynced};
pub use quota::{Quota, SENDER_BYTES_MAX, SENDER_MESSAGES_MAX};
pub use receive::Waited;
pub use registry::nearest_names;
pub use settings::{
    ATTEMPTS_MAX_DEFAULT, DONE_DAYS_DEFAULT, LEASE_SECONDS_DEFAULT, LEASE_SECONDS_MAX, Settings,
};
pub use sweep::{Observed, Swept, TMP_AGE_MAX};
pub use wal::{Replayed, WAL_BYTES_DEFAULT};

use mailbox::Mailbox;
use opened::Opened;

/// How long a call waits for another process's lock before it gives up, unless configured.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How a [`Spool`] works; start from `Options::default()` and change fields, or use `with_*`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// What a stored message survives.
    pub durability: Durability,
    /// Permissions of what is created.
    pub modes: Modes,
    /// How long to wait for a lock.
    pub lock_patience: Duration,
    /// Where each change is recorded.
    pub recorder: Arc<dyn Recorder>,
    /// The clock for delays and expiry.
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// Share listings of deep mailboxes with other processes that do so, in
    /// `mailbox/<name>/backlog`. For processes that receive a single message and end; one that
    /// receives many knows its backlog without, and shares it in any case while others receive beside it.
    pub share_backlog: bool,
    /// Whose files a sender's must be; what is another's becomes a dead letter when it is received.
    pub owners: Owners,
    /// What each sender may have waiting in each mailbox; no limit if there is none.
    pub quota: Option<Quota>,
    /// What holders may begin and finish; everything if there is none.
    pub admission: Option<Arc<dyn Admission>>,
    /// Whether what is stored and settled at [`Durability::Power`] is made safe by a log that all
    /// processes share, instead of a sync of each file and directory. Has no effect with `owners`. Off
    /// unless asked for: docs/performance.md says what it gains and where it loses.
    pub wal: bool,
    /// How large a segment of that log grows, in bytes, before its messages are synced all at once.
    pub wal_bytes: u64,
    /// Which start of the machine this is; the system's own word if it is not given. Where it differs from the
    /// one under which the log was written, the log is replayed.
    pub boot: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Power,
            modes: Modes::default(),
            lock_patience: LOCK_PATIENCE,
            recorder: Arc::new(NullRecorder),
            clock: Arc::new(SystemClock),
            share_backlog: false,
            owners: Owners::default(),
            quota: None,
            admission: None,
            wal: false,
            wal_bytes: WAL_BYTES_DEFAULT,
            boot: None,
        }
    }
}

impl Options {
    /// With this durability.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// With changes recorded there, an [`EventLog`](crate::event_log::EventLog) for instance.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// With this admission, [`PlanGates`](crate::requests::PlanGates) for instance.
    #[must_use]
    pub fn with_admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// With this clock for delays and expiry.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock + Send + Sync>) -> Self {
        self.clock = clock;
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("modes", &self.modes)
            .field("share_backlog", &self.share_backlog)
            .field("wal", &self.wal)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// An open queue. Cheap to share between threads (`&Spool`); starts no threads of its own, keeps
/// no global state, and blocks only as long as the disk and the named locks do.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    options: Box<Options>,
    open: Mutex<Opened>,
    /// By mailbox: which `done/` was looked at last, and since when its oldest message has not changed.
    oldest_settled: Mutex<HashMap<Name, (FileId, i128)>>,
}

impl Spool {
    /// Creates a queue, or opens one that exists.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(root: &Path, options: Options) -> Result<Self> {
        if durable::stat_path(root)?.is_none() {
            if let Some(parent) = root.parent() {
                std::fs::create_dir_all(parent)
                    .map_err(|e| Error::io("create directory", parent, e))?;
            }
            let parent = Dir::open(
                root.parent()
                    .filter(|p| !p.as_os_str().is_empty())
                    .unwrap_or_else(|| Path::new(".")),
            )?;
            let name = root.file_name().and_then(|n| n.to_str()).unwrap_or("queue");
            parent.ensure_child_safe(name, options.modes, options.durability)?;
        }
        let queue = Dir::open(root)?;
        for child in ["tmp", "mailbox", "reports", "tasks", "ack", "requests"] {
            queue.ensure_child(child, options.modes)?;
        }
        if options.durability == Durability::Power {
            queue.sync()?;
        }
        Self::open(root, options)
    }

    /// Opens a queue. What a power cut has left of it is mended first, from its write-ahead log.
    ///
    /// # Errors
    /// [`Error::NoQueue`] if there is none, or every user may write to it; or the log cannot be
    /// replayed, without which messages that were acknowledged may be missing.
    pub fn open(root: &Path, options: Options) -> Result<Self> {
        let spool = Self {
            root: root.to_owned(),
            options: Box::new(options),
            open: Mutex::default(),
            oldest_settled: Mutex::default(),
        };
        spool.mailboxes_dir()?;
        wal::replay_if_restarted(&spool)?;
        Ok(spool)
    }

    /// The root directory of the queue.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the queue's messages survive.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.options.durability
    }

    /// How this queue works, for what is built on it.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn queue_dir(&self) -> Result<Dir> {
        let missing = || Error::NoQueue { path: self.root.clone() };
        let stat = durable::stat_path(&self.root)?.ok_or_else(missing)?;
        mailbox::refuse_open_to_all(&self.root, stat.mode, self.options.modes)?;
        if stat.is_directory { Dir::open(&self.root) } else { Err(missing()) }
    }

    fn mailboxes_dir(&self) -> Result<Dir> {
        let queue = self.queue_dir()?;
        queue.open_child("mailbox").map_err(|error| match error.io_kind() {
            Some(std::io::ErrorKind::NotFound) => Error::NoQueue { path: self.root.clone() },
            _ => error,
        })
    }

    /// The open mailbox, opened anew if the directory was replaced since.
    fn mailbox(&self, name: &Name) -> Result<Arc<Mailbox>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = open.get(name) {
            return Ok(mailbox);
        }
        let queue = self.queue_dir()?;
        let mailboxes = self.mailboxes_dir()?;
        if mailboxes.stat(name.as_str())?.is_none() {
            return Err(self.no_mailbox(name));
        }
        Ok(open.insert(Mailbox::open(queue, &mailboxes, name, &self.options)?))
    }

    fn record(&self, kind: &str, actor: &Name, data: serde_json::Value) {
        self.options.recorder.record(kind, actor.as_str(), data);
    }

    /// As [`Spool::record`], for what happens to every message: the data is made only if a recorder
    /// wants it.
    fn record_often(&self, kind: &str, actor: &Name, data: impl FnOnce() -> serde_json::Value) {
        if self.options.recorder.is_recording() {
            self.record(kind, actor, data());
        }
    }

    fn wall_millis(&self) -> u64 {
        u64::try_from(self.options.clock.wall().unix_millis()).unwrap_or(0)
    }
}

impl Transport for Spool {
    fn publish(&self, envelope: &Envelope) -> Result<Published> {
        Self::publish(self, envelope)
    }
    fn receive(&self, mailbox: &Name, holder: &Name) -> Result<Option<Delivery>> {
        Self::receive(self, mailbox, holder)
    }
    fn settle(&self, lease: &Lease) -> Result<()> {
        Self::settle(self, lease)
    }
    fn release(&self, lease: &Lease, delay: Duration) -> Result<()> {
        Self::release(self, lease, delay)
    }
    fn extend(&self, lease: &Lease, duration: Duration) -> Result<()> {
        Self::extend(self, lease, duration)
    }
    fn scan(&self, mailbox: &Name) -> Result<Counts> {
        Self::counts(self, mailbox)
    }
}
