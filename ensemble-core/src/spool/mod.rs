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
//! A message is one file and its state is the directory the file is in; each arrow is one rename
//! within one file system. `front/` is the part of S2 for messages that are not simply first in,
//! first out: urgent, returned or delayed ones. A crash at any instruction leaves a message in one
//! of the states. [`Spool::sweep`] returns what a dead holder held, and removes what a dead sender
//! left in `tmp/`.
//!
//! A shell script can take part with `mv` and `ls`; PROTOCOL.md has the formats.
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

// rustdoc shows the blocks of `impl Spool` in the order of these modules, which is that of use. The table of
// `Spool` below names them, and a test compares both with the code.
mod open;

pub(crate) mod registry;

mod publish;

mod attachment;

mod receive;

mod receive_wait;

mod finish;

mod former;

mod dead;

mod find;

mod glance;

mod gated;

mod files;

pub(crate) mod calendar;

mod sweep;
mod syncing;

mod fsck;

mod owners;

// The parts of those modules.
mod admission;
mod backlog;
mod emptiness;
mod error;
mod listing;
pub(crate) mod mailbox;
mod opened;
mod place;
mod quota;
mod settings;
mod strays;
mod twins;
mod view;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::durable::{self, Dir, Durability, FileId, FileModes, SyncMany};
use crate::env::{Clock, Counts, Delivery, Lease, PublishOutcome, SystemClock, Transport};
use crate::error::allow_missing;
use crate::event_log::{NullRecorder, Recorder};
use crate::message::{Envelope, Name};
use crate::proto::calendar::Calendar;
use crate::{Error, Result};

pub use crate::leases::ObservedLease;
pub use crate::mail::{LEASE_SECONDS_MAX, Quota, RECALLED, SENDER_BYTES_MAX, SENDER_MESSAGES_MAX};
pub use admission::{Admission, Standstill, begins_work, refusal_to_begin};
pub use attachment::ATTACHMENT_BYTES_MAX;
pub(crate) use attachment::ATTACHMENTS;
pub use dead::DeadLetter;
pub use error::MailboxError;
pub use files::MessageFile;
pub use find::{Found, State, lease_lost};
pub use former::FormerHolding;
pub use fsck::{QueueFinding, RepairAction};
pub use glance::{Glance, Glances};
pub use owners::Owners;
pub use publish::{MailboxOverflow, UnsyncedMessages};
pub(crate) use receive_wait::FileWait;
pub use receive_wait::MailWait;
#[cfg(feature = "tokio")]
pub(crate) use receive_wait::SharedWatcher;
pub use registry::nearest_names;
pub use settings::{ATTEMPTS_MAX_DEFAULT, DONE_DAYS_DEFAULT, LEASE_SECONDS_DEFAULT, Settings};
pub use sweep::{Swept, TMP_AGE_MAX};
pub use view::{HeldView, MailboxView, QueueView};

use mailbox::OpenMailbox;
use opened::MailboxCache;

/// How long a call waits for another process's lock before it gives up, unless configured.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Says which mailbox the agent of a name reads.
pub type AgentAddresses = Arc<dyn Fn(&Name) -> Name + Send + Sync>;

