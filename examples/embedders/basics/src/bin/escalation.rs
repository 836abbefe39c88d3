//! Tasks for agents without a terminal: hints go through a channel. The manager nudges an agent that does not take its
//! task, and writes an escalation for the one that never does.

use std::sync::mpsc::channel;
use std::time::Duration;

use ensemble_core::events::EventLog;
use ensemble_core::{AckManager, Draft, Ended, Queue, Result};

/// How long each phase waits; a minute by default.
const PHASE: Duration = Duration::from_millis(200);
/// Longer than the whole program takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = EventLog::open(&home.path().join("logs"))?; // NDJSON: each phase, nudge and ack
    let queue = Queue::options().events(log).open_or_create(home.path().join("queue"))?;
    let mut acks = AckManager::new(&queue, "lead")?;
    for name in ["healthy", "gone"] {
        let (inbox, (hints, heard)) = (queue.mailbox(name)?, channel());
        std::thread::spawn(move || -> Result<()> {
            // Sleeps until it gets a hint, then works off its mailbox.
            for hint in heard.into_iter().take_while(|_| inbox.name().as_str() == "healthy") {
                println!("{} reads: {hint}", inbox.name());
                while let Some(task) = inbox.try_recv()? {
                    task.settle()?;
                }
            }
            Ok(())
        });
        let task = Draft::new("count the lines of src/").task(format!("task-{name}"));
        // An agent that is gone is an error: it is tried again.
        let notify = move |hint: &str| Ok(hints.send(hint.to_owned())?);
        acks.assign(name, task).notify(notify).phase_timeout(PHASE).start()?;
    }
    let mut escalated = 0;
    while let Some((_, ended)) = acks.next_ended(PATIENCE)? {
        println!("{ended:?}");
        escalated += usize::from(matches!(ended, Ended::Escalated { .. }));
    }
    assert_eq!(escalated, 1, "the healthy agent has its task, and the other one is escalated");
    Ok(())
}
