//! What the loop sleeps on: one channel for messages of other threads, and the file watcher.
//!
//! ```text
//! another thread says something   channel, then the bell (an eventfd)   -> the loop wakes
//! something lands                 inotify's own descriptor               -> the loop wakes
//! ```
//!
//! So what lands wakes the thread that acts on it, and no other one before.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::engine::{Wake, WatchSet};
use ensemble_core::watch::{FsEvent, FsWatcher, sleep_until_any};

/// How many wake-ups one step takes: few enough that it stays short also if each is a file.
const WAKES_A_STEP: usize = 256;
/// Maximum number of consecutive reads of the file watcher, so that a process that writes endlessly does
/// not hold the loop.
const READS_A_STEP: usize = 256;
/// How many events are kept for later steps, so that the system need not drop any of a burst. What is
/// beyond them waits in the system, which has its own limit (`fs.inotify.max_queued_events`).
const EVENTS_KEPT_MAX: usize = 64 * 1024;

/// Wakes the loop, from any thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    sender: Sender<Wake>,
    bell: Arc<OwnedFd>,
}

impl Waker {
    /// Sends an event to the loop. A stopping watcher receives no more events.
    pub(crate) fn wake(&self, wake: Wake) {
        if self.sender.send(wake).is_ok() {
            // It only fails while it is loud already.
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Wakes {
    receiver: Receiver<Wake>,
    bell: Arc<OwnedFd>,
    events: VecDeque<FsEvent>,
}

/// Both ends.
///
/// # Errors
/// The system has no descriptor left.
pub(crate) fn wakes() -> Result<(Waker, Wakes)> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
        let path = "this process".into();
        Error::Io { operation: "make a bell for the threads of", path, source: error.into() }
    })?;
    let (sender, receiver) = unbounded();
    let bell = Arc::new(bell);
    let waker = Waker { sender, bell: Arc::clone(&bell) };
    Ok((waker, Wakes { receiver, bell, events: VecDeque::new() }))
}

impl Wakes {
    /// Waits until there is a reason to step, for at most `longest` (for ever without), and takes what has
    /// come by then: what threads say first.
    pub(crate) fn next(
        &mut self,
        mut watch_set: WatchSet<'_>,
        longest: Option<Duration>,
    ) -> Vec<Wake> {
        let began = Instant::now();
        loop {
            let mut wakes = self.said();
            self.read(&mut watch_set);
            let room = WAKES_A_STEP.saturating_sub(wakes.len()).min(self.events.len());
            wakes.extend(self.events.drain(..room).map(Wake::Changed));
            let left = longest.map(|longest| longest.saturating_sub(began.elapsed()));
            if !wakes.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return wakes;
            }
            self.sleep(watch_set.fs_watcher.as_deref(), left);
        }
    }

    /// Reads the pending events of the system.
    fn read(&mut self, watch_set: &mut WatchSet<'_>) {
        for _ in 0..READS_A_STEP {
            if self.events.len() >= EVENTS_KEPT_MAX {
                return;
            }
            let events =
                watch_set.fs_watcher.as_deref_mut().map(FsWatcher::take).unwrap_or_default();
            let is_over = matches!(events.last(), None | Some(FsEvent::Failed { .. }));
            self.events.extend(events.into_iter().filter(|event| !watch_set.is_noise(event)));
            if is_over {
                return;
            }
        }
    }

    fn said(&self) -> Vec<Wake> {
        // Silenced before the channel is emptied: what comes in between wakes the loop again.
        match rustix::io::read(&*self.bell, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => tracing::warn!(%error, "the threads' bell cannot be read"),
        }
        self.receiver.try_iter().take(WAKES_A_STEP).collect()
    }

    fn sleep(&self, fs_watcher: Option<&FsWatcher>, longest: Option<Duration>) {
        let bell = Some(self.bell.as_fd());
        let sources: Vec<_> = bell.into_iter().chain(fs_watcher.map(|bell| bell.as_fd())).collect();
        if let Err(error) = sleep_until_any(&sources, longest) {
            tracing::warn!(%error, "cannot wait for events");
        }
    }
}
