//! A received message: a guard that returns the message to its mailbox if it is dropped.
//!
//! | the guard is dropped | the message |
//! |---|---|
//! | after `settle`, `release`, `release_after`, `reject` or `keep`, also if that failed; after the `reply` to a plain message | stays where it is |
//! | first delivery, no panic | can be received again at once |
//! | a later delivery, or during a panic | can be received again after 2^delivery seconds, at most five minutes |
//! | in a forked child | stays held by the parent |
//! | while another process holds the mailbox's lock | stays held until its lease expires |
//! | never: exit, abort, a signal | stays held until its lease expires |
//!
//! The delay keeps a loop that forgets to settle from using up all attempts of all its mail within a second. A
//! delivery whose message was never accessed does not count as an attempt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Draft, KeepAlive, Queue};
use crate::env::{Delivery, Lease};
use crate::message::{Envelope, MessageId, Name, PLAIN_TYPE};
use crate::requests::Requests;
use crate::{Error, Result};

/// The longest time for which a dropped message is kept from being received again.
pub(super) const DROP_DELAY_MAX: Duration = Duration::from_secs(300);

/// A received message. It is held under a lease: settle it when the work is done, before the lease expires.
///
/// *A guard that is dropped unsettled returns the message to its mailbox*: at once the first time, later each time after that.
/// The drop tries once, so it is a courtesy and not a promise; what it cannot return comes back when its lease
/// expires. Ends take `&self`, so a call that failed can be tried again; after the first try, a drop leaves the message
/// as it is.
///
/// ```
/// use ensemble_core::Queue;
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let inbox = queue.mailbox("worker-1")?;
/// inbox.send("count the lines of src/")?;
/// let message = inbox.try_recv()?.expect("mail");
/// drop(message); // an early `?` does the same
/// let again = inbox.try_recv()?.expect("the same mail");
/// assert_eq!((again.body(), again.delivery()), ("count the lines of src/", 2));
/// again.settle()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What it says, and the other ends:
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::{Draft, Message, Queue, Result};
///
/// fn work(message: &Message) -> Result<()> {
///     println!("{} {} from {}, for {:?}", message.kind(), message.id(), message.sender(), message.task());
///     println!("{} bytes of {}", message.bytes()?.len(), message.envelope().created_at);
///     let _alive = message.keep_alive()?; // for as long as the work takes; `extend` for a known time
///     match message.json::<Vec<String>>() {
///         Ok(files) if files.is_empty() => message.reject("no files"), // a dead letter
///         Ok(files) if files.len() > 100 => message.release_after(Duration::from_secs(600)),
///         Ok(_) => message.settle(),
///         Err(_) => message.release(), // for another worker
///     }
/// }
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// # let inbox = queue.mailbox("worker-1")?;
/// # inbox.send_json(&["src/a.rs"])?;
/// # let message = inbox.try_recv()?.expect("mail");
/// # message.extend(Duration::from_secs(600))?;
/// # assert_eq!(message.lease().epoch, 1);
/// # work(&message)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a message that is dropped goes back to its mailbox"]
pub struct Message {
    queue: Queue,
    envelope: Envelope,
    lease: Lease,
    /// An end was called: from then on, a drop does nothing.
    is_decided: AtomicBool,
    /// Whether its reply has settled it: the loop that replies and settles is right for any type.
    is_settled: AtomicBool,
    is_read: AtomicBool,
    /// A forked child must not give away what its parent works on.
    process: u32,
}

impl Message {
    pub(super) fn new(queue: Queue, delivery: Delivery) -> Self {
        Self {
            queue,
            envelope: delivery.envelope,
            lease: delivery.lease,
            is_decided: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    pub(super) fn resumed(queue: Queue, envelope: Envelope, lease: Lease) -> Self {
        let duration = Duration::ZERO;
        let message = Self::new(queue, Delivery::new(envelope, lease, duration));
        message.is_read.store(true, Ordering::Relaxed);
        message
    }

    /// The text.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.envelope().body
    }

    /// The content as bytes: the attachment if there is one, otherwise the text.
    ///
    /// # Errors
    /// The attachment is missing, altered or cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        read_content(&self.queue, self.envelope())
    }

