//! Receiving from many mailboxes in one thread, by one descriptor.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::mailbox::deadline_in;
use super::{CancelToken, Mailbox, Message, Queue};
use crate::env::Monotonic;
use crate::leases::MailboxLeases;
use crate::message::Name;
use crate::watch::{FsEvent, FsWatcher, sleep_until_any};
use crate::{Error, Result};

/// Maximum time between two looks at all mailboxes: file events are only a hint, and leases raise none.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of reads of file events at a time, so that an endless writer does not hold the caller.
const READS_MAX: usize = 1_024;
/// Actor of the log records of expired leases.
const ACTOR: &str = "inboxes";

/// Several mailboxes of a queue, received from in turn: a mailbox full of mail does not hold up the others.
///
/// Its descriptor is readable when a message may have landed, for your own `poll` or `epoll`: then call
/// [`try_recv`](Self::try_recv) until there is nothing more, and again after [`next_look`](Self::next_look). It takes
/// one inotify instance.
///
/// ```
/// use std::time::Duration;
/// # use ensemble_core::Queue;
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// for name in ["worker-1", "worker-2"] {
///     queue.mailbox(name)?.send(format!("for {name}"))?;
/// }
/// let mut inboxes = queue.inboxes(queue.mailboxes()?)?;
/// while let Some(message) = inboxes.recv_timeout(Duration::ZERO)? {
///     println!("{}: {}", message.lease().mailbox, message.body());
///     message.settle()?;
/// }
/// // In an event loop of your own, after a poll of the descriptor for at most `inboxes.next_look()`:
/// assert!(inboxes.try_recv()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Inboxes {
    queue: Queue,
    boxes: Vec<Mailbox>,
    names: Vec<Name>,
    /// Tokens of the mailboxes: one that is cancelled ends every wait.
    tokens: Vec<CancelToken>,
    watcher: FsWatcher,
    by_place: HashMap<PathBuf, usize>,
    /// Mailboxes in which something may wait, in turn.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    /// When delayed messages are due, in milliseconds since the Unix epoch.
    delayed: BTreeSet<(u64, usize)>,
    leases: MailboxLeases,
    looked_at: Option<Monotonic>,
}

impl Queue {
    /// Receives from several mailboxes of this queue in one thread; [`Inboxes`] has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a mailbox of another queue, or the system has no file watches left.
    pub fn inboxes(&self, boxes: impl IntoIterator<Item = Mailbox>) -> Result<Inboxes> {
        let boxes: Vec<Mailbox> = boxes.into_iter().collect();
        if let Some(stranger) = boxes.iter().find(|inbox| inbox.queue().root() != self.root()) {
            let detail = format!("it belongs to {}", stranger.queue().root().display());
            let mailbox = format!("mailbox `{}`", stranger.name());
            return Err(Error::invalid(mailbox, "queue", detail));
        }
        let mut tokens: Vec<CancelToken> = Vec::new();
        for token in boxes.iter().filter_map(Mailbox::token) {
            if !tokens.iter().any(|known| known.is_same(token)) {
                tokens.push(token.clone());
            }
        }
        let mut inboxes = Inboxes {
            queue: self.clone(),
            names: boxes.iter().map(|inbox| inbox.name().clone()).collect(),
            tokens,
            watcher: FsWatcher::new()?,
            by_place: HashMap::new(),
            ready: VecDeque::new(),
            is_ready: vec![false; boxes.len()],
            delayed: BTreeSet::new(),
            leases: MailboxLeases::new(ACTOR, self.spool().clock()),
            looked_at: None,
            boxes,
        };
        inboxes.watch_all()?;
        Ok(inboxes)
    }
}

impl AsFd for Inboxes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watcher.as_fd()
    }
}

impl Inboxes {
    /// Receives the next message that waits in one of the mailboxes. Never waits.
    ///
    /// # Errors
    /// One of the mailboxes is gone or the disk failed. The calls after that serve the others.
    pub fn try_recv(&mut self) -> Result<Option<Message>> {
        self.take_events()?;
        self.look_around()?;
        while let Some(index) = self.ready.pop_front() {
            self.is_ready[index] = false;
            let looked_at = self.queue.spool().now_millis();
            let received = self.boxes[index].try_recv()?;
            if received.is_some() {
                // Behind the others.
                self.mark_ready(index);
                return Ok(received);
            }
            self.note_delayed(index, looked_at)?;
        }
        Ok(None)
    }

    /// As [`try_recv`](Self::try_recv), and waits for a message where none is due. `None` only once a token of the mailboxes is
    /// cancelled.
    ///
    /// # Errors
    /// As for [`Inboxes::try_recv`].
    pub fn recv(&mut self) -> Result<Option<Message>> {
        self.recv_until(None)
    }

