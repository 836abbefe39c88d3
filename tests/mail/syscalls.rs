//! The number of system calls that an operation makes. Needs `strace`; prints the reason and skips without it.

use crate::support::name;

use crate::*;

fn power() -> SpoolOptions {
    SpoolOptions { durability: Durability::Power, ..SpoolOptions::default() }
}

fn id() -> MessageId {
    MessageId::new("the-message").unwrap()
}

fn envelope() -> Envelope {
    Envelope::new(name("dispatch"), "the body\n").with_id(id())
}

#[test]
fn a_child_process_plays_its_role() {
    let Some(operation) = support::role() else { return };
    let spool = Spool::open(given("QUEUE").as_ref(), power()).unwrap();
    let held = spool.find(&id()).and_then(|found| found.lease());
    if operation == "receive" {
        wait_until_trusted(&given("QUEUE"));
        spool.receive(&name("dispatch"), &name("holder")).unwrap().unwrap();
    }
    between_marks(|| match operation.as_str() {
        "publish" => drop(spool.publish(&envelope()).unwrap()),
        "settle" => spool.settle(&held.unwrap()).unwrap(),
        "receive" => {
            drop(spool.receive(&name("dispatch"), &name("holder")).unwrap().unwrap());
        }
        "glance" => {
            let glance = spool.glance(&name("dispatch"), 9).unwrap();
            assert_eq!((glance.waiting, glance.held, glance.dead), (0, 1, 0));
        }
        other => panic!("there is no operation `{other}`"),
    });
}

/// Waits until the stamp of an empty `front/` is old enough to be believed.
fn wait_until_trusted(queue: &str) {
    let front = std::path::Path::new(queue).join("mailbox/dispatch/front");
    let changed = std::fs::metadata(front).unwrap().modified().unwrap();
    while changed.elapsed().is_ok_and(|age| age < Duration::from_millis(200)) {
        std::thread::yield_now();
    }
}

fn prepare(operation: &str) -> Bed {
    let bed = Bed::new();
    if operation == "receive" {
        let spool = bed.spool();
        for _ in 0..2 {
            spool.publish(&Envelope::new(name("dispatch"), "the body\n")).unwrap();
        }
    } else if operation != "publish" {
        let spool = bed.spool();
        spool.publish(&envelope()).unwrap();
        let delivery = spool.receive(&name("dispatch"), &name("holder")).unwrap().unwrap();
        if operation == "settle" {
            spool.extend(&delivery.lease, Duration::from_secs(5)).unwrap();
        }
    }
    bed
}

#[test]
fn a_publish_and_a_settle_need_one_sync_where_names_go_with_files() {
    if !has_strace() {
        return;
    }
    for (operation, once, else_by_content) in [("publish", 1, 1), ("settle", 1, 0)] {
        let bed = prepare(operation);
        let is_once = Dir::open(&bed.queue()).unwrap().names_go_with_files();
        let calls = calls(&bed, &format!("syscalls::{operation}"));
        let count = |call| calls.get(call).map_or(0, |(before, all)| all - before);
        let expected = (once, if is_once { 0 } else { else_by_content });
        assert_eq!((count("fsync"), count("fdatasync")), expected, "{operation}");
    }
}

#[test]
fn a_receive_and_a_settle_look_once_at_what_may_have_changed() {
    if !has_strace() {
        return;
    }
    let during = |operation: &str, names: &[&str]| -> Vec<u64> {
        let calls = calls(&prepare(operation), &format!("syscalls::{operation}"));
        let count = |call| calls.get(call).map_or(0, |(before, all)| all - before);
        names.iter().map(|call| count(*call)).collect()
    };
    let names = ["newfstatat", "fstat", "renameat2", "openat", "read", "close", "getdents64"];
    // The mailbox's path and its settings; `front/` and the message; then the message is moved and read.
    assert_eq!(during("receive", &names), [2, 2, 1, 1, 1, 1, 0]);
    // It is held where it was received, so the path is not looked up again.
    assert_eq!(during("settle", &["newfstatat", "renameat2"]), [0, 1]);
}

/// Pins the number of system calls of a look at all mailboxes.
#[test]
fn a_look_at_a_mailbox_opens_only_what_it_counts() {
    if !has_strace() {
        return;
    }
    let calls = calls(&prepare("glance"), "syscalls::glance");
    let during = |call: &str| calls.get(call).map_or(0, |(before, all)| all - before);
    // The queue, its mailboxes, this one, and four of its six directories. It leaves out `done/`, which is long.
    assert_eq!(during("open") + during("openat"), 7, "{calls:?}");
    assert_eq!(during("getdents64"), 2 * 4, "{calls:?}");
    assert_eq!((during("read"), during("mkdirat")), (0, 0), "{calls:?}");
    // Whether the queue exists, and whether the mailbox has refused a message.
    assert_eq!(during("newfstatat"), 2, "{calls:?}");
}
