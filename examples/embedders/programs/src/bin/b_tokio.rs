//! Four async workers until a graceful stop; what they hold then goes back to the pool.
use ensemble_core::{Queue, Result};
use tokio::{task::JoinSet, time::Duration, time::sleep};
#[tokio::main]
async fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let pool = Queue::open_or_create(home.path())?.mailbox("pool")?;
    pool.send_all((1..=200).map(|n| format!("job {n}")))?;
    let mut workers = JoinSet::new();
    for number in 1..=4 {
        let mut jobs = pool.as_holder(format!("worker-{number}"))?.incoming()?;
        workers.spawn(async move {
            while let Ok(job) = jobs.recv().await {
                sleep(Duration::from_millis(10)).await;
                job.settle_async().await.expect("a disk");
            }
        });
    }
    sleep(Duration::from_millis(300)).await;
    workers.shutdown().await;
    while pool.counts()?.acked > 0 {
        sleep(Duration::from_millis(1)).await; // a settle that had begun
    }
    assert_eq!(pool.counts()?.queued + pool.counts()?.settled, 200);
    Ok(())
}
