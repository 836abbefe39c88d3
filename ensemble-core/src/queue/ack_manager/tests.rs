use std::sync::mpsc::{Receiver, Sender, channel};

use tempfile::TempDir;

use super::*;
use crate::Durability;
use crate::agent::AgentState;
use crate::event_log::{EventLog, Follower};
use crate::pane::Key;
use crate::queue::CallbackResult;

const PHASE: Duration = Duration::from_millis(20);
/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pane that passes on what is done to it.
struct Recorded {
    state: AgentState,
    steps: Sender<String>,
}

impl WorkerPane for Recorded {
    fn observe(&mut self) -> CallbackResult<AgentState> {
        Ok(self.state)
    }
    fn nudge(&mut self, hint: &str) -> CallbackResult {
        assert!(hint.contains("worker-1"), "{hint}");
        Ok(self.steps.send("nudge".to_owned())?)
    }
    fn press(&mut self, key: Key) -> CallbackResult {
        Ok(self.steps.send(format!("{key:?}"))?)
    }
    fn reset(&mut self) -> CallbackResult {
        Ok(self.steps.send("reset".to_owned())?)
    }
}

fn pane(state: AgentState) -> (Recorded, Receiver<String>) {
    let (steps, seen) = channel();
    (Recorded { state, steps }, seen)
}

fn queue_with_log() -> (TempDir, Queue) {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(EventLog::open(&home.path().join("logs")).unwrap());
    let options = Queue::options().durability(Durability::Process).events(log);
    let queue = options.open_or_create(home.path().join("queue")).unwrap();
    queue.mailbox("worker-1").unwrap();
    (home, queue)
}

fn is_escalated(ended: &Ended) -> bool {
    matches!(ended, Ended::Escalated { .. })
}

#[test]
fn a_silent_worker_goes_through_four_phases_and_the_conductor_gets_a_file() {
    let (home, queue) = queue_with_log();
    let (pane, seen) = pane(AgentState::Ready);
    let mut acks = AckManager::new(&queue, "dispatch").unwrap();
    let task = Draft::new("count").task("task-7");
    let ended = acks.assign("worker-1", task).pane(pane).phase_timeout(PHASE).wait().unwrap();
    assert!(is_escalated(&ended), "{ended:?}");
    let steps: Vec<String> = seen.try_iter().collect();
    assert_eq!(steps, ["nudge", "Escape", "nudge", "reset", "nudge"]);
    assert!(queue.root().join("reports/escalation-task-7.yaml").exists());
    let mut log =
        Follower::from_start(&home.path().join("logs")).only(["ladder.phase", "escalation"]);
    let phases: Vec<_> = log.poll().unwrap().iter().map(|it| it.data["phase"].as_u64()).collect();
    assert_eq!(phases, [Some(1), Some(2), Some(3), Some(3)]);
}

#[test]
fn a_busy_worker_is_left_in_peace() {
    let (_home, queue) = queue_with_log();
    let (pane, seen) = pane(AgentState::Busy);
    let mut acks = AckManager::new(&queue, "dispatch").unwrap();
    let task = acks.assign("worker-1", "count").pane(pane).phase_timeout(PHASE);
    let ended = task.busy_patience(Duration::ZERO).wait().unwrap();
    assert!(matches!(&ended, Ended::Escalated { notice, .. } if notice.reason == "not_pressable"));
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn deliveries_side_by_side_end_each_by_itself() {
    let (_home, queue) = queue_with_log();
    let other = queue.mailbox("worker-2").unwrap();
    let mut acks = AckManager::new(&queue, "dispatch").unwrap();
    assert!(acks.next_ended(PATIENCE).unwrap().is_none(), "none is running");
    let first = acks.assign("worker-1", "count").patience(PHASE).start().unwrap();
    let second = acks.assign("worker-2", "count").start().unwrap();
    let ended = acks.next_ended(PATIENCE).unwrap().unwrap();
    assert!(matches!(ended, (id, Ended::Abandoned { .. }) if id == first), "{ended:?}");
    assert!(acks.next_ended(Duration::ZERO).unwrap().is_none(), "it is running");
    other.try_recv().unwrap().unwrap().settle().unwrap();
    let ended = acks.next_ended(PATIENCE).unwrap().unwrap();
    assert!(matches!(ended, (id, Ended::Acked { .. }) if id == second), "{ended:?}");
}

#[test]
fn mistakes_are_errors_of_the_call_that_ends() {
    let (_home, queue) = queue_with_log();
    let mut acks = AckManager::new(&queue, "dispatch").unwrap();
    assert!(matches!(acks.assign("wroker-1", "x").start(), Err(crate::Error::NoMailbox { .. })));
    assert!(matches!(acks.assign("../x", "x").start(), Err(crate::Error::Invalid { .. })));
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_follows_deliveries_up_and_a_dropped_future_loses_none() {
    let (_home, queue) = queue_with_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let worker = queue.mailbox("worker-1").unwrap();
    runtime.block_on(async {
        let mut acks = AckManager::new(&queue, "dispatch").unwrap();
        let id = acks.assign("worker-1", "count").phase_timeout(PATIENCE).start().unwrap();
        let first = tokio::time::timeout(PHASE, acks.next_ended_async(PATIENCE)).await;
        assert!(first.is_err(), "the worker has not received it");
        let receiving =
            std::thread::spawn(move || worker.recv().unwrap().unwrap().settle().unwrap());
        let ended = loop {
            // Each future is dropped in the middle of a step.
            let step =
                tokio::time::timeout(Duration::from_millis(1), acks.next_ended_async(PATIENCE));
            if let Ok(ended) = step.await {
                break ended.unwrap().unwrap();
            }
        };
        receiving.join().unwrap();
        assert!(matches!(ended, (ended, Ended::Acked { .. }) if ended == id), "{ended:?}");
    });
}
