//! Workers as threads: each waits for mail, works, replies and settles. One of them dies with a task in its hands, and
//! another one finishes that task when the lease has expired. No sidecar runs.

use std::thread;
use std::time::Duration;

use ensemble_core::{CancelToken, Draft, Mailbox, Queue, Result, Settings};

const TASKS: usize = 8;
const WORKERS: usize = 3;
/// How long a worker may be silent before its task goes to another one.
const LEASE_SECONDS: u64 = 2;
/// Longer than the whole program takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works through the pool's mailbox until the token stops it.
fn work(inbox: &Mailbox) -> Result<()> {
    while let Some(task) = inbox.recv()? {
        if task.body() == "task 1" && task.delivery() == 1 {
            println!("{} dies with {}", inbox.holder(), task.body());
            let _held = task.keep(); // as a killed process leaves it: held, until its lease expires
            return Ok(());
        }
        task.reply(format!("{} did {}", inbox.holder(), task.body()))?;
        task.settle()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open_or_create(home.path().join("queue"))?;
    let settings = Settings::default().with_lease_seconds(LEASE_SECONDS);
    let (lead, pool) = (queue.mailbox("lead")?, queue.mailbox_with("pool", &settings)?);
    let stop = CancelToken::new()?;

    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        let inbox = pool.as_holder(format!("worker-{number}"))?.until(&stop);
        workers.push(thread::spawn(move || work(&inbox)));
    }
    for number in 1..=TASKS {
        pool.send(Draft::new(format!("task {number}")).sender(&lead))?;
    }
    for _ in 1..=TASKS {
        let report = lead.recv_timeout(PATIENCE)?.expect("no task gets lost");
        println!("{} reads: {}", lead.name(), report.body());
        report.settle()?;
    }
    stop.cancel();
    for worker in workers {
        worker.join().expect("no worker panics")?;
    }
    let counts = pool.counts()?;
    assert_eq!((counts.queued, counts.acked), (0, 0), "everything is settled");
    assert_eq!(counts.settled as usize, TASKS);
    Ok(())
}
