//! The reasons to step, and what the loop sleeps on: one channel for messages of other threads, and
//! the file watcher.
//!
//! ```text
//! another thread sends a message   channel, then an eventfd     -> the loop wakes
//! a file lands                     inotify's own descriptor     -> the loop wakes
//! a process of an agent ends       its pidfd                    -> the loop wakes
//! ```
//!
//! So a file that lands wakes the thread that acts on it, and no other one before.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::driver::LadderPrompt;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::pane::NudgeOutcome;
use ensemble_core::watch::{FsEvent, sleep_until_any};
use ensemble_core::{Error, Result};
use ensemble_team::roster::PaneObservation;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::event_queue::EventQueue;
use crate::processes::{WatchedProcess, WatchedProcesses};
use crate::servers::ServerNews;
use crate::watch_set::WatchSet;

/// How many wake-ups one step takes: few enough that it stays short also if each is a file.
const WAKES_A_STEP: usize = 256;
/// Maximum number of consecutive reads of the file watcher, so that a process that writes endlessly does
/// not hold the loop.
const READS_A_STEP: usize = 256;
/// How many events are kept for later steps, so that the system need not drop any of a burst. Further events wait in
/// the kernel, which has its own limit (`fs.inotify.max_queued_events`).
const EVENTS_KEPT_MAX: usize = 64 * 1024;

/// A reason to step.
#[derive(Debug)]
pub(crate) enum LoopWake {
    /// A watched directory changed.
    Changed(FsEvent),
    /// A pane task is done.
    PaneResult(PaneResult),
    Ended(WatchedProcess),
    /// The thread that follows the team's servers has news.
    Team(ServerNews),
    /// The ladder of a task wants something done.
    Ladder(LadderNews),
    Stop,
}

/// The requests of a ladder to the loop.
#[derive(Debug)]
pub(crate) enum LadderNews {
    /// Type a line.
    Prompt(LadderPrompt),
    /// A ladder sets the pace of the lines for a mailbox, or does so no more.
    Pace { mailbox: Name, is_laddered: bool },
}

#[derive(Debug)]
pub(crate) enum PaneResult {
    Typed(TypeReport),
    Observed {
        agent: Name,
        observation: PaneObservation,
    },
    /// Of no task: an agent's screen has become another one.
    ScreenChanged {
        agent: Name,
    },
}

/// The outcome of a pane task that was to type.
#[derive(Clone, Debug)]
pub(crate) struct TypeReport {
    pub(crate) agent: Name,
    pub(crate) attempt: u64,
    pub(crate) outcome: NudgeOutcome,
    /// The end of the usage limit that was in the way, if it is known.
    pub(crate) limited_until: Option<Timestamp>,
    /// The pane shows a usage limit without an end.
    pub(crate) is_limited: bool,
}

/// Wakes the loop, from any thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub(crate) struct LoopWaker {
    sender: Sender<LoopWake>,
    signal: Arc<OwnedFd>,
}

impl LoopWaker {
    /// Sends a reason to step. The loop takes none any more while the watcher stops.
    pub(crate) fn wake(&self, wake: LoopWake) {
        if self.sender.send(wake).is_ok() {
            // It only fails while it is readable already.
            let _ = rustix::io::write(&*self.signal, &1u64.to_ne_bytes());
        }
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct LoopWakes {
    receiver: Receiver<LoopWake>,
    signal: Arc<OwnedFd>,
    events: EventQueue,
}

/// What the loop has to read.
struct ReadySources {
    signal: bool,
    files: bool,
    processes: bool,
}

/// Both ends.
pub(crate) fn wakes() -> Result<(LoopWaker, LoopWakes)> {
    let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
        let path = "this process".into();
        Error::Io { operation: "make an eventfd for the threads of", path, source: error.into() }
    })?;
    let (sender, receiver) = unbounded();
    let signal = Arc::new(signal);
    let waker = LoopWaker { sender, signal: Arc::clone(&signal) };
    Ok((waker, LoopWakes { receiver, signal, events: EventQueue::default() }))
}

impl LoopWakes {
    /// Waits until there is a reason to step, for at most `longest` (without a limit for `None`).
    /// Returns what has come by then, messages of other threads first.
    pub(crate) fn next(
        &mut self,
        watch_set: &mut WatchSet,
        processes: &mut WatchedProcesses,
        longest: Option<Duration>,
    ) -> Vec<LoopWake> {
        let began = Instant::now();
        loop {
            let left = longest.map(|longest| longest.saturating_sub(began.elapsed()));
            let has_kept = self.has_events() || !self.receiver.is_empty();
            let nap = if has_kept { Some(Duration::ZERO) } else { left };
            let ready = self.sleep(watch_set, processes, nap);
            let mut wakes = if has_kept || ready.signal { self.received() } else { Vec::new() };
            if ready.files {
                self.read(watch_set);
            }
            if ready.processes {
                wakes.extend(processes.take_ended().into_iter().map(LoopWake::Ended));
            }
            let room = WAKES_A_STEP.saturating_sub(wakes.len());
            wakes
                .extend(std::iter::from_fn(|| self.events.pop()).take(room).map(LoopWake::Changed));
            if !wakes.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return wakes;
            }
        }
    }

    /// Whether events wait for a later step.
    pub(crate) const fn has_events(&self) -> bool {
        self.events.len() > 0
    }

    /// Reads the pending events of the system.
    fn read(&mut self, watch_set: &mut WatchSet) {
        for _ in 0..READS_A_STEP {
            if self.events.len() >= EVENTS_KEPT_MAX {
                return;
            }
            let (events, may_have_more) = watch_set.take_events();
            events.into_iter().for_each(|event| self.events.push(event));
            if !may_have_more {
                return;
            }
        }
    }

    fn received(&self) -> Vec<LoopWake> {
        // Reset before the channel is emptied: a message that comes in between wakes the loop again.
        match rustix::io::read(&*self.signal, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => tracing::warn!(%error, "cannot read the eventfd of the threads"),
        }
        self.receiver.try_iter().take(WAKES_A_STEP).collect()
    }

    fn sleep(
        &self,
        watch_set: &WatchSet,
        processes: &WatchedProcesses,
        longest: Option<Duration>,
    ) -> ReadySources {
        let files = watch_set.source();
        let processes_at = 1 + usize::from(files.is_some());
        let own = [self.signal.as_fd()].into_iter().chain(files);
        let sources: Vec<_> = own.chain(processes.sources()).collect();
        match sleep_until_any(&sources, longest) {
            Ok(ready) => ReadySources {
                signal: ready[0],
                files: ready[1..processes_at].contains(&true),
                processes: ready[processes_at..].contains(&true),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot wait for events");
                ReadySources { signal: true, files: true, processes: true }
            }
        }
    }
}
