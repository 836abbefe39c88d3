//! Judges by traces which operations a power cut could undo while many processes share their syncs.
//!
//! A file's content survives a power cut if it was synced before its rename. A name survives once
//! any process has finished a sync of its directory that began after the rename. A power cut may
//! drop everything else. The test looks up each completed operation in the trace of all processes.
//! An operation whose changes were not covered when it returned could be undone. Needs `strace`;
//! prints the reason and skips without it.

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use ensemble_core::durable::{Durability, FileLock};
use ensemble_core::message::Envelope;
use ensemble_core::spool::{Options, Spool};
use support::traced::{between_marks, has_strace, run_traced_with_paths};
use support::{Bed, given, name, role_command};

const PUBLISHERS: usize = 4;
const CONSUMERS: usize = 3;
const EACH: usize = 12;
const PATIENCE: Duration = Duration::from_secs(60);
/// Examined by a process when an operation has returned, with the message's id behind it.
const STORED: &str = "/returned-stored-";
const SETTLED: &str = "/returned-settled-";

#[test]
fn a_child_process_plays_its_role() {
    let Some(role) = support::role() else { return };
    let options = || alone(std::env::var("LOGGED").is_ok());
    let spool = || Spool::open(given("QUEUE").as_ref(), options()).unwrap();
    match role.as_str() {
        "crowd" | "crowd-logged" => between_marks(|| {
            let queue = given("QUEUE");
            let mut variables = vec![("QUEUE", queue.as_str())];
            variables.extend((role == "crowd-logged").then_some(("LOGGED", "1")));
            let start = |role| role_command(role, &variables).spawn().unwrap();
            let mut crowd: Vec<_> = (0..PUBLISHERS).map(|_| start("publisher")).collect();
            crowd.extend((0..CONSUMERS).map(|_| start("consumer")));
            assert!(crowd.iter_mut().all(|child| child.wait().unwrap().success()));
        }),
        "publisher" => {
            let spool = spool();
            for number in 0..EACH {
                let envelope = Envelope::new(name("dispatch"), "the body\n")
                    .with_priority(u8::from(number % 4 == 0));
                spool.publish(&envelope).unwrap();
                let _ = Path::new(&format!("{STORED}{}", envelope.id)).exists();
            }
        }
        "consumer" => {
            let spool = spool();
            for _ in 0..EACH {
                // The last publisher may still be on its way.
                let mut received = None;
                support::eventually_true(PATIENCE, "a message comes", || {
                    received = spool.receive(&name("dispatch"), &name("holder")).unwrap();
                    received.is_some()
                });
                let delivery = received.expect("a message has come");
                spool.settle(&delivery.lease).unwrap();
                let _ = Path::new(&format!("{SETTLED}{}", delivery.lease.id)).exists();
            }
        }
        other => panic!("there is no role `{other}`"),
    }
    std::process::exit(0);
}

/// With the write-ahead log, which then is small, or without.
fn alone(is_logged: bool) -> Options {
    let mut options = Options::default().with_durability(Durability::Power);
    options.wal = is_logged;
    options.wal_bytes = 20_000;
    options
}

/// A system call of any process: from which line to which line of the trace it ran.
#[derive(Debug)]
struct Call {
    text: String,
    began: usize,
    ended: usize,
}

/// The calls in the order in which they ended; those that others have interrupted are put together.
fn calls(trace: &str) -> Vec<Call> {
    let mut open: HashMap<&str, (usize, &str)> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((process, line)) = line.split_once(char::is_whitespace) else { continue };
        let line = line.trim_start();
        if let Some(begun) = line.strip_suffix("<unfinished ...>") {
            open.insert(process, (at, begun));
        } else if let Some((_, rest)) =
            line.split_once(" resumed>").filter(|_| line.starts_with("<..."))
        {
            let (began, begun) = open.remove(process).unwrap_or((at, ""));
            calls.push(Call { text: format!("{begun}{rest}"), began, ended: at });
        } else {
            calls.push(Call { text: line.to_owned(), began: at, ended: at });
        }
    }
    calls
}

