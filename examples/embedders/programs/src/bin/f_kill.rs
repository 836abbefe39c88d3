//! Workers that are killed at any moment: each message is settled exactly once.
use ensemble_core::{Durability, Mailbox, Queue, Result, Settings};
use std::{env, fs, io::Write as _, process::Command, thread::sleep, time::Duration};
fn open(root: &str) -> Result<Mailbox> {
    let queue = Queue::options().durability(Durability::Process).open_or_create(root)?;
    let settings = Settings::default().with_lease_seconds(1).with_attempts_max(100);
    queue.mailbox_with("pool", &settings)
}
fn work(root: &str, holder: &str) -> Result<()> {
    let inbox = open(root)?.as_holder(holder)?;
    let mut log = fs::OpenOptions::new().append(true).open(format!("{root}/log")).expect("a log");
    while let Some(job) = inbox.recv_timeout(Duration::from_secs(5))? {
        job.settle()?;
        log.write_all(format!("{}\n", job.id()).as_bytes()).expect("a log");
    }
    Ok(())
}
fn main() -> Result<()> {
    if let [_, root, holder] = &env::args().collect::<Vec<_>>()[..] {
        return work(root, holder);
    }
    let home = tempfile::tempdir().expect("a directory");
    let (root, me) = (home.path().to_str().expect("a name"), env::current_exe().expect("a path"));
    let pool = open(root)?;
    fs::write(format!("{root}/log"), "").expect("a log");
    pool.send_all((0..1_000).map(|n| format!("job {n}")))?;
    for kill in 0..40 {
        let mut worker =
            Command::new(&me).args([root, &format!("w-{}", kill % 3)]).spawn().expect("it");
        sleep(Duration::from_millis(20 + kill % 40));
        worker.kill().and_then(|()| worker.wait()).expect("an end");
    }
    work(root, "last")?;
    let log = fs::read_to_string(format!("{root}/log")).expect("a log");
    let mut ids: Vec<&str> = log.lines().collect();
    ids.sort_unstable();
    assert!(ids.is_sorted_by(|a, b| a != b) && pool.counts()?.settled == 1_000, "twice or never");
    Ok(())
}
