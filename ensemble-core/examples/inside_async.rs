//! Ensemble inside an existing async runtime, here tokio with a single thread, without ever
//! blocking it.
//!
//! *Outwards*, from async code to the queue: each call runs on the runtime's blocking pool and is
//! awaited. *Inwards*, from the queue to async code: one thread receives deliveries and sends them
//! over a channel. It sleeps until it is woken, and looks at the mailbox every few seconds anyway.
//! A real program is woken by `ensemble_core::watch`; here the publisher wakes the
//! thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::Delivery;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Options, Settings, Spool};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

const TASKS: usize = 5;
/// How long the thread relies on the wake-up before it looks at the mailbox itself.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Outwards: makes a blocking call awaitable.
async fn call<T: Send + 'static>(
    spool: &Arc<Spool>,
    work: impl FnOnce(&Spool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let spool = Arc::clone(spool);
    spawn_blocking(move || work(&spool)).await.expect("the call does not panic")
}

/// Inwards: receives until every wake-up sender is gone. A full channel stops the thread, so that
/// it holds no more messages than can be processed.
fn receive(spool: &Spool, me: &Name, rung: &Receiver<()>, inbox: &mpsc::Sender<Delivery>) {
    loop {
        while let Ok(Some(delivery)) = spool.receive(me, me) {
            if inbox.blocking_send(delivery).is_err() {
                return; // the channel is closed; the message comes back when its lease is over
            }
        }
        if rung.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

async fn publish(spool: &Arc<Spool>, to: &Name, bell: SyncSender<()>) -> Result<()> {
    for n in 1..=TASKS {
        let envelope = Envelope::new(to.clone(), format!("task {n}"));
        call(spool, move |spool| spool.publish(&envelope)).await?;
        let _ = bell.try_send(()); // a wake-up is already pending
    }
    Ok(())
}

async fn work(spool: &Arc<Spool>, mut inbox: mpsc::Receiver<Delivery>) -> Result<()> {
    while let Some(delivery) = inbox.recv().await {
        println!("done: {}", delivery.envelope.body);
        call(spool, move |spool| spool.settle(&delivery.lease)).await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let spool = Arc::new(Spool::create(&home.path().join("queue"), Options::default())?);
    let worker = Name::new("worker-1")?;
    spool.add_mailbox(&worker, &Settings::default())?;

    let (bell, rung) = sync_channel(1);
    let (outbox, inbox) = mpsc::channel(2);
    let receiver = std::thread::spawn({
        let (spool, worker) = (Arc::clone(&spool), worker.clone());
        move || receive(&spool, &worker, &rung, &outbox)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let (published, worked) = tokio::join!(publish(&spool, &worker, bell), work(&spool, inbox));
        published.and(worked)
    })?;
    receiver.join().expect("the thread has not panicked");
    println!("settled: {}", spool.counts(&worker)?.settled);
    assert_eq!(spool.counts(&worker)?.settled, TASKS as u64);
    Ok(())
}
