//! Receive, and wait for a message while there is none.
//!
//! ```text
//! watch new/ and front/ -> take back what dead holders hold -> receive -> sleep -> take back ...
//!                                                                 |
//!                                                                 +-> the delivery
//! ```
//!
//! The directories are watched before the first look, so a message that lands between a look and the sleep
//! ends the sleep. The sleep also ends when a delayed message is due, when a lease has expired, and after
//! [`POLL_WITH_EVENTS`], because file notification is only a hint. Without inotify it ends after
//! [`POLL_WITHOUT_EVENTS`].

use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Spool;
use super::waiting::Waiting;
use crate::Result;
use crate::env::{Delivery, Monotonic};
use crate::leases::MailboxLeases;
use crate::message::Name;
use crate::watch::{FsEvent, FsWatcher, POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS, sleep_until_any};

/// Minimum time between two scans of leases that file events ask for. A busy mailbox wakes its consumers
/// thousands of times a second.
const LEASE_SCAN_GAP_MIN: Duration = Duration::from_secs(1);
/// Maximum number of file watchers that a queue keeps for the next wait. A user has only some 128.
const IDLE_WATCHERS_MAX: usize = 4;

/// Maximum number of reads that drain the pending events. One look answers all of them.
const DRAINS_MAX: usize = 16;

/// What a queue keeps between two waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// One observer a mailbox. Threads that wait for the same mailbox share it.
    observers: Mutex<HashMap<Name, Arc<Mutex<Observer>>>>,
    /// File watchers of waits that are over.
    idle: Mutex<Vec<FsWatcher>>,
}

/// The observer of one mailbox's leases.
#[derive(Debug)]
struct Observer {
    leases: MailboxLeases,
    scanned_at: Option<Monotonic>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Wait for mail
impl Spool {
    /// As [`Spool::receive`]; where nothing is due, waits until a message is received, or until `deadline`.
    /// Returns `None` at the deadline.
    ///
    /// The wait ends when a message lands, when a delayed one is due, and when the lease of a dead holder has
    /// expired. The call takes that message back itself, so no watcher is needed. A lease is judged by what this
    /// queue has observed since it first waited for the mailbox, by its own clock ([`crate::leases`]).
    ///
    /// The deadline is real time, as that of any call that blocks a thread; leases and delays are those of
    /// [`Options::clock`](super::Options::clock). Any number of threads and processes may wait for the same
    /// mailbox. The call may end later than the deadline by the time that the disk and
    /// [`Options::lock_patience`](super::Options::lock_patience) take.
    ///
    /// # Errors
    /// The mailbox does not exist, is removed meanwhile, or the disk failed.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// # use ensemble_core::{message::{Envelope, Name}, spool::{Options, Spool}};
    /// # let home = tempfile::tempdir()?;
    /// # let spool = Spool::create(home.path(), Options::default())?;
    /// let worker = Name::new("worker-1")?;
    /// spool.add_mailbox(&worker, &Default::default())?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| spool.publish(&Envelope::new(worker.clone(), "task 7\n")));
    ///     let deadline = Instant::now() + Duration::from_secs(60);
    ///     let delivery = spool.receive_wait(&worker, &worker, deadline)?.expect("a message arrives");
    ///     assert_eq!(delivery.envelope.body, "task 7\n");
    ///     spool.settle(&delivery.lease)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_wait(
        &self,
        mailbox: &Name,
        holder: &Name,
        deadline: Instant,
    ) -> Result<Option<Delivery>> {
        let left = || deadline.saturating_duration_since(Instant::now());
        // Where a message waits, no watcher is needed.
        let first = self.receive(mailbox, holder)?;
        if first.is_some() || left().is_zero() {
            return Ok(first);
        }
        let mut wait = self.wait_for_mail(mailbox, holder);
        loop {
            let delivery = wait.receive()?;
            let left = left();
            if delivery.is_some() || left.is_zero() {
                return Ok(delivery);
            }
            wait.sleep(left)?;
        }
    }