    /// The content, read as JSON.
    ///
    /// # Errors
    /// [`Error::Body`] names the message and what does not fit.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let parsed = serde_json::from_slice(&self.bytes()?);
        parsed.map_err(|e| Error::Body { id: self.id().to_string(), detail: e.to_string() })
    }

    /// The message's id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.envelope.id
    }

    /// Who sent it, as the sender says.
    #[must_use]
    pub fn sender(&self) -> &Name {
        &self.envelope.from
    }

    /// The type of message; `message` unless the sender says otherwise.
    #[must_use]
    pub fn kind(&self) -> &Name {
        &self.envelope.kind
    }

    /// The task it is about.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        self.envelope.task_id.as_deref()
    }

    /// How often it was delivered, this time included: look at it before you do something twice.
    #[must_use]
    pub fn delivery(&self) -> u64 {
        self.lease.epoch
    }

    /// Everything the sender wrote.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        self.is_read.store(true, Ordering::Relaxed);
        &self.envelope
    }

    /// The lease under which it is held, for [`Mailbox::resume`](super::Mailbox::resume).
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Says that the work is done. When this returns, the message is never delivered again.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if the lease has expired and others may hold the message; [`Error::Refused`] for a request,
    /// a type that ends in `_request`, that was not [approved](Self::approve) or [declined](Self::decline). After any
    /// error but the first, call it again: the message stays held.
    #[doc(alias = "ack")]
    #[doc(alias = "commit")]
    #[doc(alias = "complete")]
    pub fn settle(&self) -> Result<()> {
        self.decide();
        match self.is_settled() {
            true => Ok(()),
            false => settle_answered(&self.queue, self.envelope(), &self.lease),
        }
    }

    /// Returns it to its mailbox, to be received again at once. Counts as an attempt.
    ///
    /// # Errors
    /// As for [`Message::settle`].
    #[doc(alias = "nack")]
    pub fn release(&self) -> Result<()> {
        self.release_after(Duration::ZERO)
    }

    /// Returns it to its mailbox, to be received again after `delay`. Counts as an attempt; after the last one it becomes a dead
    /// letter.
    ///
    /// # Errors
    /// As for [`Message::settle`].
    pub fn release_after(&self, delay: Duration) -> Result<()> {
        self.decide();
        self.queue.spool().release(&self.lease, delay)
    }

    /// Gives it up: it becomes a dead letter with this reason.
    ///
    /// # Errors
    /// As for [`Message::settle`].
    #[doc(alias = "dead_letter")]
    pub fn reject(&self, reason: impl AsRef<str>) -> Result<()> {
        self.decide();
        self.queue.spool().dead_letter(&self.lease, reason.as_ref())
    }

    /// Keeps it held without this guard. The lease can be stored, or sent to another process, which continues with
    /// [`Mailbox::resume`](super::Mailbox::resume).
    #[must_use = "without its lease, the message is held until that expires"]
    pub fn keep(self) -> Lease {
        self.decide();
        self.lease.clone()
    }

    /// Makes the lease run for `duration` from now, at most a day, where [`keep_alive`](Self::keep_alive) is not needed.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if it has expired; [`Error::Invalid`] for no duration, and for more than a day.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.queue.spool().extend(&self.lease, duration)
    }

    /// Extends the lease at once, and again and again in a thread until the returned guard is dropped: for work of
    /// unknown length.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if it has expired; the mailbox is gone, or the system has no thread left.
    pub fn keep_alive(&self) -> Result<KeepAlive> {
        KeepAlive::start(&self.queue, self.lease.clone())
    }

    /// Answers its sender, with this message's correlation, cause and task. A plain `message` is settled by that, and a
    /// [`Message::settle`] after it changes nothing; any other work stays held until it is settled.
    ///
    /// # Errors
    /// As for [`Queue::send`]: [`Error::NoMailbox`] if the sender has no mailbox. As for [`Message::settle`]: the answer is
    /// sent then.
    pub fn reply(&self, draft: impl Into<Draft>) -> Result<MessageId> {
        let draft = draft.into().answering(self);
        let id =
            draft.send_to(&self.queue, self.envelope.from.clone(), Some(&self.lease.holder))?;
        if self.envelope.kind.as_str() == PLAIN_TYPE {
            self.settle()?;
            self.is_settled.store(true, Ordering::Relaxed);
        }
        Ok(id)
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn is_decided(&self) -> bool {
        self.is_decided.load(Ordering::Relaxed)
    }

    /// Returns it as a drop does, after work that failed, unless it was ended before.
    pub(super) fn return_failed(&self, why: &str) {
        self.is_read.store(true, Ordering::Relaxed);
        if !self.is_decided.swap(true, Ordering::Relaxed) {
            self.give_back(why);
        }
    }

    /// Tries once. If this fails, the message is returned when the lease expires.
    pub(super) fn give_back(&self, why: &str) {
        let delay = drop_delay(self.lease.epoch, std::thread::panicking());
        let is_read = self.is_read.load(Ordering::Relaxed);
        let _ = self.queue.spool().release_dropped(&self.lease, delay, is_read, why);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    pub(super) fn decide(&self) {
        self.is_decided.store(true, Ordering::Relaxed);
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // The process is asked last, because that is a system call.
        if *self.is_decided.get_mut() || self.process != std::process::id() {
            return;
        }
        let is_panicking = std::thread::panicking();
        self.give_back(if is_panicking { "dropped in a panic" } else { "dropped unsettled" });
    }
}

/// The attachment if there is one, otherwise the text.
pub(super) fn read_content(queue: &Queue, envelope: &Envelope) -> Result<Vec<u8>> {
    match &envelope.attachment {
        Some(attachment) => queue.spool().read_attachment(attachment),
        None => Ok(envelope.body.as_bytes().to_vec()),
    }
}

/// Settles a message, unless it is a question without an answer.
pub(super) fn settle_answered(queue: &Queue, envelope: &Envelope, lease: &Lease) -> Result<()> {
    let spool = queue.spool();
    let answered = match spool.options().admission {
        Some(_) => Requests::new(&**spool).refuse_unanswered(envelope),
        None => Ok(()),
    };
    answered.and_then(|()| spool.settle(lease)).map_err(Error::without_area)
}

/// How long a dropped message cannot be received.
fn drop_delay(delivery: u64, is_panicking: bool) -> Duration {
    if delivery <= 1 && !is_panicking {
        return Duration::ZERO;
    }
    let exponent = u32::try_from(delivery).unwrap_or(u32::MAX);
    let seconds = 2u64.checked_pow(exponent).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(DROP_DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_delays_each_further_delivery() {
        let seconds = |delivery, is_panicking| drop_delay(delivery, is_panicking).as_secs();
        assert_eq!([1, 2, 3, 4].map(|delivery| seconds(delivery, false)), [0, 4, 8, 16]);
        assert_eq!(seconds(1, true), 2);
        assert_eq!(drop_delay(u64::MAX, false), DROP_DELAY_MAX);
    }

    #[test]
    fn a_forked_child_gives_nothing_back() {
        let home = tempfile::tempdir().unwrap();
        let inbox = Queue::open_or_create(home.path()).unwrap().mailbox("worker-1").unwrap();
        inbox.send("task").unwrap();
        let mut message = inbox.try_recv().unwrap().unwrap();
        let lease = message.lease().clone();
        // What the copy in a forked child is: the same guard in another process.
        message.process += 1;
        drop(message);
        assert_eq!(inbox.held().unwrap(), [lease]);
    }
}
