use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use tempfile::TempDir;

use super::*;
use crate::Durability;
use crate::durable::write_document;
use crate::message::MessageId;

const PATTERN: &str = "reports/*-completed.yaml";

struct Bed {
    home: TempDir,
    queue: Queue,
}

fn bed() -> Bed {
    let home = tempfile::tempdir().unwrap();
    let options = Queue::options().durability(Durability::Process);
    let queue = options.open_or_create(home.path().join("queue")).unwrap();
    Bed { queue, home }
}

impl Bed {
    fn path(&self, task: &str) -> PathBuf {
        self.queue.root().join("reports").join(format!("{task}-completed.yaml"))
    }

    /// Renames a report into place, as a careful writer does.
    fn put(&self, task: &str, text: &str) {
        std::fs::create_dir_all(self.path(task).parent().unwrap()).unwrap();
        write_document(&self.path(task), text.as_bytes(), Durability::Process).unwrap();
    }

    /// A watcher that passes on which versions its closure got.
    fn watcher(&self) -> (Watcher, Receiver<(String, String)>) {
        let (sender, seen) = channel();
        let watcher = Watcher::new(&self.queue).unwrap().route(PATTERN, move |report| {
            let status = report.field("status").unwrap_or_default().to_owned();
            sender.send((report.stem().unwrap_or_default().to_owned(), status))?;
            Ok(())
        });
        (watcher, seen)
    }
}

fn look_until_handled(watcher: &mut Watcher) {
    while watcher.look().unwrap() == 0 {
        watcher.sleep(watcher.next_look()).unwrap();
    }
}

fn words(seen: &Receiver<(String, String)>) -> Vec<String> {
    seen.try_iter().map(|(task, status)| format!("{task} {status}")).collect()
}

#[test]
fn a_closure_gets_each_version_once_whether_events_come_or_not() {
    for has_events in [true, false] {
        let bed = bed();
        bed.put("before", "status: success\n...\n");
        let (mut watcher, seen) = bed.watcher();
        let state = bed.home.path().join(STATE_DIRECTORY).metadata().unwrap();
        assert_eq!(state.permissions().mode() & 0o777, 0o700, "it is private");
        if !has_events {
            watcher.events = None;
        }
        look_until_handled(&mut watcher);
        assert_eq!(words(&seen), ["before success"]);
        bed.put("t", "status: failed\n...\n");
        look_until_handled(&mut watcher);
        bed.put("t", "status: success\n...\n");
        look_until_handled(&mut watcher);
        assert_eq!(words(&seen), ["t failed", "t success"], "with events: {has_events}");
        bed.put("t", "status: success\n...\n");
        drop(watcher);
        let (mut watcher, again) = bed.watcher();
        bed.put("next", "status: success\n...\n");
        look_until_handled(&mut watcher);
        assert_eq!(words(&again), ["next success"], "the others are in the ledger");
    }
}

