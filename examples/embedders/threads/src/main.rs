//! Workers as threads: each waits for mail, works, settles and reports. One of them dies with a task in its
//! hands, and another one finishes that task when the lease is over. No sidecar runs.

use std::time::{Duration, Instant};

use ensemble_core::Result;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Options, Settings, Spool};

const TASKS: usize = 8;
const WORKERS: usize = 3;
/// How long a worker may be silent before its task is another one's.
const LEASE_SECONDS: u64 = 2;
/// Longer than the whole program takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works off the pool's mailbox until the lead says that all is done.
fn work(spool: &Spool, pool: &Name, lead: &Name, me: &Name) -> Result<()> {
    while let Some(task) = spool.receive_wait(pool, me, Instant::now() + PATIENCE)? {
        if task.envelope.kind.as_str() == "stop" {
            return spool.settle(&task.lease);
        }
        if task.envelope.body == "task 1" && task.lease.epoch == 1 {
            println!("{me} dies with {}", task.envelope.body);
            return Ok(()); // neither settled nor released
        }
        let report = Envelope::new(lead.clone(), format!("{me} did {}", task.envelope.body));
        spool.publish(&report.from(me.clone()))?;
        spool.settle(&task.lease)?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let spool = &Spool::create(&home.path().join("queue"), Options::default())?;
    let (lead, pool) = (&Name::new("lead")?, &Name::new("pool")?);
    spool.add_mailbox(lead, &Settings::default())?;
    spool.add_mailbox(pool, &Settings::default().with_lease_seconds(LEASE_SECONDS))?;

    std::thread::scope(|scope| -> std::result::Result<(), Box<dyn std::error::Error>> {
        let mut workers = Vec::new();
        for number in 1..=WORKERS {
            let me = Name::new(format!("worker-{number}"))?;
            workers.push(scope.spawn(move || work(spool, pool, lead, &me)));
        }
        for number in 1..=TASKS {
            spool.publish(&Envelope::new(pool.clone(), format!("task {number}")))?;
        }
        for _ in 1..=TASKS {
            let report = spool.receive_wait(lead, lead, Instant::now() + PATIENCE)?;
            let report = report.ok_or("a task got lost")?;
            println!("{lead} reads: {}", report.envelope.body);
            spool.settle(&report.lease)?;
        }
        // One of the workers is gone, and needs no message to stop.
        for _ in 1..WORKERS {
            let stop = Envelope::new(pool.clone(), "all done").with_kind(Name::new("stop")?);
            spool.publish(&stop)?;
        }
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))?;
        Ok(())
    })?;
    let counts = spool.counts(pool)?;
    assert_eq!((counts.queued, counts.acked), (0, 0), "everything is settled");
    assert_eq!(counts.settled as usize, TASKS + WORKERS - 1);
    Ok(())
}
