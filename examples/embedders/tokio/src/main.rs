//! Ensemble inside a tokio program: a pool of tasks receives, works in async code, and settles; a lead asks and waits.
//! No thread waits and nothing polls: the runtime watches one descriptor for the whole queue.

use std::time::Duration;

use ensemble_core::{Draft, Mailbox, Queue, Result};
use tokio::task::JoinSet;

const TASKS: usize = 6;
const WORKERS: usize = 3;

/// Works until it is aborted. A `recv` that is cancelled takes no message with it.
async fn work(pool: Mailbox) -> Result<()> {
    let mut jobs = pool.incoming()?;
    loop {
        let job = jobs.recv().await?;
        tokio::task::yield_now().await; // the work; an early `?` returns the job to the pool
        let answer = format!("{} did {}", pool.holder(), job.body());
        // Both calls wait for the disk, so they go to a thread for blocking work.
        job.blocking(move |job| {
            job.reply(answer)?;
            job.settle()
        })
        .await?;
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open_or_create(home.path().join("queue"))?;
    let (lead, pool) = (queue.mailbox("lead")?, queue.mailbox("pool")?);
    let mut workers = JoinSet::new();
    for number in 1..=WORKERS {
        workers.spawn(work(pool.as_holder(format!("worker-{number}"))?));
    }

    pool.send_all((1..=TASKS).map(|number| Draft::new(format!("task {number}")).sender("lead")))?;
    let mut reports = lead.incoming()?;
    for _ in 1..=TASKS {
        let report = reports.recv().await?;
        println!("{}", report.body());
        report.settle_async().await?;
    }
    let answer = lead.ask_async("pool", "one more", Duration::from_secs(60)).await?;
    let answer = answer.expect("a worker answers");
    println!("asked: {}", answer.body());
    answer.settle_async().await?;

    workers.shutdown().await;
    let counts = pool.counts()?;
    assert_eq!((counts.queued, counts.acked, counts.settled as usize), (0, 0, TASKS + 1));
    Ok(())
}
