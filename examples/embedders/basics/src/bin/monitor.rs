//! Look at a queue while others work with it. Nothing here takes a message, a lock, or writes a file.

use ensemble_core::{Queue, Result};

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().join("queue");
    let inbox = Queue::open_or_create(&root)?.mailbox("worker-1")?;
    inbox.send_all(["first", "second", "third"])?;
    let held = inbox.try_recv()?.expect("mail");
    inbox.try_recv()?.expect("mail").reject("not for me")?;

    // What a dashboard does, in its own process.
    let queue = Queue::open(&root)?;
    for inbox in queue.mailboxes()? {
        let counts = inbox.counts()?;
        println!(
            "{}: {} wait, {} held, {} dead",
            inbox.name(),
            counts.queued,
            counts.acked,
            counts.dead
        );
        for found in inbox.unfinished(10)? {
            let envelope = inbox.peek(&found.id)?;
            println!("  {:?} since {}: {}", found.state, envelope.created_at, envelope.body);
        }
        for letter in inbox.dead_letters()? {
            println!("  given up: {:?}", letter.reason);
        }
        assert_eq!((counts.queued, counts.acked, counts.dead), (1, 1, 1));
    }
    held.settle()
}
