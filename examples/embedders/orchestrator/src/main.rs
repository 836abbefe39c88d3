//! An orchestrator with its own loop. Its agents are threads in this program. They have no
//! terminal, so their pane is a channel, and their state is what the orchestrator knows of them.
//! `AckManager` delivers the tasks, nudges an agent that does not take its task, and tells the lead
//! where it never does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::agent::{AgentPane, AgentState, Diagnosis, Program};
use ensemble_core::driver::{AckManager, Ended, Order};
use ensemble_core::env::{Clock as _, Pane, SystemClock};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};
use ensemble_core::proto::ack::Config;
use ensemble_core::spool::{Options, Settings, Spool};

/// An agent without a screen.
struct Headless {
    program: Program,
    /// What the orchestrator knows of it.
    state: AgentState,
    hints: Sender<NudgeText>,
}

impl Pane for Headless {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(PaneState::headless())
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        let gone = NudgeOutcome::Refused { deferral: Deferral::PaneGone };
        Ok(self.hints.send(text.clone()).map_or(gone, |()| NudgeOutcome::Sent))
    }
    fn press(&mut self, _key: Key) -> Result<NudgeOutcome> {
        Ok(NudgeOutcome::Refused { deferral: Deferral::InputOff })
    }
    fn open(&mut self, _command: &str) -> Result<NudgeOutcome> {
        Ok(NudgeOutcome::Refused { deferral: Deferral::InputOff })
    }
}

impl AgentPane for Headless {
    fn program(&self) -> &Program {
        &self.program
    }
    fn diagnose(&mut self) -> Result<Diagnosis> {
        Ok(Diagnosis::of(self.state))
    }
}

/// Sleeps until it is given a hint, then works off its mailbox.
fn agent(spool: &Spool, me: &Name, hints: Receiver<NudgeText>, changed: &Sender<()>) {
    for hint in hints {
        println!("{me} reads: {hint}");
        while let Some(task) = spool.receive(me, me).expect("a queue") {
            let _ = changed.send(()); // received, which is the ack
            spool.settle(&task.lease).expect("the lease is held");
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let spool = Arc::new(Spool::create(&home.path().join("queue"), Options::default())?);
    let (changed, changes) = channel();
    let config = Config::default().with_phase_timeout(Duration::from_millis(500));
    let mut manager = AckManager::new(Arc::clone(&spool), Name::new("lead")?);
    for name in ["healthy", "gone"] {
        let me = Name::new(name)?;
        spool.add_mailbox(&me, &Settings::default())?;
        let (hints, heard) = channel();
        let pane = Headless { program: Program::plain(name), state: AgentState::Ready, hints };
        if name == "healthy" {
            let (spool, me, changed) = (Arc::clone(&spool), me.clone(), changed.clone());
            std::thread::spawn(move || agent(&spool, &me, heard, &changed));
        }
        let task = Envelope::new(me.clone(), "count the lines of src/\n");
        let order = Order::new(format!("task-{name}"), me, task).with_config(config);
        let id = manager.deliver(order, Some(Box::new(pane)))?;
        manager.nudge(id); // no watcher does
    }
    let mut ended = Vec::new();
    while ended.len() < 2 {
        manager.handle_mail(None)?;
        manager.handle_timeout()?;
        while let Some((id, end)) = manager.poll_ended() {
            println!("{id:?}: {end:?}");
            ended.push(end);
        }
        // The loop's own events come through the same channel.
        let now = SystemClock.monotonic();
        let left = manager.poll_timeout().map_or(Duration::MAX, |at| at.since(now));
        let _ = changes.recv_timeout(left.min(Duration::from_secs(1)));
    }
    assert!(matches!(&ended[0], Ended::Acked { .. }), "the healthy agent has its task");
    assert!(matches!(&ended[1], Ended::Escalated { .. }), "the lead is told of the other one");
    Ok(())
}
