//! Look at a queue while others work with it. Nothing here takes a message, a lock, or writes a file.

use ensemble_core::{Queue, Result};

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().join("queue");
    let inbox = Queue::open_or_create(&root)?.mailbox("worker-1")?;
    inbox.send_all(["first", "second", "third"])?;
    let held = inbox.as_holder("w-1")?.try_recv()?.expect("mail");
    inbox.try_recv()?.expect("mail").reject("not for me")?;

    // What a dashboard does, in its own process. As JSON, it is `serde_json::to_string(&queue.observe()?)`.
    let queue = Queue::open(&root)?;
    for mailbox in queue.observe()?.mailboxes {
        let counts = mailbox.counts;
        println!("{}: {} wait, {} dead", mailbox.name, counts.queued, counts.dead);
        println!("  the oldest waits since {:?}", mailbox.oldest_waiting);
        for held in mailbox.held {
            println!("  {} holds {} since {}", held.lease.holder, held.lease.id, held.since);
        }
        assert_eq!((counts.queued, counts.acked, counts.dead), (1, 1, 1));
        for letter in queue.existing(&mailbox.name)?.dead_letters()? {
            println!("  given up: {:?}", letter.reason);
        }
    }
    held.settle()
}