/// How a [`Spool`] works; start from `SpoolOptions::default()` and change fields, or use `with_*`.
#[derive(Clone)]
pub struct SpoolOptions {
    pub durability: Durability,
    pub modes: FileModes,
    pub lock_patience: Duration,
    pub recorder: Arc<dyn Recorder>,
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// Share listings of deep mailboxes with other processes that do so, in `mailbox/<name>/backlog`. For processes
    /// that receive a single message and end. A process that receives many knows its backlog without, and shares it
    /// in any case while others receive beside it.
    pub share_backlog: bool,
    /// Whose files a sender's must be; what is another's becomes a dead letter when it is received.
    pub owners: Owners,
    pub quota: Option<Quota>,
    /// Decides what holders may begin and finish; everything if there is none.
    pub admission: Option<Arc<dyn Admission>>,
    pub addresses: Option<AgentAddresses>,
    /// Directory in which [`Spool::wait_for_mail`] keeps what it observed of leases, in a file for each
    /// mailbox. Only processes that wait for a short time and end need it: their successors continue
    /// instead of giving each holder a new lease. It is created where it is missing.
    pub observations: Option<PathBuf>,
    /// Id of the machine's boot; the system's own if it is not given. The calendar is kept by it.
    pub boot: Option<String>,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Power,
            modes: FileModes::default(),
            lock_patience: LOCK_PATIENCE,
            recorder: Arc::new(NullRecorder),
            clock: Arc::new(SystemClock),
            share_backlog: false,
            owners: Owners::default(),
            quota: None,
            admission: None,
            addresses: None,
            observations: None,
            boot: None,
        }
    }
}

impl SpoolOptions {
    pub fn with_admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }
}

crate::shared_setters!(SpoolOptions: durability, recorder, clock);

impl fmt::Debug for SpoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolOptions")
            .field("durability", &self.durability)
            .field("modes", &self.modes)
            .field("share_backlog", &self.share_backlog)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// A `done/`, the calendar by which it was checked, and since when its oldest message has not changed.
type OldestSettled = (FileId, i64, i64);

/// An open queue. Cheap to share between threads (`&Spool`); starts no threads that outlive a call and
/// keeps no global state. Calls block only as long as the disk and the named locks do; only
/// [`wait_for_mail`](Self::wait_for_mail) waits for a message.
///
/// The methods, in the order of use:
///
/// | for | call | in |
/// |---|---|---|
/// | Open a queue | [`create`](Self::create), [`open`](Self::open), [`root`](Self::root), [`durability`](Self::durability) | `open.rs` |
/// | Mailboxes | [`add_mailbox`](Self::add_mailbox), [`settings`](Self::settings), [`configure_mailbox`](Self::configure_mailbox), [`remove_mailbox`](Self::remove_mailbox), [`mailboxes`](Self::mailboxes) | `registry.rs` |
/// | Publish | [`publish`](Self::publish), [`publish_delayed`](Self::publish_delayed), [`publish_batch`](Self::publish_batch), [`publish_unsynced`](Self::publish_unsynced), [`overflow`](Self::overflow) | `publish.rs` |
/// | Attachments | [`attach`](Self::attach), [`attachment_path`](Self::attachment_path), [`read_attachment`](Self::read_attachment) | `attachment.rs` |
/// | Receive | [`receive`](Self::receive), [`receive_batch`](Self::receive_batch), [`receive_id`](Self::receive_id), [`receive_done`](Self::receive_done) | `receive.rs` |
/// | Wait for mail | [`wait_for_mail`](Self::wait_for_mail) | `receive_wait.rs` |
/// | Settle, release, extend | [`settle`](Self::settle), [`settle_batch`](Self::settle_batch), [`release`](Self::release), [`take_back`](Self::take_back), [`extend`](Self::extend) | `finish.rs` |
/// | Former holders | [`former_holders`](Self::former_holders) | `former.rs` |
/// | Dead letters | [`dead_letter`](Self::dead_letter), [`dead_letter_waiting`](Self::dead_letter_waiting), [`dead_letters`](Self::dead_letters), [`note_told`](Self::note_told), [`restate_dead`](Self::restate_dead), [`redrive`](Self::redrive), [`drop_dead`](Self::drop_dead) | `dead.rs` |
/// | Find and read | [`state`](Self::state), [`find`](Self::find), [`peek`](Self::peek), [`unfinished`](Self::unfinished) | `find.rs` |
/// | Count | [`counts`](Self::counts), [`waiting`](Self::waiting), [`due_ids`](Self::due_ids), [`glance`](Self::glance), [`glances`](Self::glances) | `glance.rs` |
/// | Count for one holder | [`due_ids_for`](Self::due_ids_for) | `gated.rs` |
/// | Files | [`message_files`](Self::message_files) | `files.rs` |
/// | Time | [`calendar`](Self::calendar), [`keep_calendar`](Self::keep_calendar), [`age`](Self::age), [`now`](Self::now) | `calendar.rs` |
/// | Sweep and expire | [`sweep`](Self::sweep), [`observe`](Self::observe), [`expire`](Self::expire) | `sweep.rs` |
/// | Check and repair | [`fsck`](Self::fsck) | `fsck.rs` |
/// | Owners of files | [`refuse_owner`](Self::refuse_owner), [`proves_sender`](Self::proves_sender) | `owners.rs` |
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    options: Box<SpoolOptions>,
    open: Mutex<MailboxCache>,
    /// By mailbox: which `done/` was checked last, by which calendar, and since when, in its steady time, the oldest
    /// message has not changed.
    oldest_settled: Box<Mutex<HashMap<Name, OldestSettled>>>,
    /// The queue's calendar as this process last read it.
    calendar: Box<Mutex<Option<Calendar>>>,
    twins: Box<Mutex<twins::CaseTwins>>,
    waits: Box<receive_wait::QueueWaits>,
    /// How the files of a batch are synced.
    syncs: Arc<SyncMany>,
}

