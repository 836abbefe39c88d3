//! A pool of three threads squares numbers; the lead sums the answers.
use ensemble_core::{CancelToken, Draft, Message, Queue, Result};
fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let (queue, stop) = (Queue::open_or_create(home.path())?, CancelToken::new()?);
    let (lead, pool) = (queue.mailbox("lead")?, queue.mailbox("pool")?.until(&stop));
    pool.send_all((1..=29).map(|n| Draft::json(&n).sender("lead")))?;
    for number in 1..=3 {
        let inbox = pool.as_holder(format!("worker-{number}"))?;
        std::thread::spawn(move || inbox.answer(|job| Ok(Draft::json(&job.json::<u64>()?.pow(2)))));
    }
    let settle = |answer: Message| answer.settle().and_then(|()| answer.json::<u64>());
    let answers = lead.messages().take(29).map(|answer| answer.and_then(settle));
    assert_eq!(answers.sum::<Result<u64>>()?, 8555);
    stop.cancel();
    Ok(())
}
