//! Ensemble inside a tokio program. Calls of the library block for as long as the disk does, so the
//! runtime must know. A worker waits for its mail on the pool for blocking work. The task that owns
//! an `AckManager` steps it in `block_in_place`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::Result;
use ensemble_core::driver::{AckManager, Ended, Order};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Options, Settings, Spool};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{block_in_place, spawn_blocking};

const TASKS: usize = 5;
/// How long a worker waits for its next message.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the manager looks for acks and lets its ladders climb.
const LOOK: Duration = Duration::from_millis(20);

/// Makes a blocking call awaitable.
async fn call<T: Send + 'static>(
    spool: &Arc<Spool>,
    work: impl FnOnce(&Spool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let spool = Arc::clone(spool);
    spawn_blocking(move || work(&spool)).await.expect("the call does not panic")
}

/// A worker: receives, works in async code, settles.
async fn work(spool: Arc<Spool>, me: Name) -> Result<()> {
    for _ in 0..TASKS {
        let name = me.clone();
        let wait = move |spool: &Spool| spool.receive_wait(&name, &name, Instant::now() + PATIENCE);
        let task = call(&spool, wait).await?.expect("a task comes");
        tokio::task::yield_now().await; // the work
        println!("{me} did {} of {}", task.envelope.body, task.envelope.from);
        call(&spool, move |spool| spool.settle(&task.lease)).await?;
    }
    Ok(())
}

/// Owns the manager: delivers each order, and tells how each delivery ended.
async fn deliver(
    mut manager: AckManager<'static>,
    mut orders: Receiver<Order>,
    ends: Sender<Ended>,
) -> Result<()> {
    let (mut open, mut closed) = (0, false);
    while open > 0 || !closed {
        tokio::select! {
            order = orders.recv(), if !closed => match order {
                Some(order) => {
                    block_in_place(|| manager.deliver(order, None))?;
                    open += 1;
                }
                None => closed = true,
            },
            () = tokio::time::sleep(LOOK) => {}
        }
        block_in_place(|| {
            manager.handle_mail(None)?;
            manager.handle_timeout()
        })?;
        while let Some((_, ended)) = manager.poll_ended() {
            open -= 1;
            ends.send(ended).await.expect("main receives until the end");
        }
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let spool = Arc::new(Spool::create(&home.path().join("queue"), Options::default())?);
    let worker = Name::new("worker-1")?;
    spool.add_mailbox(&worker, &Settings::default())?;

    let (orders, queue) = channel(2);
    let (ends, mut ended) = channel(2);
    let manager = AckManager::new(Arc::clone(&spool), Name::new("lead")?);
    let delivering = tokio::spawn(deliver(manager, queue, ends));
    let working = tokio::spawn(work(Arc::clone(&spool), worker.clone()));
    for number in 1..=TASKS {
        let task = Envelope::new(worker.clone(), format!("task {number}"));
        orders.send(Order::new(format!("task-{number}"), worker.clone(), task)).await?;
    }
    drop(orders);
    let mut acked = 0;
    while let Some(end) = ended.recv().await {
        assert!(matches!(end, Ended::Acked { .. }), "{end:?}");
        acked += 1;
    }
    delivering.await??;
    working.await??;
    assert_eq!((acked, spool.counts(&worker)?.settled), (TASKS, TASKS as u64));
    Ok(())
}