impl Spool {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    pub(crate) fn recorder(&self) -> &dyn Recorder {
        &*self.options.recorder
    }

    /// How this queue works, for what is built on it.
    pub(crate) fn options(&self) -> &SpoolOptions {
        &self.options
    }

    pub(crate) fn queue_dir(&self) -> Result<Dir> {
        let missing = || Error::NoQueue { path: self.root.clone() };
        let stat = durable::stat_path(&self.root)?.ok_or_else(missing)?;
        mailbox::refuse_open_to_all(&self.root, stat.mode, self.options.modes)?;
        if stat.is_directory { Dir::open(&self.root) } else { Err(missing()) }
    }

    fn mailboxes_dir(&self) -> Result<Dir> {
        let mailboxes = allow_missing(self.queue_dir()?.open_child("mailbox"))?;
        mailboxes.ok_or_else(|| Error::NoQueue { path: self.root.clone() })
    }

    /// The open mailbox, opened again if the directory was replaced since.
    fn mailbox(&self, name: &Name) -> Result<Arc<OpenMailbox>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = open.get(name) {
            return Ok(mailbox);
        }
        self.waits.watcher.forget_idle();
        let opened = match self.open_mailbox(name) {
            // The program has descriptors for other things, too: it gets those of the other mailboxes.
            Err(error) if error.is_out_of_descriptors() && open.close_all() => {
                self.open_mailbox(name)
            }
            opened => opened,
        };
        opened.map(|mailbox| open.insert(mailbox))
    }

    fn open_mailbox(&self, name: &Name) -> Result<OpenMailbox> {
        let queue = self.queue_dir()?;
        let mailboxes = self.mailboxes_dir()?;
        if mailboxes.stat(name.as_str())?.is_none() {
            return Err(self.no_mailbox(name));
        }
        OpenMailbox::open(queue, &mailboxes, name, &self.options)
    }

    /// The mailbox if it is open, which may have been moved away since.
    fn known_mailbox(&self, name: &Name) -> Option<Arc<OpenMailbox>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get_known(name)
    }

    fn record(&self, kind: &str, actor: &Name, data: serde_json::Value) {
        self.options.recorder.record(kind, actor.as_str(), data);
    }
}

impl Transport for Spool {
    crate::forward_calls! {
        publish(envelope: &Envelope) -> PublishOutcome;
        receive(mailbox: &Name, holder: &Name) -> Option<Delivery>;
        settle(lease: &Lease) -> ();
        release(lease: &Lease, delay: Duration) -> ();
        extend(lease: &Lease, duration: Duration) -> ();
    }

    fn scan(&self, mailbox: &Name) -> Result<Counts> {
        Self::counts(self, mailbox)
    }
}
