//! Kills a process, or injects an error, at every system call of every operation on a message.
//! Needs `strace`; prints the reason and skips without it.

mod support;

use std::time::{Duration, Instant};

use ensemble_core::durable::{Dir, Durability};
use ensemble_core::message::{Envelope, MessageId};
use ensemble_core::spool::{RepairAction, Spool, SpoolOptions};
use support::traced::{self, between_marks, calls, has_strace, run_traced, survives_kill};
use support::{Bed, given, name};

/// How a process says that its operation was refused with an error.
const EXIT_REFUSED: i32 = 3;

const OPERATIONS: [&str; 7] =
    ["publish", "receive", "settle", "release", "extend", "dead-letter", "redrive"];

/// The injected failure, and its place.
const ERRORS: [(&str, &str); 9] = [
    ("openat", "EMFILE"),
    ("openat", "ENOSPC"),
    ("write", "ENOSPC"),
    ("write", "EIO"),
    ("fdatasync", "EIO"),
    ("fsync", "EIO"),
    ("renameat2", "EIO"),
    ("renameat", "ENOSPC"),
    ("unlinkat", "EIO"),
];

fn power() -> SpoolOptions {
    let mut options = SpoolOptions::default();
    options.durability = Durability::Power;
    options
}

fn id() -> MessageId {
    MessageId::new("the-message").unwrap()
}

fn envelope() -> Envelope {
    Envelope::new(name("dispatch"), "the body\n").with_id(id())
}

#[test]
fn a_child_process_plays_its_role() {
    if let Some(operation) = support::role() {
        let spool = Spool::open(given("QUEUE").as_ref(), power()).unwrap();
        let held = spool.find(&id()).and_then(|found| found.lease());
        let result = between_marks(|| operate(&spool, &operation, held));
        if let Err(error) = &result {
            assert!(error.to_string().len() > 20, "an error describes the problem: {error}");
        }
        std::process::exit(if result.is_ok() { 0 } else { EXIT_REFUSED });
    }
}

fn operate(
    spool: &Spool,
    operation: &str,
    held: ensemble_core::Result<ensemble_core::env::Lease>,
) -> ensemble_core::Result<()> {
    match operation {
        "publish" => spool.publish(&envelope()).map(drop),
        "receive" => spool.receive(&name("dispatch"), &name("holder")).map(drop),
        "redrive" => spool.redrive(&name("dispatch"), &id()),
        "settle" => spool.settle(&held?),
        "release" => spool.release(&held?, Duration::ZERO),
        "extend" => spool.extend(&held?, Duration::from_secs(9)),
        "dead-letter" => spool.dead_letter(&held?, "a reason"),
        "glance" => {
            let glance = spool.glance(&name("dispatch"), 9)?;
            assert_eq!((glance.waiting, glance.held, glance.dead), (0, 1, 0));
            Ok(())
        }
        other => panic!("there is no operation `{other}`"),
    }
}

/// A queue in which the operation can be done.
fn prepare(operation: &str) -> Bed {
    let bed = Bed::new();
    let spool = bed.spool();
    if operation != "publish" {
        spool.publish(&envelope()).unwrap();
    }
    if !matches!(operation, "publish" | "receive") {
        let delivery = spool.receive(&name("dispatch"), &name("holder")).unwrap().unwrap();
        if operation == "redrive" {
            spool.dead_letter(&delivery.lease, "for the redrive").unwrap();
        }
        if matches!(operation, "settle" | "release") {
            spool.extend(&delivery.lease, Duration::from_secs(5)).unwrap();
        }
    }
    bed
}

