//! Four phases over a pane of one's own, with an event log.
use ensemble_core::events::{EventLog, Follower};
use ensemble_core::{AckManager, AgentState, CallbackResult, Ended, Key, Queue, WorkerPane};
use std::{sync::Arc, time::Duration};
struct Silent;
impl WorkerPane for Silent {
    fn observe(&mut self) -> CallbackResult<AgentState> {
        Ok(AgentState::Ready)
    }
    fn nudge(&mut self, _hint: &str) -> CallbackResult {
        Ok(())
    }
    fn press(&mut self, _key: Key) -> CallbackResult {
        Ok(())
    }
}
fn main() -> ensemble_core::Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let log = Arc::new(EventLog::open(&home.path().join("logs"))?);
    let queue = Queue::options().events(log).open_or_create(home.path().join("queue"))?;
    queue.mailbox("worker-1")?;
    let mut acks = AckManager::new(&queue, "dispatch")?;
    let phase = Duration::from_millis(50);
    let ended = acks.assign("worker-1", "count").pane(Silent).phase_timeout(phase).wait()?;
    assert!(matches!(ended, Ended::Escalated { .. }));
    let mut phases = Follower::from_start(&home.path().join("logs")).only(["ladder.*"]);
    assert!(phases.poll()?.len() >= 3);
    Ok(())
}
