use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::watch::{FsWatcher, or_skip};
use crate::{Durability, Queue};

/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn queue(home: &tempfile::TempDir) -> Queue {
    Queue::options().durability(Durability::Process).open_or_create(home.path()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn receive(jobs: &mut Incoming) -> Message {
    tokio::time::timeout(PATIENCE, jobs.recv()).await.expect("mail in time").unwrap()
}

#[test]
fn outside_of_a_runtime_it_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let refused = queue(&home).mailbox("worker-1").unwrap().incoming().unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
}

#[test]
fn mail_that_lands_wakes_the_task() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let home = tempfile::tempdir().unwrap();
    let inbox = queue(&home).mailbox("worker-1").unwrap();
    runtime().block_on(async {
        let mut jobs = inbox.incoming().unwrap();
        for round in 0..20 {
            let sender = inbox.clone();
            let sending = tokio::task::spawn_blocking(move || {
                sender.send(format!("task {round}")).unwrap();
                Instant::now()
            });
            let job = receive(&mut jobs).await;
            let waited = sending.await.unwrap().elapsed();
            assert!(waited < POLL_WITH_EVENTS, "only the regular look has found it: {waited:?}");
            assert_eq!((job.body(), job.delivery()), (&*format!("task {round}"), 1));
            job.settle_async().await.unwrap();
        }
    });
}

/// Futures that are dropped at any point: each message is received once, and on its first delivery.
#[test]
fn a_cancelled_receive_takes_nothing_with_it() {
    const MESSAGES: usize = 100;
    let home = tempfile::tempdir().unwrap();
    let inbox = queue(&home).mailbox("worker-1").unwrap();
    let sender = inbox.clone();
    let sending = std::thread::spawn(move || {
        (0..MESSAGES).for_each(|number| drop(sender.send(number.to_string()).unwrap()));
    });
    let mut received = Vec::new();
    let mut cancelled = 0;
    runtime().block_on(async {
        let mut jobs = inbox.incoming().unwrap();
        let began = Instant::now();
        for round in 0_u64.. {
            if received.len() == MESSAGES {
                break;
            }
            assert!(began.elapsed() < PATIENCE);
            let patience = Duration::from_micros(round * 37 % 400);
            match tokio::time::timeout(patience, jobs.recv()).await {
                Ok(job) => {
                    let job = job.unwrap();
                    assert_eq!(job.delivery(), 1, "a cancelled receive has used up an attempt");
                    received.push(job.body().to_owned());
                    job.settle_async().await.unwrap();
                }
                Err(_) => cancelled += 1,
            }
        }
    });
    sending.join().unwrap();
    assert!(cancelled > 0, "nothing was cancelled");
    assert_eq!(received.iter().collect::<BTreeSet<_>>().len(), MESSAGES);
    assert_eq!(inbox.counts().unwrap().settled, MESSAGES as u64);
}

#[test]
fn what_a_dropped_incoming_has_received_goes_back() {
    let home = tempfile::tempdir().unwrap();
    let inbox = queue(&home).mailbox("worker-1").unwrap();
    inbox.send("task").unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let mut jobs = inbox.incoming().unwrap();
        // Long enough for one poll, which begins a look.
        let _ = tokio::time::timeout(Duration::ZERO, jobs.recv()).await;
    });
    // Waits for the look that still runs.
    drop(runtime);
    let again = inbox.recv_timeout(PATIENCE).unwrap().expect("it is back");
    again.settle().unwrap();
}

#[test]
fn a_thousand_mailboxes_are_received_from_in_one_runtime() {
    const MAILBOXES: usize = 1_000;
    let home = tempfile::tempdir().unwrap();
    let queue = queue(&home);
    let names: Vec<String> = (0..MAILBOXES).map(|number| format!("worker-{number}")).collect();
    let boxes: Vec<Mailbox> = names.iter().map(|name| queue.mailbox(name).unwrap()).collect();
    runtime().block_on(async {
        let mut receiving = tokio::task::JoinSet::new();
        for inbox in &boxes {
            let mut jobs = inbox.incoming().unwrap();
            receiving.spawn(async move {
                let job = receive(&mut jobs).await;
                job.settle_async().await.unwrap();
                job.body().to_owned()
            });
        }
        let sending = tokio::task::spawn_blocking(move || {
            names.iter().rev().for_each(|name| drop(queue.send(name, name.as_str()).unwrap()));
        });
        let bodies = receiving.join_all().await;
        sending.await.unwrap();
        assert_eq!(bodies.into_iter().collect::<BTreeSet<_>>().len(), MAILBOXES);
    });
}

#[test]
fn a_thread_reads_the_events_that_a_runtime_leaves() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let home = tempfile::tempdir().unwrap();
    let queue = queue(&home);
    let (of_task, of_thread) = (queue.mailbox("task").unwrap(), queue.mailbox("thread").unwrap());
    let runtime = runtime();
    let mut jobs = runtime.block_on(async {
        let mut jobs = of_task.incoming().unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(50), jobs.recv()).await;
        jobs
    });
    let waiting = std::thread::spawn(move || {
        let received = of_thread.recv_timeout(PATIENCE).unwrap().expect("mail");
        received.settle().unwrap();
        Instant::now()
    });
    // The task of the runtime reads; it ends with the runtime, and the thread has to take over.
    drop(runtime);
    let sent = Instant::now();
    queue.send("thread", "for the thread").unwrap();
    let waited = waiting.join().unwrap().saturating_duration_since(sent);
    assert!(waited < POLL_WITH_EVENTS, "only the regular look has found it: {waited:?}");
    // A receive of a runtime that is gone is an error, and no message is lost with it.
    queue.send("task", "for the task").unwrap();
    let other = self::runtime();
    let job = other.block_on(async {
        drop(std::mem::replace(&mut jobs, of_task.incoming().unwrap()));
        receive(&mut jobs).await
    });
    job.settle().unwrap();
}

#[test]
fn a_question_is_answered_in_a_runtime_and_other_mail_stays() {
    let home = tempfile::tempdir().unwrap();
    let queue = queue(&home);
    let (lead, worker) = (queue.mailbox("lead").unwrap(), queue.mailbox("worker").unwrap());
    lead.send("other mail").unwrap();
    runtime().block_on(async {
        let answering = tokio::spawn(async move {
            let question = receive(&mut worker.incoming().unwrap()).await;
            question
                .blocking(|question| {
                    question.reply(format!("{}: 42", question.body()))?;
                    question.settle()
                })
                .await
                .unwrap();
        });
        let answer = lead.ask_async("worker", "how many?", PATIENCE).await.unwrap().unwrap();
        assert_eq!(answer.body(), "how many?: 42");
        answer.settle_async().await.unwrap();
        answering.await.unwrap();
        let silence = lead.ask_async("worker", "again?", Duration::from_millis(20)).await.unwrap();
        assert!(silence.is_none());
    });
    assert_eq!(lead.counts().unwrap().queued, 1);
}