/// The message is in one state at most, whole, and nothing but side files is left to mend.
fn judge(bed: &Bed, operation: &str, what: &str, refused: bool) {
    let found = support::messages(&bed.queue(), "dispatch");
    let least = usize::from(operation != "publish");
    assert!((least..=1).contains(&found.len()), "{what}: {found:?}");
    let spool = bed.spool();
    spool.sweep().unwrap();
    let findings = spool.fsck(true).unwrap();
    let side = |repair| matches!(repair, RepairAction::Remove | RepairAction::WriteReason);
    assert!(findings.iter().all(|f| f.repaired && side(f.repair)), "{what}: {findings:#?}");
    if refused {
        let left = support::files(&bed.in_queue("tmp"));
        assert!(left.is_empty() || what.contains("unlinkat"), "{what}: {left:?}");
    }
    if operation == "publish" {
        spool.publish(&envelope()).unwrap();
        assert_eq!(bed.total("dispatch"), 1, "{what}: published again, stored once");
    }
    let settled = || spool.counts(&name("dispatch")).unwrap().settled;
    while settled() == 0 {
        let held = spool.find(&id()).and_then(|found| found.lease());
        match spool.receive(&name("dispatch"), &name("after")).unwrap() {
            Some(delivery) => spool.settle(&delivery.lease).unwrap(),
            None if held.is_ok() => spool.settle(&held.unwrap()).unwrap(),
            None => spool.redrive(&name("dispatch"), &id()).unwrap(),
        }
    }
    assert_eq!(bed.total("dispatch"), 1, "{what}: it can go on to its end");
    bed.assert_clean();
}

#[test]
fn a_publish_and_a_settle_need_one_sync_where_names_go_with_files() {
    if !has_strace() {
        return;
    }
    for (operation, once, else_by_content) in [("publish", 1, 1), ("settle", 1, 0)] {
        let bed = prepare(operation);
        let is_once = Dir::open(&bed.queue()).unwrap().names_go_with_files();
        let calls = calls(&bed, operation);
        let count = |call| calls.get(call).map_or(0, |(before, all)| all - before);
        let expected = (once, if is_once { 0 } else { else_by_content });
        assert_eq!((count("fsync"), count("fdatasync")), expected, "{operation}");
    }
}

#[test]
#[ignore = "long"]
fn a_kill_at_any_system_call_leaves_the_message_in_one_state() {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    for operation in OPERATIONS {
        let calls = calls(&prepare(operation), operation);
        let (mut points, mut survived) = (0, 0);
        for (call, number) in traced::points(&calls) {
            let bed = prepare(operation);
            let what = format!("{operation} killed at {call} {number}");
            points += 1;
            survived += u64::from(survives_kill(&bed, operation, call, number));
            judge(&bed, operation, &what, false);
        }
        assert!(
            points > 2 && survived < points,
            "{operation}: {points} points, {survived} survived"
        );
        println!("{operation}: killed at {points} system calls, {survived} survived");
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}

#[test]
#[ignore = "long"]
fn an_error_at_any_system_call_is_an_error_or_nothing_and_never_a_torn_message() {
    if !has_strace() {
        return;
    }
    let start = Instant::now();
    for operation in OPERATIONS {
        let calls = calls(&prepare(operation), operation);
        let (mut points, mut refused) = (0, 0);
        for (call, error) in ERRORS {
            let (before, all) = calls.get(call).copied().unwrap_or_default();
            for number in before + 1..=all {
                let bed = prepare(operation);
                let inject = format!("inject={call}:error={error}:when={number}");
                let code = run_traced(&bed, operation, &["-e", &inject]).code;
                let what = format!("{operation} with {error} at {call} {number}");
                assert!(matches!(code, Some(0 | EXIT_REFUSED)), "{what}: {code:?}");
                points += 1;
                refused += u64::from(code == Some(EXIT_REFUSED));
                judge(&bed, operation, &what, code == Some(EXIT_REFUSED));
            }
        }
        println!("{operation}: {points} errors, {refused} refused");
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}

/// Pins the number of system calls of a look at all mailboxes.
#[test]
fn a_look_at_a_mailbox_opens_only_what_it_counts() {
    if !has_strace() {
        return;
    }
    let calls = calls(&prepare("glance"), "glance");
    let during = |call: &str| calls.get(call).map_or(0, |(before, all)| all - before);
    // The queue, its mailboxes, this one, and four of its six directories. It leaves out `done/`, which is long.
    assert_eq!(during("open") + during("openat"), 7, "{calls:?}");
    assert_eq!(during("getdents64"), 2 * 4, "{calls:?}");
    assert_eq!((during("read"), during("mkdirat")), (0, 0), "{calls:?}");
    // Whether the queue exists, and whether the mailbox has refused a message.
    assert_eq!(during("newfstatat"), 2, "{calls:?}");
}
