//! Receiving in a tokio runtime: the same wait as [`Mailbox::recv`], with a task in the place of the thread.
//!
//! ```text
//! Idle --poll--> Looking (a blocking thread looks) --a message--> Idle
//!                   |  ^
//!      nothing there|  | a file landed, a message is due, a lease expired
//!                   v  |
//!                 Sleeping (until it is rung, or the next look)
//! ```
//!
//! A future that is dropped leaves the state where it is: what a look has taken, the next `recv` returns. All waits of
//! a queue share one inotify instance. While tasks wait, one task of their runtime reads it.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::message::settle_answered;
use super::{Draft, IntoName, Mailbox, Message};
use crate::spool::{FileWait, MailWait, SharedWatcher, Spool};
use crate::watch::{POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS};
use crate::{Error, Result};

type OwnedWait = MailWait<Arc<Spool>>;

/// Receives the messages of a mailbox in a tokio runtime; made by [`Mailbox::incoming`]. It is a `Stream`, too.
///
/// *Cancel-safe*: a future of [`recv`](Self::recv) that is dropped takes no message with it and uses up no attempt.
/// Dropping the whole `Incoming` returns what it had just received.
///
/// ```
/// # use ensemble_core::Queue;
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let inbox = queue.mailbox("worker-1")?;
/// inbox.send("count the lines of src/")?;
/// let mut jobs = inbox.incoming()?;
/// let job = jobs.recv().await?;
/// println!("{}", job.body());
/// job.settle_async().await?;
/// # Ok::<(), ensemble_core::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Incoming {
    mailbox: Mailbox,
    wanted: WantedMail,
    state: IncomingState,
    runtime: Handle,
}

/// The messages that a wait is for.
#[derive(Clone, Debug)]
enum WantedMail {
    Next,
    /// The answer to a question, by its correlation.
    Answer(String),
}

enum IncomingState {
    Idle(OwnedWait),
    Looking(JoinHandle<MailLook>),
    Sleeping(OwnedWait, Pin<Box<Sleep>>),
    /// Only during a poll.
    Moved,
}

/// The result of a look in a blocking thread.
struct MailLook {
    wait: OwnedWait,
    found: Result<Option<Message>>,
    /// How long to sleep where nothing lands.
    nap: Result<Duration>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("mailbox", &self.mailbox.name()).finish_non_exhaustive()
    }
}

/// # In a tokio runtime
impl Mailbox {
    /// Receives in this tokio runtime, which needs its IO and time drivers; [`Incoming`] has an example.
    ///
    /// # Errors
    /// The caller is not in a runtime.
    pub fn incoming(&self) -> Result<Incoming> {
        self.incoming_of(WantedMail::Next)
    }

    fn incoming_of(&self, wanted: WantedMail) -> Result<Incoming> {
        let runtime = current_runtime()?;
        let state = IncomingState::Idle(self.begin_wait());
        Ok(Incoming { mailbox: self.clone(), wanted, state, runtime })
    }

    /// As [`Mailbox::ask`], in a tokio runtime.
    pub async fn ask_async(
        &self,
        to: impl IntoName,
        draft: impl Into<Draft>,
        patience: Duration,
    ) -> Result<Option<Message>> {
        let (draft, correlation) = draft.into().asking(patience);
        let to = to.into_name()?;
        // Begun before the question is sent, so that no answer comes unseen.
        let mut answers = self.incoming_of(WantedMail::Answer(correlation))?;
        let (queue, sender) = (self.queue().clone(), self.name().clone());
        in_background(move || draft.send_to(&queue, to, Some(&sender))).await?;
        tokio::time::timeout(patience, answers.recv()).await.ok().transpose()
    }
}

impl Message {
    /// As [`Message::settle`], in a thread for blocking work of the tokio runtime.
    pub async fn settle_async(&self) -> Result<()> {
        let (queue, lease) = (self.queue().clone(), self.lease().clone());
        self.decide();
        if self.is_settled() {
            return Ok(());
        }
        let envelope = self.envelope().clone();
        in_background(move || settle_answered(&queue, &envelope, &lease)).await
    }

    /// Calls `work` with this message in a thread for blocking work, such as to reply.
    ///
    /// ```
    /// # use ensemble_core::{Message, Result};
    /// # async fn answer(job: Message) -> Result<()> {
    /// job.blocking(|job| job.reply("42 lines").map(drop)).await
    /// # }
    /// ```
    pub async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        in_background(move || work(self)).await
    }
}

