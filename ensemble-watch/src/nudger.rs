//! Typing, on threads of its own: one for each tmux server, so that a server that hangs (each
//! exchange is given five seconds) holds up nobody else.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::pane::{Deferral, NudgeOutcome, NudgeText};
use ensemble_core::proto::nudge::Occasion;
use ensemble_core::provider::{AgentState, Limit, Profile};
use ensemble_core::roster::Sight;
use ensemble_core::tmux::{Server, TextOutcome, TmuxPane, TypedNudge};
use ensemble_core::{Error, Result};

use crate::engine::Wake;
use crate::members;
use crate::panes::PaneEntry;
use crate::sources::Sources;
use crate::wakes::Waker;

/// What an errand is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Type the text and submit it.
    Type(Occasion),
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
    /// When the usage limit ends that was in the way, if that is known.
    pub(crate) limited_until: Option<Timestamp>,
    /// The pane shows a usage limit that does not say when it ends.
    pub(crate) is_limited: bool,
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
    means: Means,
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

/// What each thread needs.
#[derive(Clone, Debug)]
struct Means {
    sources: Sources,
    locks: PathBuf,
    waker: Waker,
}

impl Nudgers {
    /// `locks` is shared by all that may type into a pane; the loop is told of outcomes.
    pub(crate) fn new(sources: Sources, locks: PathBuf, waker: Waker) -> Self {
        let means = Means { sources, locks, waker };
        Self { means, errands: HashMap::new(), threads: Vec::new() }
    }

    /// Sends somebody. The outcome is reported later, always.
    pub(crate) fn send(&mut self, errand: Errand) {
        let socket = errand.entry.binding.socket.clone();
        let errands = self.errands.entry(socket.clone()).or_insert_with(|| {
            let (sender, receiver) = unbounded();
            let means = self.means.clone();
            let work = move || Nudger::new(Server::new(socket), means).run(&receiver);
            self.threads.push(thread::spawn(work));
            sender
        });
        // The thread ends only when this sender is dropped.
        let _ = errands.send(errand);
    }
}

/// One such thread.
struct Nudger {
    server: Server,
    means: Means,
    /// The limits that were seen at the last look, by agent: their messages may not say the day.
    limits: HashMap<Name, Limit>,
}

impl Nudger {
    fn new(server: Server, means: Means) -> Self {
        Self { server, means, limits: HashMap::new() }
    }

    fn run(&mut self, errands: &Receiver<Errand>) {
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
            if let Some(errand) = errand {
                typed.extend(self.go(errand));
            }
            let now = std::time::Instant::now();
            let (due, later): (Vec<_>, Vec<_>) =
                typed.into_iter().partition(|(_, _, t)| t.enter_after() <= now);
            typed = later;
            for (errand, mut pane, half) in due {
                let outcome = pane.nudge_enter(half).unwrap_or_else(|error| failed(&error));
                self.report(&errand, Some(&pane), outcome);
            }
        }
    }

    /// Does an errand, or its first half.
    fn go(&mut self, errand: Errand) -> Option<(Errand, TmuxPane, TypedNudge)> {
        let mut pane = match self.open(&errand) {
            Ok(pane) => pane,
            Err(error) => {
                match errand.job {
                    Job::Look => {
                        self.send(Back::Looked { agent: errand.entry.agent, sight: Sight::Unseen })
                    }
                    Job::Type(_) | Job::Submit => self.report(&errand, None, failed(&error)),
                }
                return None;
            }
        };
        let outcome = match (errand.job, &errand.text) {
            (Job::Look, _) => {
                let sight = members::look_at(&self.server, &mut pane);
                self.remember(&errand, &pane);
                self.send(Back::Looked { agent: errand.entry.agent, sight });
                return None;
            }
            (Job::Submit, Some(text)) => pane.submit(text).unwrap_or_else(|error| failed(&error)),
            (Job::Type(occasion), Some(text)) => match typed(&mut pane, occasion, text) {
                Ok(TextOutcome::Typed(half)) => return Some((errand, pane, half)),
                Ok(TextOutcome::Sent) => NudgeOutcome::Sent,
                Ok(TextOutcome::Refused { deferral }) => NudgeOutcome::Refused { deferral },
                Err(error) => failed(&error),
            },
            (Job::Type(_) | Job::Submit, None) => {
                NudgeOutcome::Refused { deferral: Deferral::Moved }
            }
        };
        self.report(&errand, Some(&pane), outcome);
        None
    }

    fn open(&self, errand: &Errand) -> Result<TmuxPane> {
        let Means { sources, locks, .. } = &self.means;
        let profile = Arc::clone(&errand.profile);
        let pane = errand.entry.open(self.server.clone(), profile, sources, locks)?;
        Ok(pane.with_limit(self.limits.get(&errand.entry.agent).cloned()))
    }

    fn remember(&mut self, errand: &Errand, pane: &TmuxPane) {
        match pane.limit() {
            Some(limit) => self.limits.insert(errand.entry.agent.clone(), limit.clone()),
            None => self.limits.remove(&errand.entry.agent),
        };
    }

    fn report(&mut self, errand: &Errand, pane: Option<&TmuxPane>, outcome: NudgeOutcome) {
        let limited = AgentState::RateLimited.word();
        let is_limited = matches!(&outcome,
            NudgeOutcome::Refused { deferral: Deferral::NotReady { state } } if state == limited);
        let mut limited_until = None;
        if let Some(pane) = pane {
            self.remember(errand, pane);
            limited_until = pane.limit().filter(|_| is_limited).map(|limit| limit.until);
        }
        let (agent, attempt) = (errand.entry.agent.clone(), errand.attempt);
        let is_limited = pane.is_some_and(TmuxPane::is_limited_without_end);
        self.send(Back::Typed(Report { agent, attempt, outcome, limited_until, is_limited }));
    }

    fn send(&self, back: Back) {
        self.means.waker.wake(Wake::Back(back));
    }
}

