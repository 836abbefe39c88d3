//! The handle across processes: what a process that ends without dropping its guard leaves behind, and a program that
//! changes its directory.
//!
//! Each child is this program again, with the part that it plays in [`PART`].

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};
use std::time::Duration;

use ensemble_core::{Durability, Queue, Settings, State};

const PART: &str = "ENSEMBLE_FACE_PART";
const ROOT: &str = "ENSEMBLE_FACE_ROOT";
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a child with this part, and waits for its line.
fn child(part: &str, home: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "handle::subprocess_part", "--nocapture", "--ignored"])
        .envs([(PART, part), (ROOT, home.to_str().unwrap())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    child
}

#[test]
#[ignore = "the part of a child, which the tests below start"]
fn subprocess_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let home = std::env::var(ROOT).unwrap();
    std::env::set_current_dir(&home).unwrap();
    let queue = Queue::open("queue").unwrap();
    let inbox = queue.existing("worker-1").unwrap().as_holder("child").unwrap();
    let message = inbox.recv_timeout(PATIENCE).unwrap().unwrap();
    match part.as_str() {
        "exit" => {
            println!("ready");
            exit(0);
        }
        "wait" => {
            println!("ready");
            inbox.recv().unwrap();
        }
        "move" => {
            std::env::set_current_dir("/").unwrap();
            message.settle().unwrap();
            println!("ready");
            exit(0);
        }
        other => panic!("there is no part {other}"),
    }
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
        let mut child = child(part, home.path());
        if part == "wait" {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        child.wait().unwrap();
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
    assert!(child("move", home.path()).wait().unwrap().success());
    assert_eq!(inbox.state(&id).unwrap(), Some(State::Settled));
}