impl Incoming {
    /// Receives the next message, and waits for one where none is due.
    ///
    /// # Errors
    /// As for [`Mailbox::try_recv`], or the runtime is shutting down. It can be called again.
    pub async fn recv(&mut self) -> Result<Message> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// One step of [`recv`](Self::recv), for futures that are written by hand.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Message>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, IncomingState::Moved) {
                IncomingState::Moved => IncomingState::Idle(self.mailbox.begin_wait()),
                IncomingState::Idle(wait) => IncomingState::Looking(self.spawn_look(wait)),
                IncomingState::Looking(mut look) => {
                    let Poll::Ready(looked) = Pin::new(&mut look).poll(context) else {
                        self.state = IncomingState::Looking(look);
                        return Poll::Pending;
                    };
                    // Without an answer, the next poll starts again.
                    let MailLook { wait, found, nap } = looked.map_err(shutting_down)?;
                    if let Some(message) = found.transpose() {
                        self.state = IncomingState::Idle(wait);
                        return Poll::Ready(message);
                    }
                    let _inside = self.runtime.enter();
                    IncomingState::Sleeping(wait, Box::pin(tokio::time::sleep(nap?)))
                }
                IncomingState::Sleeping(wait, mut until) => {
                    if wait.files().poll_rung(context).is_ready() {
                        IncomingState::Idle(wait)
                    } else {
                        ensure_reader(wait.files(), &self.runtime);
                        let is_over = until.as_mut().poll(context).is_ready();
                        if !is_over {
                            self.state = IncomingState::Sleeping(wait, until);
                            return Poll::Pending;
                        }
                        wait.files().end_silence();
                        IncomingState::Idle(wait)
                    }
                }
            };
        }
    }

    fn spawn_look(&self, mut wait: OwnedWait) -> JoinHandle<MailLook> {
        let (mailbox, wanted) = (self.mailbox.clone(), self.wanted.clone());
        self.runtime.spawn_blocking(move || {
            let found = match &wanted {
                WantedMail::Next => mailbox.receive_in(&mut wait),
                WantedMail::Answer(correlation) => mailbox.receive_answer(correlation),
            };
            let longest = if wait.is_watched() { POLL_WITH_EVENTS } else { POLL_WITHOUT_EVENTS };
            let nap = wait.next_look(longest);
            MailLook { wait, found, nap }
        })
    }
}

/// Has a task of this runtime read the queue's file events, unless another wait does.
pub(super) fn ensure_reader(wait: &FileWait, runtime: &Handle) {
    let shared = wait.watcher();
    let Some((reader, readable)) = shared.begin_reading() else { return };
    let reading = EventReader { shared: Arc::clone(shared), reader };
    let task = runtime.spawn(pass_events_on(reading, readable));
    shared.set_task(reader, task.abort_handle());
}

impl futures_core::Stream for Incoming {
    type Item = Result<Message>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(ready!(self.get_mut().poll_recv(context))))
    }
}

/// The reader of a queue's file events. Gives them to another wait when it ends, as with its runtime.
struct EventReader {
    shared: Arc<SharedWatcher>,
    reader: u64,
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.shared.resign(self.reader);
    }
}

async fn pass_events_on(reading: EventReader, readable: Arc<OwnedFd>) {
    // Its successor is unsafe code, for descriptors that may be closed; this one is owned, and stays open.
    #[allow(deprecated)]
    let Ok(events) = AsyncFd::with_interest(readable, Interest::READABLE) else {
        // No more descriptors: the next reader may have more luck.
        return tokio::time::sleep(POLL_WITHOUT_EVENTS).await;
    };
    while let Ok(mut ready) = events.readable().await {
        match reading.shared.read(reading.reader) {
            // Keeps what became ready in between.
            Some(true) => ready.clear_ready(),
            Some(false) => tokio::task::yield_now().await,
            None => break,
        }
    }
}

pub(super) fn current_runtime() -> Result<Handle> {
    let detail = "call it inside a tokio runtime";
    Handle::try_current().map_err(|_| Error::invalid("an async call", "runtime", detail))
}

pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(shutting_down(error)))
}

fn shutting_down(error: tokio::task::JoinError) -> Error {
    if error.is_panic() {
        std::panic::resume_unwind(error.into_panic());
    }
    Error::io("use", "the runtime, which is shutting down", std::io::Error::other(error))
}

#[cfg(test)]
mod tests;