    /// As [`Inboxes::recv`], waiting for at most this long.
    ///
    /// # Errors
    /// As for [`Inboxes::try_recv`].
    pub fn recv_timeout(&mut self, longest: Duration) -> Result<Option<Message>> {
        self.recv_until(deadline_in(longest))
    }

    /// The longest time until the next [`try_recv`](Self::try_recv) of a program that polls the descriptor: until a
    /// delayed message is due, or a lease may have expired.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        let spool = self.queue.spool();
        let now = spool.clock().monotonic();
        let regular = self.looked_at.map_or(Duration::ZERO, |at| (at + LOOK_INTERVAL).since(now));
        let expiry = self.leases.poll_timeout().map(|at| at.since(now));
        let in_time = |due: u64| Duration::from_millis(due.saturating_sub(spool.now_millis()));
        let due = self.delayed.first().map(|(due, _)| in_time(*due));
        expiry.into_iter().chain(due).fold(regular, Duration::min)
    }

    fn recv_until(&mut self, deadline: Option<Instant>) -> Result<Option<Message>> {
        loop {
            if self.tokens.iter().any(CancelToken::is_cancelled) {
                return Ok(None);
            }
            if let Some(message) = self.try_recv()? {
                return Ok(Some(message));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let next = self.next_look();
            let nap = left.map_or(next, |left| left.min(next));
            let mut sources = vec![self.watcher.as_fd()];
            sources.extend(self.tokens.iter().map(AsFd::as_fd));
            sleep_until_any(&sources, Some(nap))?;
        }
    }

    /// Watches all mailboxes again, even if one of them cannot be watched.
    fn watch_all(&mut self) -> Result<()> {
        let mailboxes = self.queue.root().join("mailbox");
        let mut watched = Ok(());
        for (index, name) in self.names.iter().enumerate() {
            for part in ["new", "front"] {
                let place = mailboxes.join(name.as_str()).join(part);
                // Another directory may have had this name before.
                self.watcher.unwatch(&place);
                match self.watcher.watch(&place) {
                    // The next look names the mailbox that is gone.
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        watched = Err(error.into());
                    }
                    _ => drop(self.by_place.insert(place, index)),
                }
            }
        }
        (0..self.boxes.len()).for_each(|index| self.mark_ready(index));
        watched
    }

    /// Reads all pending events: a descriptor that is polled by edges says only once that there are some.
    fn take_events(&mut self) -> Result<()> {
        for _ in 0..READS_MAX {
            let events = self.watcher.take_events();
            if events.is_empty() {
                break;
            }
            // One that fails does not hide the mail of the others.
            let handled = events.into_iter().map(|event| self.handle_event(event));
            handled.fold(Ok(()), Result::and)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: FsEvent) -> Result<()> {
        match event {
            FsEvent::Landed { dir, .. } | FsEvent::Strange { dir } => {
                if let Some(&index) = self.by_place.get(&dir) {
                    self.mark_ready(index);
                }
            }
            FsEvent::Left { .. } => {}
            FsEvent::Overflow => (0..self.boxes.len()).for_each(|index| self.mark_ready(index)),
            FsEvent::Replaced { .. } => self.watch_all()?,
            FsEvent::Failed { error } => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns what dead holders hold, and finds what raised no event.
    fn look_around(&mut self) -> Result<()> {
        let spool = self.queue.spool().clone();
        let clock = spool.clock();
        let millis = spool.now_millis();
        while let Some(&(due, index)) = self.delayed.first().filter(|(due, _)| *due <= millis) {
            self.delayed.remove(&(due, index));
            self.mark_ready(index);
        }
        let now = clock.monotonic();
        let is_regular = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_INTERVAL);
        if !is_regular && !self.leases.is_due(now) {
            return Ok(());
        }
        if self.looked_at.replace(now).is_some() && is_regular {
            self.watch_all()?;
        }
        match self.leases.scan_mailboxes(clock, &*spool, &self.names, spool.recorder()) {
            // A lock that another process holds delays the expiry; the next look tries again.
            Err(error) if !error.is_transient() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A message that was due already is one that this holder may not take.
    fn note_delayed(&mut self, index: usize, looked_at: u64) -> Result<()> {
        let due = self.queue.spool().next_due_after(&self.names[index], looked_at)?;
        self.delayed.extend(due.map(|due| (due, index)));
        Ok(())
    }

    fn mark_ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_ready[index], true) {
            self.ready.push_back(index);
        }
    }
}