    /// The steps of [`Spool::receive_wait`], for a program that does something between them, such as
    /// handling signals. From this call on, a message that lands ends the next [`MailWait::sleep`].
    #[must_use]
    pub fn wait_for_mail(&self, mailbox: &Name, holder: &Name) -> MailWait<&Self> {
        MailWait::begin(self, mailbox, holder)
    }

    fn observer(&self, mailbox: &Name, holder: &Name) -> Observer {
        let clock = &*self.options.clock;
        let leases = match &self.options.observations {
            Some(directory) => {
                // Without it nothing is remembered, which only lengthens leases.
                let _ = std::fs::create_dir_all(directory);
                let file = directory.join(format!("observed-{mailbox}.json"));
                MailboxLeases::remembered(holder.as_str(), clock, &file)
            }
            None => MailboxLeases::new(holder.as_str(), clock),
        };
        Observer { leases, scanned_at: None }
    }
}

/// A wait for mail: receive, sleep, receive again. Made by [`Spool::wait_for_mail`].
///
/// ```
/// use std::time::Duration;
/// # use ensemble_core::{message::{Envelope, Name}, spool::{Options, Spool}};
/// # let home = tempfile::tempdir()?;
/// # let spool = Spool::create(home.path(), Options::default())?;
/// # let worker = Name::new("worker-1")?;
/// # spool.add_mailbox(&worker, &Default::default())?;
/// let mut wait = spool.wait_for_mail(&worker, &worker);
/// assert!(wait.receive()?.is_none());
/// spool.publish(&Envelope::new(worker.clone(), "task 7"))?; // by another process
/// wait.sleep(Duration::from_secs(60))?; // ends at once
/// assert!(wait.receive()?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It borrows the queue, or owns a share of it: `MailWait<&Spool>` or `MailWait<Arc<Spool>>`.
#[derive(Debug)]
pub struct MailWait<S: Deref<Target = Spool>> {
    spool: S,
    mailbox: Name,
    holder: Name,
    observer: Arc<Mutex<Observer>>,
    /// `None` if the system has no watch left, or one of the directories is missing.
    watcher: Option<FsWatcher>,
    /// When the last look began, in milliseconds since the Unix epoch.
    looked_at: u64,
    /// When a scan of the leases is made up for that came too soon after the last.
    scan_at: Option<Monotonic>,
}

impl<S: Deref<Target = Spool>> MailWait<S> {
    /// Starts a wait: from this call on, a message that lands ends the next sleep.
    pub fn begin(spool: S, mailbox: &Name, holder: &Name) -> Self {
        let observer = Arc::clone(
            lock(&spool.waits.observers)
                .entry(mailbox.clone())
                .or_insert_with(|| Arc::new(Mutex::new(spool.observer(mailbox, holder)))),
        );
        let watcher = lock(&spool.waits.idle).pop();
        let (mailbox, holder) = (mailbox.clone(), holder.clone());
        let (looked_at, scan_at) = (0, None);
        let mut wait = Self { spool, mailbox, holder, observer, watcher, looked_at, scan_at };
        wait.watch();
        wait
    }

    /// Takes back what dead holders hold, then receives as [`Spool::receive`] does. Never waits for a message.
    ///
    /// # Errors
    /// As for [`Spool::receive`].
    pub fn receive(&mut self) -> Result<Option<Delivery>> {
        self.scan_leases()?;
        self.looked_at = self.spool.now_millis();
        self.spool.receive(&self.mailbox, &self.holder)
    }

    /// Sleeps until a message may have become due, for at most `longest`. May end early: receive, and sleep again.
    ///
    /// # Errors
    /// The mailbox does not exist or the disk failed.
    pub fn sleep(&mut self, longest: Duration) -> Result<()> {
        self.sleep_beside(longest, None)
    }

