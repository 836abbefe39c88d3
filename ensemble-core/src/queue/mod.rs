//! The face of the library: a handle, a guard and a draft.
//!
//! ```text
//! Queue --mailbox--> Mailbox --recv--> Message --settle--> done
//!   \--send(Draft)-->   |                 |----release---> back in the mailbox
//!                       |                 |----reject----> dead letter
//!                    as_holder            \----drop------> back in the mailbox, later each time
//! ```
//!
//! Everything here is a thin layer over [`Spool`](crate::spool::Spool), which has the promises.

mod ack_manager;
#[cfg(feature = "tokio")]
mod ack_manager_async;
mod cancel;
mod conversation;
mod draft;
mod inboxes;
#[cfg(feature = "tokio")]
mod incoming;
mod keep_alive;
mod mailbox;
mod message;
mod name;
mod options;
mod report;
mod request;
/// Refuses settings that no mailbox can have.
fn check_settings(settings: &Settings) -> Result<()> {
    let refuse = |(field, detail)| Err(Error::invalid("the settings", field, detail));
    settings.fault().map_or(Ok(()), refuse)
}

#[cfg(test)]
mod tests;
mod watcher;
mod worker_pane;

use std::path::Path;
use std::sync::Arc;

use crate::message::MessageId;
use crate::spool::{Found, QueueView, Settings, Spool, Swept};
use crate::{Error, Result};

pub use ack_manager::{AckManager, Assignment};
pub use cancel::CancelToken;
pub use draft::Draft;
pub use inboxes::Inboxes;
#[cfg(feature = "tokio")]
pub use incoming::Incoming;
pub use keep_alive::KeepAlive;
pub use mailbox::{Mailbox, Messages};
pub use message::Message;
pub use name::IntoName;
pub use options::QueueOptions;
pub use report::Report;
pub use request::PendingRequest;
pub use watcher::Watcher;
pub use worker_pane::WorkerPane;

/// The result of closures that you pass to the library, such as to [`Mailbox::serve`]: `?` takes any error.
pub type CallbackResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An open queue: a directory of mailboxes.
///
/// Cheap to clone, and shared between threads by cloning. It starts no threads and keeps no global state; open as
/// many queues as you like. Its path is made absolute when it is opened, so the program may change its directory.
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::Queue;
///
/// # let home = tempfile::tempdir()?;
/// # std::env::set_current_dir(home.path())?;
/// let queue = Queue::open_or_create("queue")?;
/// let inbox = queue.mailbox("worker-1")?;
/// inbox.send("count the lines of src/")?;
/// let message = inbox.recv_timeout(Duration::from_secs(60))?.expect("mail");
/// println!("{}", message.body());
/// message.settle()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A program that only sends or looks does not make anything:
///
/// ```
/// # use ensemble_core::Queue;
/// # let home = tempfile::tempdir()?;
/// # Queue::open_or_create(home.path())?.mailbox("worker-1")?;
/// let queue = Queue::open(home.path())?;
/// let id = queue.existing("worker-1")?.send("a task")?;
/// println!("{} has {} mailboxes", queue.root().display(), queue.mailboxes()?.len());
/// assert_eq!(queue.find(&id)?.mailbox.as_str(), "worker-1");
/// println!("{} old messages removed", queue.sweep()?.done_removed); // now and then
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    spool: Arc<Spool>,
}

