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

mod shared;

use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use self::shared::{FileWait, SharedWatcher};
use super::Spool;
use crate::Result;
use crate::env::{Delivery, Monotonic};
use crate::leases::MailboxLeases;
use crate::message::Name;
use crate::watch::POLL_WITH_EVENTS;

/// Minimum time between two scans of leases that file events ask for. A busy mailbox wakes its consumers
/// thousands of times a second.
const LEASE_SCAN_GAP_MIN: Duration = Duration::from_secs(1);
#[derive(Debug)]
pub(super) struct QueueWaits {
    /// One observer a mailbox. Threads that wait for the same mailbox share it.
    observers: Mutex<HashMap<Name, Arc<Mutex<WaitObserver>>>>,
    pub(super) watcher: Arc<SharedWatcher>,
}

impl QueueWaits {
    pub(super) fn new(root: &Path) -> Self {
        Self { observers: Mutex::default(), watcher: SharedWatcher::of_queue(root) }
    }
}

#[derive(Debug)]
struct WaitObserver {
    leases: MailboxLeases,
    scanned_at: Option<Monotonic>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Wait for mail
impl Spool {
    /// A wait for mail in steps, for a program that does something between them, such as handling signals: as
    /// [`Spool::receive`], and where nothing is due, [`MailWait::sleep`]. From this call on, a message that lands ends
    /// the next sleep. So does a delayed one that is due, and the lease of a dead holder that has expired: the next
    /// [`MailWait::receive`] takes that message back itself, so no watcher is needed. A lease is judged by what this
    /// queue has observed since it first waited for the mailbox, by its own clock ([`crate::leases`]).
    ///
    /// Leases and delays are those of [`SpoolOptions::clock`](super::SpoolOptions::clock). Any number of threads and
    /// processes may wait for the same mailbox.
    pub fn wait_for_mail(&self, mailbox: &Name, holder: &Name) -> MailWait<&Self> {
        MailWait::begin(self, mailbox, holder)
    }

    /// A wait for something to change in some directories, by the file watcher that all waits of the queue share.
    pub(crate) fn wait_for_files(&self, places: impl Into<Arc<[std::path::PathBuf]>>) -> FileWait {
        FileWait::begin(&self.waits.watcher, places)
    }

    fn observer(&self, mailbox: &Name, holder: &Name) -> WaitObserver {
        let clock = &*self.options.clock;
        let leases = match &self.options.observations {
            Some(directory) => {
                // Without it nothing is remembered, which only lengthens leases.
                let _ = crate::durable::make_directory(directory);
                let file = directory.join(format!("observed-{mailbox}.json"));
                MailboxLeases::remembered(holder.as_str(), clock, &file)
            }
            None => MailboxLeases::new(holder.as_str(), clock),
        };
        WaitObserver { leases, scanned_at: None }
    }
}

/// A wait for mail: receive, sleep, receive again. Made by [`Spool::wait_for_mail`].
///
/// It borrows the queue, or owns a share of it: `MailWait<&Spool>` or `MailWait<Arc<Spool>>`.
#[derive(Debug)]
pub struct MailWait<S: Deref<Target = Spool>> {
    spool: S,
    mailbox: Name,
    holder: Name,
    observer: Arc<Mutex<WaitObserver>>,
    files: FileWait,
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
        let home = spool.root.join("mailbox").join(mailbox.as_str());
        let files =
            FileWait::begin(&spool.waits.watcher, ["new", "front"].map(|part| home.join(part)));
        let (mailbox, holder) = (mailbox.clone(), holder.clone());
        let (looked_at, scan_at) = (0, None);
        Self { spool, mailbox, holder, observer, files, looked_at, scan_at }
    }

    /// Whether file events end its sleeps. Where the system has no watch left, or a directory is missing, it looks
    /// five times a second instead.
    pub fn is_watched(&self) -> bool {
        self.files.is_watched()
    }

    /// Returns what dead holders hold to the mailbox, then receives as [`Spool::receive`] does. Never waits for a
    /// message.
    pub fn receive(&mut self) -> Result<Option<Delivery>> {
        self.scan_leases()?;
        self.looked_at = self.spool.now_millis();
        let landed = self.files.take_landed();
        Ok(self.spool.receive_some(&self.mailbox, &self.holder, 1, &landed)?.pop())
    }

    /// Sleeps until a message may have become due, for at most `longest`. May end early: receive, and sleep again.
    pub fn sleep(&mut self, longest: Duration) -> Result<()> {
        self.sleep_beside(longest, None)
    }

    /// As [`MailWait::sleep`]; also ends when `other` becomes readable, which stays unread.
    pub fn sleep_beside(&mut self, longest: Duration, other: Option<BorrowedFd<'_>>) -> Result<()> {
        let nap = self.next_look(longest)?;
        self.files.sleep(nap, other);
        Ok(())
    }

    /// The sleep of a task: see [`FileWait::poll_rung`].
    #[cfg(feature = "tokio")]
    pub(crate) const fn files(&self) -> &FileWait {
        &self.files
    }

    /// How long the next sleep lasts where nothing lands, at most `longest`.
    pub fn next_look(&self, longest: Duration) -> Result<Duration> {
        let mut nap = longest.min(POLL_WITH_EVENTS);
        // A message that was due at the last look is one that this holder may not take.
        if let Some(due) = self.spool.next_due_after(&self.mailbox, self.looked_at)? {
            nap = nap.min(Duration::from_millis(due.saturating_sub(self.spool.now_millis())));
        }
        let expiry = lock(&self.observer).leases.poll_timeout();
        if let Some(at) = expiry.into_iter().chain(self.scan_at).min() {
            nap = nap.min(at.since(self.spool.options.clock.monotonic()));
        }
        Ok(nap)
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
        match observer.leases.scan_mailboxes(
            &*options.clock,
            &*self.spool,
            mailboxes,
            &*options.recorder,
        ) {
            // A lock that another process holds delays the expiry; the machine asks again.
            Err(error) if !error.is_transient() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
