//! One mailbox, as one consumer sees it.

use std::iter::FusedIterator;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{CancelToken, Draft, IntoName, Message, Queue, check_settings};
use crate::Result;
use crate::env::{Counts, Lease};
use crate::message::{Envelope, MessageId, Name};
use crate::spool::{DeadLetter, Found, MailWait, Settings, Spool, State};
use crate::watch::POLL_WITH_EVENTS;

/// A mailbox, and the name under which this handle receives from it.
///
/// Cheap to clone. Any number of threads and processes may receive from one mailbox: each message goes to one of
/// them. Give each its own holder name with [`as_holder`](Self::as_holder), so that [`held`](Self::held) tells
/// them apart; the default is the mailbox's name.
///
/// "Nothing there" is `Ok(None)`, never an error.
///
/// ```
/// use ensemble_core::{CancelToken, Queue};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let stop = CancelToken::new()?;
/// let pool = queue.mailbox("pool")?.until(&stop);
/// let workers: Vec<_> = (1..=3)
///     .map(|number| {
///         let inbox = pool.as_holder(format!("worker-{number}"))?;
///         Ok(std::thread::spawn(move || -> ensemble_core::Result<()> {
///             while let Some(message) = inbox.recv()? {
///                 println!("{} does {}", inbox.holder(), message.body());
///                 message.settle()?;
///             }
///             Ok(())
///         }))
///     })
///     .collect::<ensemble_core::Result<_>>()?;
/// pool.send_all((1..=9).map(|number| format!("task {number}")))?;
/// while pool.counts()?.settled < 9 {
///     std::thread::yield_now();
/// }
/// stop.cancel();
/// for worker in workers {
///     worker.join().unwrap()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Looking is not a delivery, and what was given up can be put back:
///
/// ```
/// use ensemble_core::{Queue, State};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let inbox = queue.mailbox("worker-1")?;
/// let id = inbox.send("count the lines of src/")?;
/// assert!(matches!(inbox.state(&id)?, Some(State::Queued { .. })));
/// assert_eq!(inbox.peek(&id)?.body, "count the lines of src/");
/// assert_eq!(inbox.unfinished(10)?[0].id, id);
///
/// inbox.try_recv()?.expect("mail").reject("there is no src/")?;
/// for letter in inbox.dead_letters()? {
///     println!("{} in {}: {}", letter.id, inbox.name(), letter.reason);
///     inbox.redrive(&letter.id)?;
/// }
/// inbox.configure(&inbox.settings()?.with_attempts_max(3))?;
/// for message in inbox.recv_many(10)? {
///     message.settle()?;
/// }
/// inbox.remove(false)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mailbox {
    queue: Queue,
    name: Name,
    holder: Name,
    cancel: Option<CancelToken>,
}

impl Mailbox {
    pub(super) fn new(queue: Queue, name: Name) -> Self {
        Self { queue, holder: name.clone(), name, cancel: None }
    }

    /// The mailbox's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The name under which this handle receives and sends.
    #[must_use]
    pub fn holder(&self) -> &Name {
        &self.holder
    }

