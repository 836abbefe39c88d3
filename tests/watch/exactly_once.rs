//! Each version of a drop-box file reaches its mailbox exactly once: after a stop, after lost
//! events, and however often the watcher is killed.
//!
//! `TORTURE_FILES` (25,000), `TORTURE_WATCHER_KILLS` (30); see tests/torture/README.md.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::setting;

use crate::*;

/// A burst may take this long on a busy machine.
const BURST_PATIENCE: Duration = Duration::from_secs(600);

fn content(number: u64) -> String {
    format!("task_id: task-{number}\nstatus: done\n")
}

/// Files outside the queue that are renamed into `reports/` later.
fn stage(bed: &Bed, count: u64) {
    for number in 0..count {
        fs::write(bed.outside().join(format!("t{number}-completed.yaml")), content(number))
            .unwrap();
    }
}

fn land(bed: &Bed, numbers: std::ops::Range<u64>) {
    let (from, to) = (bed.outside(), bed.in_queue("reports"));
    for number in numbers {
        let file = format!("t{number}-completed.yaml");
        fs::rename(from.join(&file), to.join(&file)).unwrap();
    }
}

/// How often each file is in the mailbox, in any state. Reads the text itself, so as not to use the tested code.
fn sources(bed: &Bed) -> BTreeMap<String, u64> {
    let mut sources = BTreeMap::new();
    for state in ["new", "front", "cur", "done", "dead"] {
        for path in support::files(&bed.in_queue("mailbox/dispatch").join(state)) {
            let text = fs::read_to_string(path).unwrap();
            let source = text.lines().find_map(|line| line.strip_prefix("source: ")).unwrap();
            *sources.entry(source.trim_matches(['"', '\'']).to_owned()).or_default() += 1;
        }
    }
    sources
}

fn wait_for_total(bed: &Bed, total: u64) {
    let mailbox = bed.in_queue("mailbox/dispatch");
    let count = |state| fs::read_dir(mailbox.join(state)).unwrap().count() as u64;
    eventually_true(BURST_PATIENCE, &format!("{total} files are routed"), || {
        let start = Instant::now();
        let found = count("new") + count("cur") + count("done");
        // Counting takes time from the watcher, so it is done for a tenth of the time at most.
        std::thread::sleep(start.elapsed() * 9);
        found >= total
    });
}

/// Whether this machine has no inotify instance left.
fn polls() -> bool {
    FsWatcher::new().is_err()
}

/// Stops the watcher and lets a new one scan everything again, which must not route any file twice. Every file must
/// then have one message.
fn assert_exactly_once(bed: &Bed, watcher: Watcher, files: u64) {
    watcher.stop();
    let mut again = Watcher::start(bed);
    barrier(bed, &mut again);
    again.stop();
    let mut sources = sources(bed);
    sources.retain(|source, _| !source.contains("barrier"));
    let doubled: Vec<_> = sources.iter().filter(|(_, times)| **times != 1).collect();
    assert!(doubled.is_empty(), "routed more than once: {doubled:?}");
    assert_eq!(sources.len() as u64, files, "routed at all");
    assert!(sources.contains_key(&format!("reports/t{}-completed.yaml", files - 1)));
}

/// Waits until the watcher has handled everything that existed when this was called. A status that it wrote after a
/// file that came later says that nothing is left.
fn barrier(bed: &Bed, watcher: &mut Watcher) {
    let pid = watcher.pid();
    eventually_true(PATIENCE, "the watcher has looked at everything", || {
        let number = support::files(&bed.in_queue("reports")).len();
        let file = format!("reports/barrier-{number}-completed.yaml");
        bed.land(&file, format!("barrier: {number}\n"));
        bed.routed_times(&file, 1);
        // Longer than the least time between two writes of the status.
        std::thread::sleep(Duration::from_millis(300));
        let status = watcher.status().filter(|status| status["pid"] == pid);
        let idle = |boxes: &Vec<serde_json::Value>| boxes.iter().all(|b| b["pending"] == 0);
        status.is_some_and(|status| status["boxes"].as_array().is_some_and(idle))
    });
}

