//! A dashboard that only reads.
use ensemble_core::{Queue, Result};
fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    Queue::open_or_create(home.path())?.mailbox("worker-1")?.send("a task")?;
    println!("{}", serde_json::to_string(&Queue::open(home.path())?.observe()?).expect("JSON"));
    Ok(())
}
