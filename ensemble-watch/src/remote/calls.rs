//! Answers what other hosts ask of this one: whether a worker is ready.
//!
//! ```text
//! another host --call-->  this thread --> a thread for each call: types the ping, waits for the pong
//! another host <--answer-- this thread <-- the answer
//! ```
//!
//! A handshake takes up to half a minute, so no round waits for it. *A crash* loses the handshake: the next watcher
//! finds the call without an answer and starts again, as long as its asker waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::agent::AgentPane;
use ensemble_core::driver::{PongBox, ReadyOutcome, TaskAssigner};
use ensemble_core::env::{Monotonic, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::watch::Waiter;
use ensemble_core::{Error, Result};
use ensemble_nats::{HostCall, NatsTransport};
use ensemble_project::hosts::PingCall;
use ensemble_project::panes;
use ensemble_project::sessions::hook_evidence;
use ensemble_project::team::{MemberPane, PaneOpener};
use ensemble_tmux::tmux::TmuxServer;

use crate::context::WatchContext;

/// Interval at which all calls are read, in case a notice was lost.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
const AT_ONCE_MAX: usize = 8;

pub(super) struct HostCalls {
    host: Name,
    context: Arc<WatchContext>,
    next_scan: Monotonic,
    open: BTreeSet<Name>,
    answered: Receiver<(Name, ReadyOutcome)>,
    answers: Sender<(Name, ReadyOutcome)>,
}

impl HostCalls {
    pub(super) fn open(context: &Arc<WatchContext>, now: Monotonic) -> Result<Self> {
        let (answers, answered) = unbounded();
        let (host, context) = (context.project.host()?, Arc::clone(context));
        Ok(Self { host, context, next_scan: now, open: BTreeSet::new(), answered, answers })
    }

    pub(super) fn answer(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        while let Ok((call, answer)) = self.answered.try_recv() {
            let text = serde_json::to_string(&answer).unwrap_or_default();
            queue.answer_call(&self.host, &call, &text)?;
            self.open.remove(&call);
        }
        if !queue.was_called(&self.host) && now < self.next_scan {
            return Ok(());
        }
        self.next_scan = now + SCAN_INTERVAL;
        let calls = queue.calls(&self.host)?;
        // The servers may have refused an answer, and its asker does not wait any more.
        self.open.retain(|id| calls.iter().any(|call| call.id == *id));
        for call in calls {
            if self.open.len() >= AT_ONCE_MAX {
                break;
            }
            if !self.open.contains(&call.id) {
                self.begin(call);
            }
        }
        Ok(())
    }

    fn begin(&mut self, call: HostCall) {
        // A call from a later version is not answered, which is harmless because its asker does not wait forever.
        let Ok(ping) = serde_json::from_str::<PingCall>(&call.text) else { return };
        let (context, answers) = (Arc::clone(&self.context), self.answers.clone());
        self.open.insert(call.id.clone());
        thread::spawn(move || {
            let unknown = |error: Error| ReadyOutcome::NotReady(ping.unknown(error.to_string()));
            let answer = answer_ping(&context, &ping).unwrap_or_else(unknown);
            // The watcher may have ended.
            let _ = answers.send((call.id, answer));
        });
    }
}

fn answer_ping(context: &WatchContext, ping: &PingCall) -> Result<ReadyOutcome> {
    let WatchContext { project, spool, recorder } = context;
    let mut bound = match panes::find(&project.panes(), &ping.worker)? {
        Some(entry) => {
            let profile = project.profiles()?.get(&entry.provider)?;
            let server = TmuxServer::brief(entry.binding.socket.clone());
            let pane = entry.open(server, profile, &project.sources(), &project.locks())?;
            Some((entry, pane))
        }
        None => None,
    };
    PongBox::open(project.ready())?;
    let waiter = Waiter::new(&[project.ready()]);
    let assigner = TaskAssigner {
        spool,
        queue: &**spool,
        clock: &SystemClock,
        recorder: &**recorder,
        actor: ping.by.clone(),
        state: project.state.clone(),
        readiness: ping.times(),
        hook: Some(hook_evidence),
        elsewhere: None,
    };
    let opener = PaneOpener {
        project: project.clone(),
        recorder: Arc::clone(recorder),
        actor: ping.by.clone(),
    };
    let mut pane = bound.as_mut().map(|(entry, pane)| MemberPane::new(opener, entry, pane));
    let pane = pane.as_mut().map(|pane| pane as &mut dyn AgentPane);
    assigner.ping(&ping.worker, pane, &mut |longest| {
        waiter.wait(longest);
        Ok(())
    })
}
