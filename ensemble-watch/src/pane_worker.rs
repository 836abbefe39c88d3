//! Typing, on its own threads. There is one thread for each tmux server, so that a server that
//! hangs (each exchange is given five seconds) delays no other server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use ensemble_core::agent::AgentState;
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome, NudgeText};
use ensemble_core::{Error, Result};
use ensemble_project::panes::{PaneEntry, observe};
use ensemble_project::sources::AgentSources;
use ensemble_team::roster::PaneObservation;
use ensemble_tmux::nudge::NudgeOccasion;
use ensemble_tmux::provider::{Profile, UsageLimit};
use ensemble_tmux::terminal::BoundPane;
use ensemble_tmux::terminal::hosted::MailCount;
use ensemble_tmux::tmux::{TextOutcome, TmuxServer, TypedNudge};

use crate::screens::ServerScreens;
use crate::wakes::{LoopWake, LoopWaker, TypeReport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaneTaskKind {
    Type(NudgeOccasion),
    /// Interrupt an agent that is at work, as its profile allows it.
    Interrupt,
    /// The text is in the composer: press Enter if it still does, and type nothing.
    Submit,
    /// Take back our unsent line if nothing else is in the composer.
    Withdraw,
    Observe,
    ShowMail(MailCount),
}

#[derive(Clone, Debug)]
pub(crate) struct PaneTask {
    pub(crate) entry: PaneEntry,
    pub(crate) profile: Arc<Profile>,
    pub(crate) attempt: u64,
    /// Missing for [`PaneTaskKind::Observe`] and [`PaneTaskKind::Withdraw`].
    pub(crate) text: Option<NudgeText>,
    pub(crate) kind: PaneTaskKind,
}

#[derive(Debug)]
pub(crate) struct PaneWorkers {
    means: WorkerContext,
    queues: HashMap<PathBuf, Sender<PaneTask>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for PaneWorkers {
    /// Waits until the last task is done and the control clients have ended. A client that is left
    /// behind by a server that is ending at the same time would keep that server forever.
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Debug)]
struct WorkerContext {
    sources: AgentSources,
    locks: PathBuf,
    waker: LoopWaker,
}

impl PaneWorkers {
    /// `locks` is shared by all that may type into a pane; the loop receives the results.
    pub(crate) fn new(sources: AgentSources, locks: PathBuf, waker: LoopWaker) -> Self {
        let means = WorkerContext { sources, locks, waker };
        Self { means, queues: HashMap::new(), threads: Vec::new() }
    }

    /// Hands a task to the worker of its server, which always reports a result.
    pub(crate) fn send(&mut self, pane_task: PaneTask) {
        let socket = pane_task.entry.binding.socket.clone();
        let queue = self.queues.entry(socket.clone()).or_insert_with(|| {
            let (sender, receiver) = unbounded();
            let means = self.means.clone();
            let worker = move || PaneWorker::new(TmuxServer::new(socket), means).run(&receiver);
            self.threads.push(thread::spawn(worker));
            sender
        });
        // The thread ends only when this sender is dropped.
        let _ = queue.send(pane_task);
    }
}

struct PaneWorker {
    server: TmuxServer,
    means: WorkerContext,
    /// The limits that were seen at the last look, by agent: their messages may not say the day.
    limits: HashMap<Name, UsageLimit>,
    screens: ServerScreens,
}

impl PaneWorker {
    fn new(server: TmuxServer, means: WorkerContext) -> Self {
        let screens = ServerScreens::new(Instant::now());
        Self { server, means, limits: HashMap::new(), screens }
    }

    fn run(&mut self, pane_tasks: &Receiver<PaneTask>) {
        let mut typed: Vec<(PaneTask, BoundPane, TypedNudge)> = Vec::new();
        loop {
            let next_enter = typed.iter().map(|(_, _, t)| t.enter_after).min();
            let pane_task = match next_enter.into_iter().chain(self.screens.due()).min() {
                Some(at) => match pane_tasks.recv_deadline(at) {
                    Ok(pane_task) => Some(pane_task),
                    Err(RecvTimeoutError::Timeout) => None,
                    // Lines that were typed are still submitted.
                    Err(RecvTimeoutError::Disconnected) if typed.is_empty() => return,
                    Err(RecvTimeoutError::Disconnected) => {
                        if let Some(at) = next_enter {
                            thread::sleep(at.saturating_duration_since(Instant::now()));
                        }
                        None
                    }
                },
                None => match pane_tasks.recv() {
                    Ok(pane_task) => Some(pane_task),
                    Err(_) => return,
                },
            };
            if let Some(pane_task) = pane_task {
                typed.extend(self.go(pane_task));
            }
            let now = Instant::now();
            for agent in self.screens.ask(now, &self.server) {
                self.send(LoopWake::ScreenChanged(agent));
            }
            let (due, later): (Vec<_>, Vec<_>) =
                typed.into_iter().partition(|(_, _, t)| t.enter_after <= now);
            typed = later;
            for (pane_task, mut pane, half) in due {
                match pane.enter_if_shown(half).unwrap_or_else(|error| Ok(failed(&error))) {
                    Ok(outcome) => self.report(&pane_task, Some(&pane), outcome),
                    Err(half) => typed.push((pane_task, pane, half)),
                }
            }
        }
    }

    fn go(&mut self, pane_task: PaneTask) -> Option<(PaneTask, BoundPane, TypedNudge)> {
        if let PaneTaskKind::ShowMail(mail) = pane_task.kind {
            if let Err(error) = pane_task.entry.binding.show_mail(mail) {
                tracing::debug!(%error, "cannot show mail beside a pane");
            }
            return None;
        }
        let mut pane = match self.open(&pane_task) {
            Ok(pane) => pane,
            Err(error) => {
                match pane_task.kind {
                    PaneTaskKind::Observe => self.send(LoopWake::Observed {
                        agent: pane_task.entry.agent,
                        observation: PaneObservation::Unseen,
                    }),
                    PaneTaskKind::ShowMail(_) => {}
                    PaneTaskKind::Type(_)
                    | PaneTaskKind::Interrupt
                    | PaneTaskKind::Submit
                    | PaneTaskKind::Withdraw => self.report(&pane_task, None, failed(&error)),
                }
                return None;
            }
        };
        let outcome = match (pane_task.kind, &pane_task.text) {
            (PaneTaskKind::Observe, _) => {
                let binding = &pane_task.entry.binding;
                if !binding.is_terminal() {
                    self.screens.follow(&binding.id, &pane_task.entry.agent);
                }
                let observation = observe(&mut pane);
                report_state(&pane_task.entry, &observation);
                self.remember(&pane_task, &pane);
                self.send(LoopWake::Observed { agent: pane_task.entry.agent, observation });
                return None;
            }
            (PaneTaskKind::Withdraw, _) => match pane.withdraw_line() {
                Ok(deferral) => NudgeOutcome::Refused { deferral },
                Err(error) => failed(&error),
            },
            (PaneTaskKind::Submit, Some(text)) => {
                pane.submit(text).unwrap_or_else(|error| failed(&error))
            }
            (kind @ (PaneTaskKind::Type(_) | PaneTaskKind::Interrupt), Some(text)) => {
                let typed = match kind {
                    PaneTaskKind::Type(occasion) => pane.nudge_text(text, occasion),
                    _ => pane.interrupt(text),
                };
                match typed {
                    Ok(TextOutcome::Typed(half)) => return Some((pane_task, pane, half)),
                    Ok(TextOutcome::Sent) => NudgeOutcome::Sent,
                    Ok(TextOutcome::Refused { deferral }) => NudgeOutcome::Refused { deferral },
                    Err(error) => failed(&error),
                }
            }
            (
                PaneTaskKind::Type(_)
                | PaneTaskKind::Interrupt
                | PaneTaskKind::Submit
                | PaneTaskKind::ShowMail(_),
                _,
            ) => NudgeOutcome::Refused { deferral: Deferral::Moved },
        };
        // Such an answer does not include when the limit ends, so observe the pane ourselves.
        if is_limited(&outcome) && !pane_task.entry.binding.is_in_tmux() {
            let _ = observe(&mut pane);
        }
        self.report(&pane_task, Some(&pane), outcome);
        None
    }

    fn open(&self, pane_task: &PaneTask) -> Result<BoundPane> {
        let WorkerContext { sources, locks, .. } = &self.means;
        let profile = Arc::clone(&pane_task.profile);
        let PaneEntry { agent, binding, .. } = &pane_task.entry;
        let limit = self.limits.get(agent).cloned();
        let observer = sources.observer(Some(agent), profile).with_limit(limit);
        BoundPane::open(self.server.clone(), binding.clone(), observer, locks)
    }

    fn remember(&mut self, pane_task: &PaneTask, pane: &BoundPane) {
        match pane.limit() {
            Some(limit) => self.limits.insert(pane_task.entry.agent.clone(), limit.clone()),
            None => self.limits.remove(&pane_task.entry.agent),
        };
    }

    fn report(&mut self, pane_task: &PaneTask, pane: Option<&BoundPane>, outcome: NudgeOutcome) {
        let is_limited = is_limited(&outcome);
        let mut limited_until = None;
        if let Some(pane) = pane {
            self.remember(pane_task, pane);
            limited_until = pane.limit().filter(|_| is_limited).map(|limit| limit.until);
        }
        let (agent, attempt) = (pane_task.entry.agent.clone(), pane_task.attempt);
        let is_limited = pane.is_some_and(BoundPane::is_limited_without_end);
        self.send(LoopWake::Typed(TypeReport {
            agent,
            attempt,
            outcome,
            limited_until,
            is_limited,
        }));
    }

    fn send(&self, result: LoopWake) {
        self.means.waker.wake(result);
    }
}

/// Reports a state to the multiplexer of a pane, for the people who look there.
fn report_state(entry: &PaneEntry, observation: &PaneObservation) {
    if let PaneObservation::Seen(judgement) = observation
        && let Err(error) = entry.binding.report_state(&entry.agent, judgement.state)
    {
        tracing::debug!(%error, "cannot report a state beside a pane");
    }
}

fn is_limited(outcome: &NudgeOutcome) -> bool {
    let limited = AgentState::RateLimited.word();
    matches!(outcome,
        NudgeOutcome::Refused { deferral: Deferral::NotReady { state } } if state == limited)
}

/// Why nothing could be tried, in the words of what went wrong.
fn failed(error: &Error) -> NudgeOutcome {
    tracing::warn!(%error, "cannot nudge");
    NudgeOutcome::Refused { deferral: Deferral::of(error) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ensemble_tmux::provider::Profiles;
    use ensemble_tmux::session::Sessions;
    use ensemble_tmux::tmux::Binding;

    use super::*;
    use crate::watch_set::loop_sources;

    /// Why a nudge to a pane on this server was refused.
    fn refusal(socket: &Path, locks: &Path, id: &str) -> Deferral {
        let binding = Binding {
            socket: socket.to_owned(),
            id: id.to_owned(),
            token: "0".repeat(32),
            pid: 7,
            started: None,
        };
        let agent = Name::new("w1").unwrap();
        let (mailbox, provider) = (agent.clone(), "shell".to_owned());
        let entry = PaneEntry::new(agent, mailbox, provider, binding);
        let profile = Profiles::embedded().unwrap().get("shell").unwrap();
        let text = Some(NudgeText::new(": mail").unwrap());
        let sessions = Sessions::open(locks);
        let sources = AgentSources::new(locks.to_owned(), Default::default(), sessions);
        let (waker, mut loop_sources) = loop_sources().unwrap();
        let mut pane_workers = PaneWorkers::new(sources, locks.to_owned(), waker);
        pane_workers.send(PaneTask {
            entry,
            profile,
            attempt: 1,
            text,
            kind: PaneTaskKind::Type(NudgeOccasion::News),
        });
        match loop_sources.next_wakes(None).pop() {
            Some(LoopWake::Typed(TypeReport {
                outcome: NudgeOutcome::Refused { deferral },
                ..
            })) => deferral,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refusal_names_its_cause() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("no-such-socket");
        assert_eq!(refusal(&socket, &home.path().join("locks"), "%3"), Deferral::ServerGone);
        let refused = refusal(&socket, &home.path().join("locks"), "%3; kill-server");
        assert_eq!(refused.word(), "failed");
        assert!(refused.to_string().contains("bind the pane again"), "{refused}");
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        let no_locks = refusal(&socket, &file, "%3");
        assert_eq!(no_locks.word(), "failed");
        assert!(no_locks.to_string().contains("create directory"), "{no_locks}");
    }
}
