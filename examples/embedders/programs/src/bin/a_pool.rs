//! A pool of three threads squares numbers; the lead sums the answers.
use ensemble_core::{CancelToken, Draft, Queue, Result};
fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let (queue, stop) = (Queue::open_or_create(home.path())?, CancelToken::new()?);
    let (lead, pool) = (queue.mailbox("lead")?, queue.mailbox("pool")?.until(&stop));
    pool.send_all((1..=29).map(|n| Draft::json(&n).sender("lead")))?;
    for number in 1..=3 {
        let inbox = pool.as_holder(format!("worker-{number}"))?;
        std::thread::spawn(move || {
            inbox.messages().flatten().try_for_each(|job| {
                job.reply(Draft::json(&job.json::<u64>()?.pow(2)))?;
                job.settle()
            })
        });
    }
    let answers = lead.messages().take(29).map(|answer| -> Result<u64> {
        let answer = answer?;
        answer.settle()?;
        answer.json()
    });
    assert_eq!(answers.sum::<Result<u64>>()?, 8555);
    stop.cancel();
    Ok(())
}
