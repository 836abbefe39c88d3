//! The smallest program: send a message, receive it, mark it as done.

use std::time::Duration;

use ensemble_core::{Queue, Result};

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open_or_create(home.path().join("queue"))?;
    let inbox = queue.mailbox("worker-1")?;
    inbox.send("count the lines of src/")?;
    let message = inbox.recv_timeout(Duration::from_secs(60))?.expect("mail");
    println!("{}", message.body());
    message.settle()
}