impl Queue {
    /// Opens a queue that exists, and writes nothing.
    ///
    /// # Errors
    /// [`Error::NoQueue`] if there is none, or every user may write to it.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(root)
    }

    /// Opens a queue, and makes it where it is missing.
    pub fn open_or_create(root: impl AsRef<Path>) -> Result<Self> {
        Self::options().open_or_create(root)
    }

    /// How a queue is to work; ends with `open` or `open_or_create`, as [`std::fs::OpenOptions`] does.
    ///
    /// ```
    /// use ensemble_core::{Durability, Queue};
    /// # let home = tempfile::tempdir()?;
    /// # let root = home.path().join("queue");
    /// let queue = Queue::options().durability(Durability::Process).open_or_create(&root)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options() -> QueueOptions {
        QueueOptions::default()
    }

    pub(crate) fn from_spool(spool: Spool) -> Self {
        Self { spool: Arc::new(spool) }
    }

    /// The queue's directory, as an absolute path.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.spool.root()
    }

    /// The mailbox of this name, made with default [`Settings`] where it is missing. For those who receive;
    /// sending needs [`Queue::send`] or [`Queue::existing`], which never create a mailbox, so that a typo is an error.
    ///
    /// # Errors
    /// The name is not valid, or the directory cannot be created.
    pub fn mailbox(&self, name: impl IntoName) -> Result<Mailbox> {
        self.mailbox_with(name, &Settings::default())
    }

    /// As [`Queue::mailbox`]; the settings are used only where the mailbox is made.
    ///
    /// # Errors
    /// As for [`Queue::mailbox`], or the settings are out of their limits.
    ///
    /// ```
    /// use ensemble_core::{Queue, Settings};
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let inbox = queue.mailbox_with("worker-1", &Settings::default().with_lease_seconds(60))?;
    /// assert_eq!(inbox.settings()?.lease_seconds, 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mailbox_with(&self, name: impl IntoName, settings: &Settings) -> Result<Mailbox> {
        let name = name.into_name()?;
        check_settings(settings)?;
        match self.spool.add_mailbox(&name, settings) {
            Err(Error::MailboxExists { existing }) if existing == name.as_str() => {}
            other => other?,
        }
        Ok(Mailbox::new(self.clone(), name))
    }

    /// The mailbox of this name, which must exist. Writes nothing, so it serves monitors and read-only mounts.
    ///
    /// # Errors
    /// [`Error::NoMailbox`], with the names that are most like it.
    pub fn existing(&self, name: impl IntoName) -> Result<Mailbox> {
        let name = name.into_name()?;
        self.spool.settings(&name)?;
        Ok(Mailbox::new(self.clone(), name))
    }

    /// All mailboxes, by name.
    ///
    /// # Errors
    /// The queue is gone.
    pub fn mailboxes(&self) -> Result<Vec<Mailbox>> {
        let names = self.spool.mailboxes()?;
        Ok(names.into_iter().map(|name| Mailbox::new(self.clone(), name)).collect())
    }

    /// Sends to a mailbox that exists. When this returns, the message is stored as the queue's
    /// [`Durability`](crate::Durability) says.
    ///
    /// # Errors
    /// [`Error::NoMailbox`], [`Error::Full`], [`Error::TooLarge`], a mistake in the draft, or the disk failed.
    ///
    /// ```
    /// # use ensemble_core::{Error, Queue};
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// queue.mailbox("worker-1")?;
    /// queue.send("worker-1", "count the lines of src/")?;
    /// assert!(matches!(queue.send("wroker-1", "lost?"), Err(Error::NoMailbox { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "publish")]
    pub fn send(&self, to: impl IntoName, draft: impl Into<Draft>) -> Result<MessageId> {
        draft.into().send_to(self, to.into_name()?, None)
    }

    /// Finds a message by its id, in any mailbox and state.
    ///
    /// # Errors
    /// [`Error::NoMessage`], or [`Error::Ambiguous`] if several mailboxes have it.
    pub fn find(&self, id: &MessageId) -> Result<Found> {
        self.spool.find(id)
    }

    /// The contents of the queue, for a dashboard: counts, ages and holders of every mailbox. Takes no lock, opens no
    /// message and writes nothing, so it serves another user and a read-only mount, while others work.
    ///
    /// ```
    /// # use ensemble_core::Queue;
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// # queue.mailbox("worker-1")?.send("a task")?;
    /// for mailbox in queue.observe()?.mailboxes {
    ///     println!("{}: {} wait, {} held", mailbox.name, mailbox.counts.queued, mailbox.held.len());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The queue is gone. A mailbox that disappears is left out; one that cannot be read hides no other.
    pub fn observe(&self) -> Result<QueueView> {
        self.spool.view()
    }

    /// Removes what is past its time: settled messages after [`Settings::done_days`], files of dead senders.
    /// Call it now and then, such as once an hour.
    ///
    /// # Errors
    /// A mailbox cannot be listed, or the disk failed.
    pub fn sweep(&self) -> Result<Swept> {
        self.spool.sweep()
    }

    pub(crate) fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }
}