#[test]
fn a_closure_that_fails_or_panics_gets_the_version_again() {
    let bed = bed();
    bed.put("t", "status: success\n...\n");
    let (sender, ids) = channel();
    let panicking = sender.clone();
    let mut watcher = Watcher::new(&bed.queue).unwrap().route(PATTERN, move |report| {
        panicking.send(report.id().clone())?;
        panic!("a crash")
    });
    catch_unwind(AssertUnwindSafe(|| look_until_handled(&mut watcher))).unwrap_err();
    drop(watcher);
    let mut calls = 0;
    let mut watcher = Watcher::new(&bed.queue).unwrap().route(PATTERN, move |report| {
        sender.send(report.id().clone())?;
        calls += 1;
        if calls == 1 { Err("not now".into()) } else { Ok(()) }
    });
    watcher.look().unwrap();
    assert!(!watcher.next_look().is_zero(), "it waits before it calls again");
    look_until_handled(&mut watcher);
    let ids: Vec<MessageId> = ids.try_iter().collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_message_is_stored_once_even_after_a_crash() {
    let bed = bed();
    let lead = bed.queue.mailbox("lead").unwrap();
    bed.put("t", "status: success\nworker_id: 1\n...\n");
    let ledger = bed.home.path().join(STATE_DIRECTORY).join("routed.ndjson");
    for _ in 0..2 {
        let mut watcher = Watcher::new(&bed.queue).unwrap().deliver(PATTERN, "lead");
        look_until_handled(&mut watcher);
        drop(watcher);
        // As a crash between the two steps leaves it.
        std::fs::write(&ledger, "").unwrap();
    }
    let message = lead.try_recv().unwrap().unwrap();
    assert_eq!((message.kind().as_str(), message.task()), ("report.completed", Some("t")));
    assert_eq!(message.sender().as_str(), "worker-1");
    message.settle().unwrap();
    assert!(lead.try_recv().unwrap().is_none());
    // Fits into a body by its length, but not in the form of a file.
    let short_lines = format!("output: |\n{}...\n", "  a\n".repeat(15_000));
    bed.put("t", &short_lines);
    look_until_handled(&mut Watcher::new(&bed.queue).unwrap().deliver(PATTERN, "lead"));
    let attached = lead.try_recv().unwrap().unwrap();
    assert!(attached.body().contains("is attached"), "{}", attached.body());
    assert!(attached.bytes().unwrap() == short_lines.as_bytes());
}

#[test]
fn a_full_disk_neither_ends_a_watcher_nor_repeats_a_closure() {
    let bed = bed();
    let (mut watcher, seen) = bed.watcher();
    watcher.ledger.fill_disk();
    bed.put("t", "status: success\n...\n");
    look_until_handled(&mut watcher);
    watcher.scanned_at = None;
    watcher.look().unwrap();
    assert_eq!(words(&seen), ["t success"]);
    watcher.ledger = Ledger::open(&bed.home.path().join(STATE_DIRECTORY)).unwrap();
    watcher.look().unwrap();
    drop(watcher);
    let (mut watcher, seen) = bed.watcher();
    bed.put("next", "status: success\n...\n");
    look_until_handled(&mut watcher);
    assert_eq!(words(&seen), ["next success"], "the first is in the ledger");
}

#[test]
fn what_is_damaged_or_rejected_is_put_aside_and_what_no_route_matches_stays() {
    let bed = bed();
    bed.put("broken", "status: [\n...\n");
    bed.put("unwanted", "status: no\n...\n");
    std::fs::write(bed.queue.root().join("reports/notes.yaml"), "a: 1\n...\n").unwrap();
    let mut watcher = Watcher::new(&bed.queue).unwrap().route(PATTERN, |report| {
        report.reject("not for me");
        Ok(())
    });
    look_until_handled(&mut watcher);
    let rejected = std::fs::read_dir(bed.queue.root().join("rejected")).unwrap();
    let names: Vec<String> =
        rejected.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    for task in ["broken", "unwanted"] {
        assert_eq!(names.iter().filter(|name| name.contains(task)).count(), 2, "{names:?}");
        assert!(!bed.path(task).exists());
    }
    assert!(bed.queue.root().join("reports/notes.yaml").exists());
}

#[test]
fn boxes_that_are_removed_and_made_again_are_watched_again() {
    let bed = bed();
    let (watcher, seen) = bed.watcher();
    let mut watcher = watcher.poll_interval(Duration::from_secs(3_600));
    watcher.look().unwrap();
    std::fs::remove_dir_all(bed.queue.root().join("reports")).unwrap();
    bed.put("t", "status: success\n...\n");
    look_until_handled(&mut watcher);
    assert_eq!(words(&seen), ["t success"]);
}

#[test]
fn mistakes_and_a_second_watcher_are_errors() {
    let bed = bed();
    let (mut first, _) = bed.watcher();
    assert!(matches!(Watcher::new(&bed.queue), Err(Error::Locked { .. })));
    first.look().unwrap();
    drop(first);
    let mut watcher = Watcher::new(&bed.queue).unwrap().deliver("elsewhere/*", "lead");
    assert!(matches!(watcher.look(), Err(Error::Invalid { .. })));
}

#[test]
fn a_cancelled_token_ends_a_run() {
    let bed = bed();
    let stop = CancelToken::new().unwrap();
    let stopper = stop.clone();
    bed.put("t", "status: success\n...\n");
    let watcher = Watcher::new(&bed.queue).unwrap().route(PATTERN, move |_| {
        stopper.cancel();
        Ok(())
    });
    watcher.until(&stop).run().unwrap();
}
