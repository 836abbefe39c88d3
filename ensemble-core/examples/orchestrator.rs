//! An orchestrator with its own loop: a queue, its own pane type, and the deadlines returned by a
//! state machine. The agent is a thread that sleeps until a line is typed into its pane.

use std::sync::mpsc::{Receiver, Sender, channel};

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, Pane, SystemClock};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::nudge::{Effect, Event, NudgeSchedule, RETRY_MAX};
use ensemble_core::spool::{Options, Settings, Spool};

/// The agent's pane: a place that can be observed and typed into.
struct Terminal(Sender<NudgeText>);
const REFUSED: NudgeOutcome = NudgeOutcome::Refused { deferral: Deferral::PaneDead };

impl Pane for Terminal {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(PaneState::default())
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        Ok(self.0.send(text.clone()).map_or(REFUSED, |()| NudgeOutcome::Sent))
    }
    fn press(&mut self, _key: Key) -> Result<NudgeOutcome> {
        Ok(REFUSED)
    }
    fn open(&mut self, _command: &str) -> Result<NudgeOutcome> {
        Ok(REFUSED)
    }
}

/// Sleeps until it is nudged, then handles all waiting messages and reports.
fn agent(spool: &Spool, [lead, me]: &[Name; 2], lines: Receiver<NudgeText>, bell: Sender<()>) {
    for line in lines {
        println!("{me} reads: {line}");
        while let Ok(Some(task)) = spool.receive(me, me) {
            let report = Envelope::new(lead.clone(), format!("{}: done", task.envelope.body));
            spool.publish(&report.from(me.clone())).expect("a disk that works");
            spool.settle(&task.lease).expect("the lease is held");
            let _ = bell.send(()); // a hint; without it the lead looks when its schedule wakes it
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let spool = &Spool::create(&home.path().join("queue"), Options::default())?;
    let names @ [lead, worker] = &[Name::new("lead")?, Name::new("worker-1")?];
    names.iter().try_for_each(|name| spool.add_mailbox(name, &Settings::default()))?;
    for task in ["count", "sort", "format"] {
        spool.publish(&Envelope::new(worker.clone(), task).from(lead.clone()))?;
    }
    let ((keyboard, lines), (bell, rung)) = (channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || agent(spool, names, lines, bell));
        let (mut pane, mut schedule) = (Terminal(keyboard), NudgeSchedule::new());
        schedule.handle(SystemClock.monotonic(), Event::Bound { binding: 1 });
        loop {
            let now = SystemClock.monotonic();
            schedule.handle_timeout(now);
            let waiting = spool.due_ids(worker, 100)?.len() as u64;
            schedule.handle(now, Event::Mail { waiting, taken: 0 });
            while let Some(effect) = schedule.poll_effect() {
                let Effect::Nudge { attempt, waiting, .. } = effect else { continue };
                let text = NudgeText::new(format!("ensemble: {waiting} for {worker}"))?;
                schedule.handle(now, Event::Outcome { attempt, outcome: pane.nudge(&text)? });
            }
            while let Some(report) = spool.receive(lead, lead)? {
                println!("{lead} reads: {}", report.envelope.body);
                spool.settle(&report.lease)?;
            }
            if spool.counts(lead)?.settled == 3 {
                return Ok(()); // the pane closes, which ends the agent
            }
            let _ =
                rung.recv_timeout(schedule.poll_timeout().map_or(RETRY_MAX, |at| at.since(now)));
        }
    })
}
