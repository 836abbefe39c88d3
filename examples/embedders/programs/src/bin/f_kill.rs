//! Workers that are killed at any moment: each message is settled exactly once.
use ensemble_core::events::{EventLog, Follower};
use ensemble_core::{Durability, Mailbox, Queue, Result, Settings};
use std::{collections::HashSet, env, path::Path, process::Command, thread::sleep, time::Duration};
fn open(root: &Path) -> Result<Mailbox> {
    let options = Queue::options().events(EventLog::open(&root.join("logs"))?);
    let queue = options.durability(Durability::Process).open_or_create(root.join("queue"))?;
    queue.mailbox_with("pool", &Settings::default().with_lease_seconds(1).with_attempts_max(100))
}
fn work(root: &Path, holder: &str) -> Result<()> {
    let pool = open(root)?.as_holder(holder)?;
    while let Some(job) = pool.recv_timeout(Duration::from_secs(5))? {
        job.settle()?;
    }
    Ok(())
}
fn main() -> Result<()> {
    if let [_, root, holder] = &env::args().collect::<Vec<_>>()[..] {
        return work(root.as_ref(), holder);
    }
    let home = tempfile::tempdir().expect("a directory");
    let pool = open(home.path())?;
    pool.send_all((0..1_000).map(|n| format!("job {n}")))?;
    for kill in 0..40 {
        let mut me = Command::new(env::current_exe().expect("a path"));
        let mut worker = me.arg(home.path()).arg(format!("w-{}", kill % 3)).spawn().expect("it");
        sleep(Duration::from_millis(20 + kill % 40));
        worker.kill().and_then(|()| worker.wait()).expect("an end");
    }
    work(home.path(), "last")?;
    let ends = Follower::from_start(&home.path().join("logs")).only(["message.settled"]).poll()?;
    let ids: HashSet<_> = ends.iter().map(|record| record.data["id"].to_string()).collect();
    assert!(ids.len() == ends.len() && pool.counts()?.settled == 1_000, "twice or never");
    Ok(())
}
