//! What the loop sleeps on: one channel for what other threads have to say, and the doorbell.
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

use crate::doorbell::{Doorbell, Ring, sleep_until_any};
use crate::engine::{Ears, Wake};

/// How many wake-ups one step takes: few enough that it stays short also if each is a file.
const WAKES_A_STEP: usize = 256;
/// How often the doorbell is asked in a row, so that whoever makes noise without end does not keep the loop.
const READS_A_STEP: usize = 256;
/// How many rings are kept for later steps, so that the system need not drop any of a burst. What is
/// beyond them waits in the system, which has its own limit (`fs.inotify.max_queued_events`).
const RINGS_KEPT_MAX: usize = 64 * 1024;

/// Wakes the loop, from any thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    sender: Sender<Wake>,
    bell: Arc<OwnedFd>,
}

impl Waker {
    /// Says something to the loop. Nobody listens any more while the watcher is stopping.
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
    rings: VecDeque<Ring>,
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
    Ok((waker, Wakes { receiver, bell, rings: VecDeque::new() }))
}

impl Wakes {
    /// Waits until there is a reason to step, for at most `longest` (for ever without), and takes what has
    /// come by then: what threads say first.
    pub(crate) fn next(&mut self, mut ears: Ears<'_>, longest: Option<Duration>) -> Vec<Wake> {
        let began = Instant::now();
        loop {
            let mut wakes = self.said();
            self.hear(&mut ears);
            let room = WAKES_A_STEP.saturating_sub(wakes.len()).min(self.rings.len());
            wakes.extend(self.rings.drain(..room).map(Wake::Ring));
            let left = longest.map(|longest| longest.saturating_sub(began.elapsed()));
            if !wakes.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return wakes;
            }
            self.sleep(ears.doorbell.as_deref(), left);
        }
    }

    /// Takes what has rung from the system.
    fn hear(&mut self, ears: &mut Ears<'_>) {
        for _ in 0..READS_A_STEP {
            if self.rings.len() >= RINGS_KEPT_MAX {
                return;
            }
            let rings = ears.doorbell.as_deref_mut().map(Doorbell::take).unwrap_or_default();
            let is_over = matches!(rings.last(), None | Some(Ring::Failed { .. }));
            self.rings.extend(rings.into_iter().filter(|ring| !ears.is_noise(ring)));
            if is_over {
                return;
            }
        }
    }

    fn said(&self) -> Vec<Wake> {
        // Silenced before the channel is emptied: what comes in between rings again.
        match rustix::io::read(&*self.bell, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => tracing::warn!(%error, "the threads' bell cannot be read"),
        }
        self.receiver.try_iter().take(WAKES_A_STEP).collect()
    }

    fn sleep(&self, doorbell: Option<&Doorbell>, longest: Option<Duration>) {
        let bell = Some(self.bell.as_fd());
        let sources: Vec<_> = bell.into_iter().chain(doorbell.map(|bell| bell.as_fd())).collect();
        if let Err(error) = sleep_until_any(&sources, longest) {
            tracing::warn!(%error, "cannot wait for events");
        }
    }
}
