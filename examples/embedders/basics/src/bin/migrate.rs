//! From your own mailbox (write to `tmp/`, rename into `inbox/`) to this one: what still waits there is sent under
//! an id made of its file name, so that a migration that was interrupted can run again.

use std::fs;
use std::path::Path;

use ensemble_core::{Draft, Mailbox, Queue, Result};

/// Sends each file of a directory, then removes it. Returns how many there were.
fn migrate(old: &Path, inbox: &Mailbox) -> Result<usize> {
    let mut moved = 0;
    let mut files: Vec<_> = fs::read_dir(old).into_iter().flatten().flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let content = fs::read(file.path()).expect("a file that can be read");
        // The same id is stored once, so nothing is doubled if this stops before the removal.
        inbox.send(Draft::bytes(content).id(name.replace('.', "-")))?;
        fs::remove_file(file.path()).expect("a file that can be removed");
        moved += 1;
    }
    Ok(moved)
}

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let old = home.path().join("inbox");
    fs::create_dir(&old).expect("a directory");
    for number in 1..=3 {
        fs::write(old.join(format!("{number}.json")), format!("{{\"task\":{number}}}"))
            .expect("a file");
    }
    let inbox = Queue::open_or_create(home.path().join("queue"))?.mailbox("worker-1")?;
    // As if an earlier run had stopped between the two steps.
    inbox.send(Draft::bytes("{\"task\":1}").id("1-json"))?;
    assert_eq!(migrate(&old, &inbox)?, 3);
    assert_eq!(inbox.counts()?.queued, 3);
    while let Some(message) = inbox.try_recv()? {
        let task: serde_json::Value = message.json()?;
        println!("task {}", task["task"]);
        message.settle()?;
    }
    Ok(())
}
