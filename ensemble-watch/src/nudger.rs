//! Typing, on threads of its own: one for each tmux server, so that a server that hangs (each
//! exchange is given five seconds) holds up nobody else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome, NudgeText};
use ensemble_core::provider::Profile;
use ensemble_core::roster::Sight;
use ensemble_core::tmux::{Server, TextOutcome, TmuxPane, TypedNudge};

use crate::members;
use crate::panes::PaneEntry;

/// What an errand is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Type the text and submit it.
    Type,
    /// The text stands in the composer: press Enter if it still does, and type nothing.
    Submit,
    /// Look what the agent is doing, and type nothing.
    Look,
}

/// One errand to a pane.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    pub(crate) entry: PaneEntry,
    pub(crate) profile: Arc<Profile>,
    pub(crate) attempt: u64,
    /// Missing for [`Job::Look`].
    pub(crate) text: Option<NudgeText>,
    pub(crate) job: Job,
}

/// What became of an errand that was to type something.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) agent: Name,
    pub(crate) attempt: u64,
    pub(crate) outcome: NudgeOutcome,
}

/// What has come back.
#[derive(Debug)]
pub(crate) enum Back {
    /// From typing.
    Typed(Report),
    /// From looking.
    Looked {
        /// Whom.
        agent: Name,
        /// What was seen.
        sight: Sight,
    },
}

/// The threads, by socket.
#[derive(Debug)]
pub(crate) struct Nudgers {
    locks: PathBuf,
    reports: Sender<Back>,
    errands: HashMap<PathBuf, Sender<Errand>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Nudgers {
    /// Waits until the last errand is done and the control clients have ended: a client that is left
    /// behind by a server that is ending at the same time would keep that server for ever.
    fn drop(&mut self) {
        self.errands.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Nudgers {
    /// `locks` is shared by all that may type into a pane; outcomes go to `reports`.
    pub(crate) fn new(locks: PathBuf, reports: Sender<Back>) -> Self {
        Self { locks, reports, errands: HashMap::new(), threads: Vec::new() }
    }

    /// Sends somebody. The outcome is reported later, always.
    pub(crate) fn send(&mut self, errand: Errand) {
        let socket = errand.entry.binding.socket.clone();
        let errands = self.errands.entry(socket.clone()).or_insert_with(|| {
            let (sender, receiver) = unbounded();
            let (locks, reports) = (self.locks.clone(), self.reports.clone());
            let work = move || run(Server::new(socket), &locks, &receiver, &reports);
            self.threads.push(thread::spawn(work));
            sender
        });
        // The thread ends only when this sender is dropped.
        let _ = errands.send(errand);
    }
}

fn run(server: Server, locks: &Path, errands: &Receiver<Errand>, reports: &Sender<Back>) {
    let mut typed: Vec<(Errand, TmuxPane, TypedNudge)> = Vec::new();
    loop {
        let next_enter = typed.iter().map(|(_, _, t)| t.enter_after()).min();
        let errand = match next_enter {
            Some(at) => errands.recv_deadline(at).ok(),
            None => match errands.recv() {
                Ok(errand) => Some(errand),
                Err(_) => return,
            },
        };
        if let Some(errand) = errand.filter(|errand| !looked(&server, locks, errand, reports)) {
            match type_text(&server, locks, &errand) {
                Ok((pane, TextOutcome::Typed(half))) => typed.push((errand, pane, half)),
                Ok((_, TextOutcome::Sent)) => report(reports, &errand, NudgeOutcome::Sent),
                Ok((_, TextOutcome::Refused { deferral })) => {
                    report(reports, &errand, NudgeOutcome::Refused { deferral })
                }
                Err(outcome) => report(reports, &errand, outcome),
            }
        }
        let now = std::time::Instant::now();
        let (due, later): (Vec<_>, Vec<_>) =
            typed.into_iter().partition(|(_, _, t)| t.enter_after() <= now);
        typed = later;
        for (errand, mut pane, half) in due {
            let outcome = pane.nudge_enter(half).unwrap_or_else(|error| failed(&error));
            report(reports, &errand, outcome);
        }
    }
}

fn type_text(
    server: &Server,
    locks: &Path,
    errand: &Errand,
) -> Result<(TmuxPane, TextOutcome), NudgeOutcome> {
    let made = errand.entry.open(server.clone(), Arc::clone(&errand.profile), locks);
    let mut pane = made.map_err(|error| failed(&error))?;
    let nothing = NudgeOutcome::Refused { deferral: Deferral::Moved };
    let Some(text) = &errand.text else { return Err(nothing) };
    if errand.job == Job::Submit {
        return Err(pane.submit(text).unwrap_or_else(|error| failed(&error)));
    }
    let outcome = pane.nudge_text(text).map_err(|error| failed(&error))?;
    Ok((pane, outcome))
}

fn failed(error: &ensemble_core::Error) -> NudgeOutcome {
    tracing::warn!(%error, "cannot nudge");
    NudgeOutcome::Refused { deferral: Deferral::ServerGone }
}

fn report(reports: &Sender<Back>, errand: &Errand, outcome: NudgeOutcome) {
    let report = Report { agent: errand.entry.agent.clone(), attempt: errand.attempt, outcome };
    // Nobody listens any more while the watcher is stopping.
    let _ = reports.send(Back::Typed(report));
}

/// Looks, if that is the errand.
fn looked(server: &Server, locks: &Path, errand: &Errand, reports: &Sender<Back>) -> bool {
    if errand.job != Job::Look {
        return false;
    }
    let pane = errand.entry.open(server.clone(), Arc::clone(&errand.profile), locks);
    let sight = pane.map_or(Sight::Unseen, |mut pane| members::look_at(server, &mut pane));
    let _ = reports.send(Back::Looked { agent: errand.entry.agent.clone(), sight });
    true
}