/// Completed operations that a power cut could undo; and the number of operations and directory
/// syncs.
fn judge(trace: &str) -> (Vec<String>, usize, usize) {
    let calls = calls(trace);
    let succeeded = |call: &&Call| call.text.trim_end().ends_with("= 0");
    let of = |kind: &str, part: &str| {
        let (kind, part) = (format!("{kind}("), part.to_owned());
        calls
            .iter()
            .filter(succeeded)
            .filter(move |c| c.text.starts_with(&kind) && c.text.contains(&part))
            .collect::<Vec<_>>()
    };
    let syncs = of("fsync", "");
    let (mut undone, mut operations) = (Vec::new(), 0);
    for returned in &calls {
        let after =
            |mark| returned.text.split_once(mark).map(|(_, id)| id.split('"').next().unwrap());
        let (id, is_publish) = match (after(STORED), after(SETTLED)) {
            (Some(id), _) => (id, true),
            (None, Some(id)) => (id, false),
            (None, None) => continue,
        };
        operations += 1;
        let places: &[&str] = if is_publish { &["/new>", "/front>"] } else { &["/done>"] };
        // The new name stands behind its directory.
        let moves = of("renameat2", id);
        let moved = moves.iter().find_map(|call| {
            let place = places.iter().find(|place| {
                call.text.rsplit_once(*place).is_some_and(|(_, new_name)| new_name.contains(id))
            })?;
            Some((call, place))
        });
        let Some((moved, place)) = moved else {
            undone.push(format!("{id}: returned, and was not moved"));
            continue;
        };
        let is_covered = syncs.iter().any(|sync| {
            sync.text.contains(*place) && sync.began > moved.ended && sync.ended < returned.began
        });
        if !is_covered {
            undone.push(format!("{id}: its name in {place} can be lost"));
        }
        let has_content = of("fdatasync", id).iter().any(|sync| sync.ended < moved.began);
        if is_publish && !has_content {
            undone.push(format!("{id}: its content can be lost"));
        }
    }
    (undone, operations, syncs.len())
}

#[test]
fn nothing_that_has_returned_can_be_undone_by_a_power_cut() {
    if !has_strace() {
        return;
    }
    let bed = Bed::new();
    let trace = run_traced_with_paths(&bed, "crowd");
    let (undone, operations, syncs) = judge(&trace);
    assert_eq!(operations, (PUBLISHERS + CONSUMERS) * EACH);
    assert!(undone.is_empty(), "{undone:#?}");
    println!("{operations} operations, {syncs} syncs of directories");
}

#[test]
fn a_stopped_leader_delays_others_only_briefly() {
    let bed = Bed::new();
    let spool = Spool::open(&bed.queue(), alone(false)).unwrap();
    let publish = || spool.publish(&Envelope::new(name("dispatch"), "the body\n")).unwrap();
    publish();
    let counters = bed.in_queue("mailbox/dispatch/new.sync");
    assert_eq!(std::fs::metadata(&counters).unwrap().len(), 32);
    let _leader = FileLock::acquire(&counters, Duration::ZERO).unwrap();
    publish();
    publish();
    assert_eq!(bed.total("dispatch"), 3);
}

#[test]
fn damaged_and_removed_counters_are_harmless() {
    let bed = Bed::new();
    let options = alone(false);
    let counters = bed.in_queue("mailbox/dispatch/new.sync");
    for damage in [&b""[..], b"x", &[0; 32], &[0xff; 64]] {
        std::fs::write(&counters, damage).unwrap();
        let spool = Spool::open(&bed.queue(), options.clone()).unwrap();
        spool.publish(&Envelope::new(name("dispatch"), "the body\n")).unwrap();
        std::fs::remove_file(&counters).unwrap();
        spool.publish(&Envelope::new(name("dispatch"), "the body\n")).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", &counters).unwrap();
    let spool = Spool::open(&bed.queue(), options).unwrap();
    spool.publish(&Envelope::new(name("dispatch"), "the body\n")).unwrap();
    assert_eq!(bed.total("dispatch"), 9);
}

/// As [`judge`], for operations made durable by the log. Returns completed operations that a power
/// cut could undo, and the number of operations and syncs of the log.
fn judge_logged(trace: &str) -> (Vec<String>, usize, usize) {
    let calls = calls(trace);
    let of = |kind: &'static str, part: &str| -> Vec<&Call> {
        let is_one = |c: &&Call| c.text.starts_with(kind) && c.text.contains(part);
        calls.iter().filter(is_one).filter(|c| !c.text.contains("= -1")).collect()
    };
    let syncs = of("fdatasync(", ".wal>");
    let (alone, ..) = judge(trace);
    let (mut undone, mut operations) = (Vec::new(), 0);
    for returned in &calls {
        let after = |mark| returned.text.split_once(mark).map(|(_, id)| id.split('"').next());
        let (id, is_publish) = match (after(STORED), after(SETTLED)) {
            (Some(Some(id)), _) => (id, true),
            (_, Some(Some(id))) => (id, false),
            _ => continue,
        };
        operations += 1;
        let kind = if is_publish { "\"%wal publish" } else { "\"%wal settle" };
        let record = of("write(", id).into_iter().find(|call| call.text.contains(kind));
        let places = if is_publish { ["/new>", "/front>"] } else { ["/done>", "/done>"] };
        let moved = of("renameat2(", id).into_iter().find(|call| {
            let to = |place| call.text.rsplit_once(place).is_some_and(|(_, n)| n.contains(id));
            places.into_iter().any(to)
        });
        let (Some(record), Some(moved)) = (record, moved) else {
            // While one process makes the segment, others sync by themselves.
            let is_this =
                |lost: &&String| lost.starts_with(id) && lost.contains("/done>") != is_publish;
            undone.extend(alone.iter().filter(is_this).cloned());
            continue;
        };
        let segment = record.text.split(['<', '>']).nth(1).unwrap_or_default();
        let until = if is_publish { moved.began } else { returned.began };
        let is_covered = syncs.iter().any(|sync| {
            sync.text.contains(segment) && sync.began > record.ended && sync.ended < until
        });
        if !is_covered {
            undone.push(format!("{id}: its record can be lost"));
        }
        if !is_publish && moved.ended > record.began {
            undone.push(format!("{id}: told of before its lease was known to run"));
        }
    }
    (undone, operations, syncs.len())
}

