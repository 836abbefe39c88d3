//! Ask and wait for the answer, with serde types in both directions. A worker's late answer is ordinary mail.

use std::thread;
use std::time::Duration;

use ensemble_core::{CancelToken, Draft, Queue, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct CountRequest {
    file: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct CountReply {
    lines: usize,
}

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open_or_create(home.path().join("queue"))?;
    let stop = CancelToken::new()?;
    let (lead, worker) = (queue.mailbox("lead")?, queue.mailbox("worker-1")?.until(&stop));
    let answering = thread::spawn(move || {
        worker.answer(|question| {
            let CountRequest { file } = question.json()?;
            Ok(Draft::json(&CountReply { lines: file.len() }))
        })
    });

    let question = Draft::json(&CountRequest { file: "src/main.rs".to_owned() });
    let reply = lead.ask("worker-1", question, Duration::from_secs(60))?.expect("an answer");
    assert_eq!(reply.json::<CountReply>()?, CountReply { lines: 11 });
    reply.settle()?;

    stop.cancel();
    answering.join().expect("the worker does not panic")
}
