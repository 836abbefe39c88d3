//! Judges by traces which operations a power cut could undo while many processes share their syncs.
//!
//! A file's content survives a power cut if it was synced before its rename. A name survives once
//! any process has finished a sync of its directory that began after the rename. Where names go with files,
//! a sync of the file that began after the rename is enough for both. A power cut may drop everything else. The test looks up each completed operation in the trace of all processes.
//! An operation whose changes were not covered when it returned could be undone. Needs `strace`;
//! prints the reason and skips without it.

use std::collections::HashMap;

use ensemble_core::durable::FileLock;

use crate::support::traced::run_traced_with_paths;
use crate::support::{name, role_command};

use crate::*;

const PUBLISHERS: usize = 4;
const CONSUMERS: usize = 3;
const EACH: usize = 12;
/// More than are synced at the same time.
const BATCH: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);
/// Examined by a process when an operation has returned, with the message's id behind it.
const STORED: &str = "/returned-stored-";
const SETTLED: &str = "/returned-settled-";

#[test]
fn a_child_process_plays_its_role() {
    let Some(role) = support::role() else { return };
    let spool = || Spool::open(given("QUEUE").as_ref(), power()).unwrap();
    match role.as_str() {
        "crowd" => between_marks(|| {
            let queue = given("QUEUE");
            let start = |role| {
                role_command(&format!("shared_syncs::{role}"), &[("QUEUE", &queue)])
                    .spawn()
                    .unwrap()
            };
            let mut crowd: Vec<_> = (0..PUBLISHERS).map(|_| start("publisher")).collect();
            crowd.extend((0..CONSUMERS).map(|_| start("consumer")));
            assert!(crowd.iter_mut().all(|child| child.wait().unwrap().success()));
        }),
        "batch" => {
            let spool = spool();
            let batch: Vec<_> = (0..BATCH).map(message).collect();
            between_marks(|| {
                spool.publish_batch(&batch).unwrap();
                for envelope in &batch {
                    let _ = Path::new(&format!("{STORED}{}", envelope.id)).exists();
                }
            });
        }
        "publisher" => {
            let spool = spool();
            for number in 0..EACH {
                let envelope = message(number);
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

fn message(number: usize) -> Envelope {
    Envelope::new(name("dispatch"), "the body\n").with_priority(u8::from(number.is_multiple_of(4)))
}

fn power() -> SpoolOptions {
    SpoolOptions::default().with_durability(Durability::Power)
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
        // The new name is behind its directory.
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
        let is_covered_by = |what: &str| {
            let is_between = |sync: &Call| sync.began > moved.ended && sync.ended < returned.began;
            syncs.iter().any(|sync| sync.text.contains(what) && is_between(sync))
        };
        if is_covered_by(id) {
            continue;
        }
        if !is_covered_by(place) {
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
    let trace = run_traced_with_paths(&bed, "shared_syncs::crowd");
    let (undone, operations, syncs) = judge(&trace);
    assert_eq!(operations, (PUBLISHERS + CONSUMERS) * EACH);
    assert!(undone.is_empty(), "{undone:#?}");
    println!("{operations} operations, {syncs} syncs of directories");
}

#[test]
fn a_batch_is_synced_before_it_is_moved_and_its_directories_once() {
    if !has_strace() {
        return;
    }
    let bed = Bed::new();
    let is_synced_once = Dir::open(&bed.queue()).unwrap().names_go_with_files();
    let expected = if is_synced_once { BATCH } else { 2 };
    let trace = run_traced_with_paths(&bed, "shared_syncs::batch");
    let (undone, operations, syncs) = judge(&trace);
    assert_eq!((undone, operations, syncs), (vec![], BATCH, expected));
}

#[test]
fn a_batch_that_fails_in_the_middle_stores_what_stands_before_and_leaves_nothing_else() {
    let bed = Bed::new();
    let spool = Spool::open(&bed.queue(), power()).unwrap();
    let (first, lost) = (message(1), Envelope::new(name("nowhere"), "the body\n"));
    let batch = [first.clone(), first, lost, message(2)];
    let (stored, tmp) = (spool.publish_batch(&batch), bed.in_queue("tmp"));
    assert!(matches!(stored, Err(Error::NoMailbox { .. })), "{stored:?}");
    assert_eq!((bed.total("dispatch"), support::files(&tmp)), (1, vec![]));
    let outcomes = spool.publish_batch(&batch[..2]).unwrap();
    assert_eq!(outcomes, [PublishOutcome::AlreadyStored; 2]);
    assert_eq!((bed.total("dispatch"), support::files(&tmp)), (1, vec![]));
}

#[test]
fn a_stopped_leader_delays_others_only_briefly() {
    let home = support::in_memory();
    let bed = Bed::at(home.path());
    let spool = Spool::open(&bed.queue(), power()).unwrap();
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
    let home = support::in_memory();
    let bed = Bed::at(home.path());
    let options = power();
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