#[test]
fn nothing_that_the_log_tells_of_can_be_undone_by_a_power_cut() {
    if !has_strace() {
        return;
    }
    let bed = Bed::new();
    let trace = run_traced_with_paths(&bed, "crowd-logged");
    let (undone, operations, syncs) = judge_logged(&trace);
    assert_eq!(operations, (PUBLISHERS + CONSUMERS) * EACH);
    assert!(undone.is_empty(), "{undone:#?}");
    println!("{operations} operations, {syncs} syncs of the log");
}

#[test]
fn a_sync_of_the_log_that_began_before_the_record_covers_nothing() {
    let record = r#"1 write(3</q/wal/1.wal>, "%wal publish d new/m-1.yaml 9 0\n"..., 99) = 99"#;
    let rename = r#"1 renameat2(4</q/tmp>, "m-1.x", 5</q/new>, "m-1.yaml", RENAME_NOREPLACE) = 0"#;
    let sync = "2 fdatasync(3</q/wal/1.wal>) = 0";
    let returned = r#"1 statx(AT_FDCWD, "/returned-stored-m-1", 0) = -1 ENOENT"#;
    assert_eq!(judge_logged(&[record, sync, rename, returned].join("\n")), (vec![], 1, 1));
    let other = "2 fdatasync(3</q/wal/2.wal>) = 0";
    let failed = "2 fdatasync(3</q/wal/1.wal>) = -1 EIO (Input/output error)";
    for bad in [
        [sync, record, rename, returned],
        [record, rename, sync, returned],
        [record, other, rename, returned],
        [record, failed, rename, returned],
    ] {
        let (undone, ..) = judge_logged(&bad.join("\n"));
        assert!(undone.len() == 1 && undone[0].contains("its record"), "{bad:?}: {undone:?}");
    }
}

/// The judge must be able to find something.
#[test]
fn a_sync_that_began_before_the_rename_covers_nothing() {
    let rename =
        r#"1 renameat2(3</q/tmp>, "m-1.x", 4</q/mailbox/d/new>, "m-1.yaml", RENAME_NOREPLACE) = 0"#;
    let content = "1 fdatasync(5</q/tmp/m-1.x>) = 0";
    let sync = "1 fsync(4</q/mailbox/d/new>) = 0";
    let returned = r#"1 statx(AT_FDCWD, "/returned-stored-m-1", 0) = -1 ENOENT"#;
    let good = [content, rename, sync, returned].join("\n");
    assert_eq!(judge(&good), (vec![], 1, 1));
    let begun = "2 fsync(4</q/mailbox/d/new> <unfinished ...>";
    let resumed = "2 <... fsync resumed>) = 0";
    for (bad, what) in [
        ([content, begun, rename, resumed, returned].join("\n"), "its name"),
        ([content, rename, begun, returned, resumed].join("\n"), "its name"),
        ([content, rename, "1 fsync(4</q/mailbox/d/done>) = 0", returned].join("\n"), "its name"),
        (
            [content, rename, "1 fsync(4</q/mailbox/d/new>) = -1 EIO", returned].join("\n"),
            "its name",
        ),
        ([rename, content, sync, returned].join("\n"), "its content"),
    ] {
        let (undone, ..) = judge(&bad);
        assert!(undone.len() == 1 && undone[0].contains(what), "{bad}\n{undone:?}");
    }
    let shared = [content, rename, begun, resumed, returned].join("\n");
    assert!(judge(&shared).0.is_empty(), "whichever process requested it");
}