/// Settles what is routed, much more slowly than it comes, until `stop`.
fn consume_slowly(bed: &Bed, stop: &AtomicBool) -> u64 {
    let spool = bed.spool();
    let mut settled = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Some(delivery) = spool.receive(&name("dispatch"), &name("slow")).unwrap() {
            spool.settle(&delivery.lease).unwrap();
            settled += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    settled
}

#[test]
fn files_that_landed_while_no_watcher_ran_are_routed_once() {
    let files = setting("TORTURE_FILES", 25_000);
    let bed = Bed::new();
    stage(&bed, files);
    land(&bed, 0..files);
    let start = Instant::now();
    let watcher = Watcher::launch(&bed.queue());
    wait_for_total(&bed, files);
    let seconds = start.elapsed().as_secs_f64();
    assert_exactly_once(&bed, watcher, files);
    println!(
        "{files} files before the start: {seconds:.1} s, {:.0} a second",
        files as f64 / seconds
    );
}

#[test]
fn files_whose_events_were_lost_are_routed_once_with_a_slow_consumer() {
    let files = setting("TORTURE_FILES", 25_000);
    // Only the overflow itself can lead to a look.
    let bed = Bed::with(&Settings::default(), "poll_interval: 3600\n");
    stage(&bed, files);
    let mut watcher = Watcher::start(&bed);
    let stop = AtomicBool::new(false);
    let (reborrow, start) = (bed.lend(), Instant::now());
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| consume_slowly(&reborrow, &stop));
        let ended = StopGuard(&stop);
        watcher.signal(Signal::STOP);
        land(&bed, 0..files);
        watcher.signal(Signal::CONT);
        wait_for_total(&bed, files);
        watcher.assert_running();
        drop(ended);
        println!("the slow consumer has settled {}", consumer.join().unwrap());
    });
    let seconds = start.elapsed().as_secs_f64();
    let overflows = bed.records("watch.overflow").len();
    // Fewer than the queue of inotify holds cannot overflow it.
    assert!(overflows > 0 || files < 20_000 || polls(), "events were lost");
    assert_exactly_once(&bed, watcher, files);
    println!("{files} files at once, {overflows} overflows: {seconds:.1} s");
}

struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "long"]
fn a_watcher_that_is_killed_in_the_middle_of_routing_routes_once() {
    let files = setting("TORTURE_FILES", 25_000) / 5;
    let kills = setting("TORTURE_WATCHER_KILLS", 30);
    let bed = Bed::new();
    stage(&bed, files);
    land(&bed, 0..files / 2);
    let mut random = support::printed_random("watcher kills");
    let start = Instant::now();
    let mut watcher = Watcher::launch(&bed.queue());
    let mut landed = files / 2;
    for kill in 1..=kills {
        // Somewhere on the way, so that it always dies with work in its hands.
        let on_the_way = (files / 2) * kill / (kills + 1) + random.below(files / kills / 4 + 1);
        wait_for_total(&bed, on_the_way);
        watcher.kill();
        let more = (files * (kill + kills) / (2 * kills)).min(files);
        land(&bed, landed..more);
        landed = more;
        watcher = Watcher::launch(&bed.queue());
    }
    land(&bed, landed..files);
    wait_for_total(&bed, files);
    let seconds = start.elapsed().as_secs_f64();
    assert_exactly_once(&bed, watcher, files);
    println!("{files} files, {kills} kills: {seconds:.1} s");
}

#[test]
fn each_version_of_a_file_is_routed_once_also_when_an_old_one_comes_back() {
    let (bed, watcher) = watched_bed();
    let file = "reports/report-completed.yaml";
    let versions = ["n: a\n", "n: b\n", "n: a\n", "n: c\n", "n: a\n"];
    for (times, version) in versions.iter().enumerate() {
        if times % 2 == 0 {
            bed.land(file, version);
        } else {
            fs::write(bed.in_queue(file), version).unwrap();
        }
        // One more each time, so the order is that in which they were written.
        let mut so_far = versions[..=times].to_vec();
        so_far.sort_unstable();
        assert_eq!(bed.routed_times(file, times + 1), so_far, "each version, in its order");
    }
    watcher.stop();
    let mut again = Watcher::start(&bed);
    barrier(&bed, &mut again);
    assert_eq!(bed.bodies(file).len(), versions.len(), "a restart routes nothing again");
    bed.land(file, "n: b\n");
    let bodies = bed.routed_times(file, versions.len() + 1);
    assert_eq!(bodies.iter().filter(|body| *body == "n: b\n").count(), 2, "{bodies:?}");
    again.stop();
    println!("{} versions of one file", versions.len() + 1);
}

#[test]
fn a_file_that_is_touched_or_deleted_and_restored_is_not_routed_again() {
    let (bed, mut watcher) = watched_bed();
    let file = "reports/report-completed.yaml";
    bed.land(file, "n: a\n");
    bed.routed_times(file, 1);
    let now = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
    let touch = fs::OpenOptions::new().append(true).open(bed.in_queue(file)).unwrap();
    touch.set_times(now).unwrap();
    drop(touch);
    fs::write(bed.in_queue(file), "n: a\n").unwrap();
    barrier(&bed, &mut watcher);
    fs::remove_file(bed.in_queue(file)).unwrap();
    barrier(&bed, &mut watcher);
    bed.land(file, "n: a\n");
    barrier(&bed, &mut watcher);
    watcher.stop();
    fs::remove_file(bed.in_queue(file)).unwrap();
    bed.land(file, "n: a\n");
    let mut again = Watcher::start(&bed);
    barrier(&bed, &mut again);
    assert_eq!(bed.bodies(file), ["n: a\n"]);
    bed.land(file, "n: b\n");
    assert_eq!(bed.routed_times(file, 2), ["n: a\n", "n: b\n"]);
    again.stop();
    assert_eq!(bed.records("watch.degraded").is_empty(), !polls());
    eventually_true(PATIENCE, "nothing else was routed", || bed.total("conductor") == 0);
}