/// The first half of a nudge.
fn typed(pane: &mut TmuxPane, occasion: Occasion, text: &NudgeText) -> Result<TextOutcome> {
    match occasion {
        Occasion::News => pane.nudge_text(text),
        Occasion::Again => pane.nudge_again(text),
        Occasion::Probe => pane.probe_text(text),
    }
}

/// Why nothing could be tried, in the words of what went wrong.
fn failed(error: &Error) -> NudgeOutcome {
    tracing::warn!(%error, "cannot nudge");
    NudgeOutcome::Refused { deferral: Deferral::of(error) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ensemble_core::provider::Profiles;
    use ensemble_core::tmux::Binding;

    use super::*;
    use crate::engine::WatchSet;
    use crate::wakes;

    /// What is said of a nudge to a pane on this server.
    fn told(socket: &Path, locks: &Path, id: &str) -> Deferral {
        let binding = Binding {
            socket: socket.to_owned(),
            id: id.to_owned(),
            token: "0".repeat(32),
            pid: 7,
            started: None,
        };
        let agent = Name::new("w1").unwrap();
        let (mailbox, provider) = (agent.clone(), "shell".to_owned());
        let entry = PaneEntry { agent, mailbox, provider, binding };
        let profile = Profiles::embedded().unwrap().get("shell").unwrap();
        let text = Some(NudgeText::new(": mail").unwrap());
        let sources = Sources::new(locks.to_owned(), Default::default());
        let (waker, mut wakes) = wakes::wakes().unwrap();
        let mut nudgers = Nudgers::new(sources, locks.to_owned(), waker);
        nudgers.send(Errand { entry, profile, attempt: 1, text, job: Job::Type(Occasion::News) });
        match wakes.next(WatchSet::empty(), None).pop() {
            Some(Wake::Back(Back::Typed(Report {
                outcome: NudgeOutcome::Refused { deferral },
                ..
            }))) => deferral,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_really_failed_is_said() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("no-such-socket");
        assert_eq!(told(&socket, &home.path().join("locks"), "%3"), Deferral::ServerGone);
        let refused = told(&socket, &home.path().join("locks"), "%3; kill-server");
        assert_eq!(refused.word(), "failed");
        assert!(refused.to_string().contains("bind the pane again"), "{refused}");
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        let no_locks = told(&socket, &file, "%3");
        assert_eq!(no_locks.word(), "failed");
        assert!(no_locks.to_string().contains("make the lock directory"), "{no_locks}");
    }
}