    /// The same mailbox for another holder.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn as_holder(&self, holder: impl IntoName) -> Result<Self> {
        Ok(Self { holder: holder.into_name()?, ..self.clone() })
    }

    /// The same mailbox; every wait of the returned handle that blocks a thread ends once the token is cancelled. An
    /// async wait ends when you drop its future.
    #[must_use]
    pub fn until(&self, cancel: &CancelToken) -> Self {
        Self { cancel: Some(cancel.clone()), ..self.clone() }
    }

    /// Sends to this mailbox, in the holder's name unless the draft has a sender.
    ///
    /// # Errors
    /// As for [`Queue::send`].
    #[doc(alias = "publish")]
    pub fn send(&self, draft: impl Into<Draft>) -> Result<MessageId> {
        draft.into().send_to(&self.queue, self.name.clone(), Some(&self.holder))
    }

    /// Sends a value as JSON.
    ///
    /// # Errors
    /// As for [`Queue::send`], or the value cannot be written as JSON.
    pub fn send_json(&self, value: &impl Serialize) -> Result<MessageId> {
        self.send(Draft::json(value))
    }

    /// Sends several messages with one sync of the directory. Delays are not possible here.
    ///
    /// # Errors
    /// As for [`Queue::send`]. After a mistake in a draft none is sent; where one cannot be stored, those before it are.
    pub fn send_all<D: Into<Draft>>(
        &self,
        drafts: impl IntoIterator<Item = D>,
    ) -> Result<Vec<MessageId>> {
        let write = |draft: D| {
            let draft = draft.into().without_delay()?;
            draft.into_envelope(&self.queue, self.name.clone(), Some(&self.holder))
        };
        let envelopes = drafts.into_iter().map(write).collect::<Result<Vec<Envelope>>>()?;
        self.queue.spool().publish_batch(&envelopes)?;
        Ok(envelopes.into_iter().map(|envelope| envelope.id).collect())
    }

    /// Receives the next message that waits: urgent ones first, then the oldest. Never waits.
    ///
    /// Receiving is a delivery: look with [`counts`](Self::counts) or [`peek`](Self::peek) if you do not mean to work.
    ///
    /// # Errors
    /// The mailbox is gone or the disk failed.
    #[doc(alias = "receive")]
    pub fn try_recv(&self) -> Result<Option<Message>> {
        let delivery = self.queue.spool().receive(&self.name, &self.holder)?;
        Ok(delivery.map(|delivery| Message::new(self.queue.clone(), delivery)))
    }

    /// Receives the next message; waits for one where none is due. `None` only once the token of
    /// [`until`](Self::until) is cancelled. First returns what dead holders held, so no watcher is needed.
    ///
    /// Blocks the thread: inside an async runtime, call it in a thread for blocking work.
    ///
    /// # Errors
    /// As for [`Mailbox::try_recv`].
    #[doc(alias = "receive_wait")]
    pub fn recv(&self) -> Result<Option<Message>> {
        self.recv_until(None)
    }

    /// As [`Mailbox::recv`], waiting for at most this long.
    ///
    /// # Errors
    /// As for [`Mailbox::try_recv`].
    pub fn recv_timeout(&self, longest: Duration) -> Result<Option<Message>> {
        self.recv_until(deadline_in(longest))
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<Option<Message>> {
        if self.is_cancelled() {
            return Ok(None);
        }
        if let Some(message) = self.try_recv()? {
            return Ok(Some(message));
        }
        let mut wait = self.begin_wait();
        while !self.is_cancelled() {
            if let Some(message) = self.receive_in(&mut wait)? {
                return Ok(Some(message));
            }
            if self.is_over(deadline) {
                return Ok(None);
            }
            self.sleep(&mut wait, deadline)?;
        }
        Ok(None)
    }

    pub(super) fn token(&self) -> Option<&CancelToken> {
        self.cancel.as_ref()
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn receive_in(&self, wait: &mut MailWait<Arc<Spool>>) -> Result<Option<Message>> {
        Ok(wait.receive()?.map(|delivery| Message::new(self.queue.clone(), delivery)))
    }

    pub(super) fn begin_wait(&self) -> MailWait<Arc<Spool>> {
        MailWait::begin(Arc::clone(self.queue.spool()), &self.name, &self.holder)
    }

    pub(super) fn sleep(
        &self,
        wait: &mut MailWait<Arc<Spool>>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let cancel = self.cancel.as_ref().map(|token| token.as_fd());
        wait.sleep_beside(left.unwrap_or(POLL_WITH_EVENTS), cancel)
    }

    pub(super) fn is_over(&self, deadline: Option<Instant>) -> bool {
        self.is_cancelled() || deadline.is_some_and(|at| at <= Instant::now())
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Receives one message by its id, such as one that a person has picked from [`unfinished`](Self::unfinished).
    /// `None` if it does not wait here, or is not due yet.
    ///
    /// # Errors
    /// As for [`Mailbox::try_recv`].
    ///
    /// ```
    /// # use ensemble_core::Queue;
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let inbox = queue.mailbox("worker-1")?;
    /// let ids = inbox.send_all(["first", "second"])?;
    /// let second = inbox.recv_id(&ids[1])?.expect("the second");
    /// assert_eq!(second.body(), "second");
    /// assert!(inbox.recv_id(&ids[1])?.is_none(), "it is held");
    /// # second.settle()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recv_id(&self, id: &MessageId) -> Result<Option<Message>> {
        let delivery = self.queue.spool().receive_id(&self.name, id, &self.holder)?;
        Ok(delivery.map(|delivery| Message::new(self.queue.clone(), delivery)))
    }

    /// Receives up to `most` messages that wait. Each has its own lease, and all leases run from now: receive no more
    /// than you can finish before they expire.
    ///
    /// # Errors
    /// As for [`Mailbox::try_recv`].
    pub fn recv_many(&self, most: usize) -> Result<Vec<Message>> {
        let taken = self.queue.spool().receive_batch(&self.name, &self.holder, most)?;
        Ok(taken.into_iter().map(|delivery| Message::new(self.queue.clone(), delivery)).collect())
    }

    /// Iterates over messages as they come: each step is a [`recv`](Self::recv). Ends with the token, or after an
    /// error.
    ///
    /// ```
    /// # use ensemble_core::{CancelToken, Queue};
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let stop = CancelToken::new()?;
    /// let inbox = queue.mailbox("worker-1")?.until(&stop);
    /// inbox.send("last")?;
    /// for message in inbox.messages() {
    ///     let message = message?;
    ///     message.settle()?;
    ///     stop.cancel();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn messages(&self) -> Messages {
        Messages { mailbox: Some(self.clone()) }
    }

    /// Resumes a message from a [`Lease`] that was kept, in this process or another.
    ///
    /// ```
    /// # use ensemble_core::Queue;
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let inbox = queue.mailbox("worker-1")?;
    /// inbox.send("a long task")?;
    /// let lease = inbox.try_recv()?.expect("mail").keep();
    /// let stored = serde_json::to_string(&lease)?; // or, after a crash: `inbox.held()?`
    /// inbox.resume(serde_json::from_str(&stored)?)?.settle()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) if the message is not held under this lease any more.
    pub fn resume(&self, lease: Lease) -> Result<Message> {
        let spool = self.queue.spool();
        let duration = spool.settings(&lease.mailbox)?.lease_duration();
        spool.extend(&lease, duration)?;
        let envelope = spool.peek(&lease.mailbox, &lease.id)?;
        Ok(Message::resumed(self.queue.clone(), envelope, lease))
    }

    /// The leases of this holder: after a crash, [`resume`](Self::resume) each, or release it.
    pub fn held(&self) -> Result<Vec<Lease>> {
        let held = self.queue.spool().observe(&self.name)?.into_iter().map(|held| held.lease);
        Ok(held.filter(|lease| lease.holder == self.holder).collect())
    }

    /// How many messages are in each state.
    pub fn counts(&self) -> Result<Counts> {
        self.queue.spool().counts(&self.name)
    }

    /// Reads a message in any state, without receiving it.
    ///
    /// # Errors
    /// [`Error::NoMessage`](crate::Error::NoMessage) if it is not in this mailbox.
    pub fn peek(&self, id: &MessageId) -> Result<Envelope> {
        self.queue.spool().peek(&self.name, id)
    }

    /// Where a message of this mailbox is on its way; `None` if it is not in this mailbox.
    pub fn state(&self, id: &MessageId) -> Result<Option<State>> {
        self.queue.spool().state(&self.name, id)
    }

    /// The first `most` messages that wait or are held, in the order in which they would be received.
    pub fn unfinished(&self, most: usize) -> Result<Vec<Found>> {
        self.queue.spool().unfinished(&self.name, most)
    }

    /// The messages that were given up, oldest first.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        self.queue.spool().dead_letters(&self.name)
    }

    /// Puts a dead letter back into the mailbox, with all its attempts.
    ///
    /// # Errors
    /// [`Error::NoMessage`](crate::Error::NoMessage) if it is not a dead letter.
    pub fn redrive(&self, id: &MessageId) -> Result<()> {
        self.queue.spool().redrive(&self.name, id)
    }

    /// The mailbox's settings, as they are on disk now.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn settings(&self) -> Result<Settings> {
        self.queue.spool().settings(&self.name)
    }

    /// Changes the mailbox's settings.
    ///
    /// # Errors
    /// They are out of their limits.
    pub fn configure(&self, settings: &Settings) -> Result<()> {
        check_settings(settings)?;
        self.queue.spool().configure_mailbox(&self.name, settings)
    }

    /// Removes the mailbox with all that is settled and dead in it.
    ///
    /// # Errors
    /// Messages wait or are held, and `force` is not set: nothing was removed.
    pub fn remove(self, force: bool) -> Result<()> {
        self.queue.spool().remove_mailbox(&self.name, force)
    }
}

/// When a wait of this length ends; `None` for one that no clock can measure.
pub(super) fn deadline_in(longest: Duration) -> Option<Instant> {
    Instant::now().checked_add(longest)
}

/// A blocking iterator over messages; see [`Mailbox::messages`].
#[derive(Debug)]
pub struct Messages {
    mailbox: Option<Mailbox>,
}

impl Iterator for Messages {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.mailbox.as_ref()?.recv().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.mailbox = None;
        }
        next
    }
}

impl FusedIterator for Messages {}
