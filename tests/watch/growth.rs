//! Growth: what the watcher keeps follows what is in the queue, and not what ever lay there.

use crate::*;

/// Rounds of files that are routed, received and removed. `GROWTH_FILES=20000` makes it the long run.
const ROUNDS: usize = 6;
/// How much more memory may be taken after all rounds than before them, in percent.
const GROWTH_MAX: u64 = 20;

fn memory_kib(watcher: &mut Watcher) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", watcher.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Lets files land, waits until they are routed, receives their messages and removes the files.
fn round(bed: &Bed, watcher: &Watcher, round: usize, files: usize) {
    let (spool, dispatch) = (bed.spool(), name("dispatch"));
    let routed = || watcher.status().and_then(|status| status["routed"].as_u64()).unwrap_or(0);
    let goal = routed() + files as u64;
    for file in 0..files {
        let path = format!("reports/r{round}-{file}-completed.yaml");
        bed.land(&path, format!("round: {round}\nfile: {file}\n"));
    }
    // The long run takes longer, too.
    let patience = PATIENCE * u32::try_from(files / 5_000 + 1).unwrap();
    eventually_true(patience, "all are routed", || routed() >= goal);
    let overwritten = watcher.status().map(|status| status["overwritten"].clone());
    assert_eq!(overwritten, Some(0.into()), "each file has one version");
    while let Some(delivery) = spool.receive(&dispatch, &dispatch).unwrap() {
        spool.settle(&delivery.lease).unwrap();
    }
    for file in 0..files {
        let path = format!("reports/r{round}-{file}-completed.yaml");
        fs::remove_file(bed.in_queue(&path)).unwrap();
    }
}

#[test]
fn memory_follows_what_lies_in_the_boxes_also_after_a_restart() {
    let files = std::env::var("GROWTH_FILES").map_or(800, |count| count.parse().unwrap());
    let bed = Bed::with(&Settings::default(), "poll_interval: 1\n");
    let mut watcher = Watcher::start(&bed);
    // A first round allocates what is allocated only once.
    round(&bed, &watcher, 0, files.min(500));
    let start = memory_kib(&mut watcher);
    let limit = start + start * GROWTH_MAX / 100;
    for number in 1..=ROUNDS {
        round(&bed, &watcher, number, files);
    }
    let mut after = 0;
    eventually_true(PATIENCE, &format!("at most {limit} KiB, after {start} KiB"), || {
        after = memory_kib(&mut watcher);
        after <= limit
    });
    watcher.stop();
    let mut watcher = Watcher::start(&bed);
    bed.land("reports/last-completed.yaml", "file: last\n");
    bed.routed_times("reports/last-completed.yaml", 1);
    let restarted = memory_kib(&mut watcher);
    println!("{} files: {start} KiB, {after} KiB, restarted {restarted} KiB", ROUNDS * files);
    assert!(restarted <= limit, "{restarted} KiB after a restart, {start} KiB before");
    // A file that is restored as it was is still known.
    bed.land("reports/r1-0-completed.yaml", "round: 1\nfile: 0\n");
    bed.land("reports/r1-0-completed.yaml", "round: 1\nfile: 0, again\n");
    bed.routed_times("reports/r1-0-completed.yaml", 2);
    watcher.stop();
    assert_eq!(bed.bodies("reports/r1-0-completed.yaml").len(), 2);
}
