//! A dashboard that only reads.
use ensemble_core::{Queue, Result};
fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    Queue::open_or_create(home.path())?.mailbox("worker-1")?.send("a task")?;
    for mailbox in Queue::open(home.path())?.observe()?.mailboxes {
        println!("{}", serde_json::to_string(&mailbox).expect("JSON"));
    }
    Ok(())
}