    /// As [`MailWait::sleep`]; also ends when `other` becomes readable, which stays unread.
    ///
    /// # Errors
    /// As for [`MailWait::sleep`].
    pub fn sleep_beside(&mut self, longest: Duration, other: Option<BorrowedFd<'_>>) -> Result<()> {
        let nap = self.next_look(longest)?;
        let Some(watcher) = &mut self.watcher else {
            self.nap_beside(nap, other);
            self.watch();
            return Ok(());
        };
        let mut events = match other {
            None => watcher.wait(nap),
            Some(other) => {
                // A poll that fails is answered by a look, as an event is.
                let _ = sleep_until_any(&[watcher.as_fd(), other], Some(nap));
                watcher.take()
            }
        };
        for _ in 0..DRAINS_MAX {
            let more = watcher.take();
            if more.is_empty() {
                break;
            }
            events.extend(more);
        }
        if events.iter().any(|event| matches!(event, FsEvent::Failed { .. })) {
            self.watcher = None;
            self.nap_beside(nap, other);
        }
        // Silence may also mean that the directories were replaced.
        if events.is_empty() || events.iter().any(|event| matches!(event, FsEvent::Replaced { .. }))
        {
            self.watch();
        }
        Ok(())
    }

    /// How long the next sleep lasts where nothing lands, at most `longest`.
    ///
    /// # Errors
    /// As for [`MailWait::sleep`].
    pub fn next_look(&self, longest: Duration) -> Result<Duration> {
        let mut nap = longest.min(POLL_WITH_EVENTS);
        // A message that was due at the last look is one that this holder may not take.
        let front = &self.spool.mailbox(&self.mailbox)?.front;
        if let Some(due) = Waiting::next_due_after(front, self.looked_at)? {
            nap = nap.min(Duration::from_millis(due.saturating_sub(self.spool.now_millis())));
        }
        let expiry = lock(&self.observer).leases.poll_timeout();
        if let Some(at) = expiry.into_iter().chain(self.scan_at).min() {
            nap = nap.min(at.since(self.spool.options.clock.monotonic()));
        }
        Ok(nap)
    }

    /// Sleeps where no file event can end the sleep.
    fn nap_beside(&self, nap: Duration, other: Option<BorrowedFd<'_>>) {
        let nap = nap.min(POLL_WITHOUT_EVENTS);
        match other {
            Some(other) if sleep_until_any(&[other], Some(nap)).is_ok() => {}
            Some(_) | None => std::thread::sleep(nap),
        }
    }

    /// Watches the directories that have these names now. A look must follow: pending events are lost.
    fn watch(&mut self) {
        let watcher = self.watcher.take().map_or_else(FsWatcher::new, Ok);
        self.watcher = watcher.ok().and_then(|mut watcher| {
            for dir in &self.directories() {
                watcher.unwatch(dir);
                watcher.watch(dir).ok()?;
            }
            Some(watcher)
        });
    }

    /// The directories in which a message lands that can be received.
    fn directories(&self) -> [PathBuf; 2] {
        let home = self.spool.root.join("mailbox").join(self.mailbox.as_str());
        ["new", "front"].map(|part| home.join(part))
    }

    /// Scans the mailbox's leases, unless that was done just now, and takes back what is due.
    fn scan_leases(&mut self) -> Result<()> {
        let options = &self.spool.options;
        let mut observer = lock(&self.observer);
        let now = options.clock.monotonic();
        let next = observer.scanned_at.map(|at| at + LEASE_SCAN_GAP_MIN);
        if let Some(next) = next.filter(|next| now < *next)
            && !observer.leases.is_due(now)
        {
            self.scan_at = Some(next);
            return Ok(());
        }
        (self.scan_at, observer.scanned_at) = (None, Some(now));
        let mailboxes = std::slice::from_ref(&self.mailbox);
        match observer.leases.look(&*options.clock, &*self.spool, mailboxes, &*options.recorder) {
            // A lock that another process holds delays the expiry; the machine asks again.
            Err(error) if !error.is_transient() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl<S: Deref<Target = Spool>> Drop for MailWait<S> {
    /// Keeps the watcher: making and closing one takes longer than a receive.
    fn drop(&mut self) {
        let Some(mut watcher) = self.watcher.take() else { return };
        self.directories().iter().for_each(|dir| watcher.unwatch(dir));
        let mut idle = lock(&self.spool.waits.idle);
        if idle.len() < IDLE_WATCHERS_MAX {
            idle.push(watcher);
        }
    }
}

#[cfg(test)]
mod tests;
