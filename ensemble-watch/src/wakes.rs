//! The reasons to step, and how other threads send them to the loop.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::Sender;
use ensemble_core::driver::LadderPrompt;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::pane::NudgeOutcome;
use ensemble_core::watch::FsEvent;
use ensemble_team::roster::PaneObservation;

use crate::processes::WatchedProcess;
use crate::servers::ServerNews;

#[derive(Debug)]
pub(crate) enum LoopWake {
    /// A watched directory changed.
    Changed(FsEvent),
    /// A pane task that was to type is done.
    Typed(TypeReport),
    Observed {
        agent: Name,
        observation: PaneObservation,
    },
    /// Of no task: an agent's screen has become another one.
    ScreenChanged(Name),
    Ended(WatchedProcess),
    /// The thread that follows the team's servers has news.
    Team(ServerNews),
    /// The ladder of a task wants a line typed.
    Prompt(LadderPrompt),
    /// A ladder sets the pace of the lines for a mailbox, or does so no more.
    Pace {
        mailbox: Name,
        is_laddered: bool,
    },
    Stop,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeReport {
    pub(crate) agent: Name,
    pub(crate) attempt: u64,
    pub(crate) outcome: NudgeOutcome,
    pub(crate) limited_until: Option<Timestamp>,
    pub(crate) is_limited: bool,
}

/// Wakes the loop, from any thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub(crate) struct LoopWaker {
    sender: Sender<LoopWake>,
    signal: Arc<OwnedFd>,
}

impl LoopWaker {
    /// The loop reads what `sender` sends when `signal` is readable.
    pub(crate) const fn new(sender: Sender<LoopWake>, signal: Arc<OwnedFd>) -> Self {
        Self { sender, signal }
    }

    /// Sends a reason to step. The loop takes none any more while the watcher stops.
    pub(crate) fn wake(&self, wake: LoopWake) {
        if self.sender.send(wake).is_ok() {
            // It only fails while it is readable already.
            let _ = rustix::io::write(&*self.signal, &1u64.to_ne_bytes());
        }
    }
}
