//! The handle across processes: what a process that ends without dropping its guard leaves behind, and a program that
//! changes its directory.

use ensemble_core::{Durability, Settings, State};

use crate::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a child with this part, and waits for its line.
fn child(part: &str, home: &Path) -> Child {
    let mut child = Child::spawn(&[&format!("handle::{part}"), home.to_str().unwrap()]);
    assert_eq!(child.hear().as_deref(), Some("ready"));
    child
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    std::env::set_current_dir(&role[1]).unwrap();
    let queue = Queue::open("queue").unwrap();
    let inbox = queue.existing("worker-1").unwrap().as_holder("child").unwrap();
    let message = inbox.recv_timeout(PATIENCE).unwrap().unwrap();
    if role[0] == "move" {
        std::env::set_current_dir("/").unwrap();
        message.settle().unwrap();
    }
    say("ready");
    if role[0] == "wait" {
        inbox.recv().unwrap();
    }
    std::process::exit(0);
}

fn queue_with_a_task(home: &Path) -> Queue {
    let options = Queue::options().durability(Durability::Process);
    let queue = options.open_or_create(home.join("queue")).unwrap();
    let settings = Settings::default().with_lease_seconds(1);
    queue.mailbox_with("worker-1", &settings).unwrap().send("task").unwrap();
    queue
}

#[test]
fn a_process_that_ends_without_a_drop_keeps_its_message_until_the_lease_expires() {
    for part in ["exit", "wait"] {
        let home = tempfile::tempdir().unwrap();
        let queue = queue_with_a_task(home.path());
        let inbox = queue.existing("worker-1").unwrap();
        let child = child(part, home.path());
        if part == "wait" {
            child.signal(Signal::TERM);
        }
        child.wait_until_dead();
        assert_eq!(inbox.as_holder("child").unwrap().held().unwrap().len(), 1, "{part}");
        let message = inbox.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!((message.body(), message.delivery()), ("task", 2), "{part}");
        message.settle().unwrap();
    }
}

#[test]
fn a_queue_with_a_relative_path_outlives_a_change_of_directory() {
    let home = tempfile::tempdir().unwrap();
    let queue = queue_with_a_task(home.path());
    let inbox = queue.existing("worker-1").unwrap();
    let id = inbox.unfinished(1).unwrap()[0].id.clone();
    child("move", home.path()).finish();
    assert_eq!(inbox.state(&id).unwrap(), Some(State::Settled));
}
