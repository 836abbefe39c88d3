//! Four phases over a pane of one's own, with an event log.
use ensemble_core::events::{EventLog, Follower};
use ensemble_core::{AckManager, AgentState, CallbackResult, Ended, Queue, WorkerPane};
struct Silent;
impl WorkerPane for Silent {
    fn observe(&mut self) -> CallbackResult<AgentState> {
        Ok(AgentState::Ready)
    }
    fn nudge(&mut self, hint: &str) -> CallbackResult {
        println!("{hint}");
        Ok(())
    }
}
fn main() -> ensemble_core::Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let (root, logs) = (home.path().join("queue"), home.path().join("logs"));
    let queue = Queue::options().events(EventLog::open(&logs)?).open_or_create(root)?;
    queue.mailbox("worker-1")?;
    let phase = std::time::Duration::from_millis(50);
    let mut acks = AckManager::new(&queue, "dispatch")?;
    let ended = acks.assign("worker-1", "count").pane(Silent).phase_timeout(phase).wait()?;
    assert!(matches!(ended, Ended::Escalated { .. }));
    assert!(Follower::from_start(&logs).only(["ladder.*"]).poll()?.len() >= 3);
    Ok(())
}
