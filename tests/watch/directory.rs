//! Directories are removed and made again, moved away and back, replaced, linked or mounted over
//! while the watcher runs. The watcher routes files that land afterwards.

use crate::support::options;

use crate::*;

/// Lands a report, says how long it took until it was routed, and that it was routed once.
#[track_caller]
fn assert_routed(bed: &Bed, what: &str) {
    let file = format!("reports/{}-completed.yaml", what.replace(' ', "-"));
    let start = Instant::now();
    bed.land(&file, format!("what: {what}\n"));
    let bodies = bed.routed_times(&file, 1);
    assert_eq!(bodies, [format!("what: {what}\n")], "{what}");
    println!("{what}: routed after {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn reports_that_land_in_a_directory_made_anew_are_routed() {
    let (bed, mut watcher) = watched_bed();
    assert_routed(&bed, "before");
    for time in ["first", "second", "third"] {
        fs::remove_dir_all(bed.in_queue("reports")).unwrap();
        // The watcher may be quicker to make it again.
        fs::create_dir_all(bed.in_queue("reports")).unwrap();
        assert_routed(&bed, &format!("made anew the {time} time"));
    }
    watcher.assert_running();
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 4);
}

#[test]
fn the_file_that_tests_events_overwrites_nothing_through_a_link() {
    let bed = Bed::with(&Settings::default(), "poll_interval: 1s\n");
    let watcher = Watcher::start(&bed);
    let canary = bed.state().join("canary/canary");
    let (mine, link) = (bed.stage("mine"), bed.outside().join("link"));
    symlink(&mine, &link).unwrap();
    fs::rename(&link, &canary).unwrap();
    eventually_true(PATIENCE, "it is written", || {
        canary.symlink_metadata().is_ok_and(|it| it.is_file())
    });
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    watcher.stop();
}

#[test]
fn reports_in_a_directory_that_took_the_place_of_another_are_routed() {
    let (bed, watcher) = watched_bed();
    let next = bed.outside().join("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("waiting-completed.yaml"), "n: 1\n").unwrap();
    fs::rename(bed.in_queue("reports"), bed.outside().join("old")).unwrap();
    // As `mv` does: into the directory if the watcher has made one in the meantime.
    let _ = fs::remove_dir(bed.in_queue("reports"));
    fs::rename(&next, bed.in_queue("reports")).unwrap();
    assert_eq!(bed.routed_times("reports/waiting-completed.yaml", 1), ["n: 1\n"]);
    assert_routed(&bed, "after the exchange");
    fs::write(bed.outside().join("old/late-completed.yaml"), "n: 2\n").unwrap();
    assert_routed(&bed, "after one that went to the old directory");
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 3, "files elsewhere are not routed");
}

#[test]
fn a_queue_that_was_moved_away_and_back_or_replaced_is_watched_again() {
    let (bed, mut watcher) = watched_bed();
    assert_routed(&bed, "before");
    let elsewhere = bed.home.path().join("elsewhere");
    fs::rename(bed.queue(), &elsewhere).unwrap();
    eventually_true(PATIENCE, "it is noticed", || !bed.records("watch.queue_gone").is_empty());
    fs::write(elsewhere.join("reports/away-completed.yaml"), "n: away\n").unwrap();
    watcher.assert_running();
    fs::rename(&elsewhere, bed.queue()).unwrap();
    assert_eq!(bed.routed_times("reports/away-completed.yaml", 1), ["n: away\n"]);
    assert_routed(&bed, "after it came back");

    fs::rename(bed.queue(), &elsewhere).unwrap();
    let spool = Spool::create(&bed.queue(), options()).unwrap();
    spool.add_mailbox(&name("dispatch"), &Settings::default()).unwrap();
    assert_routed(&bed, "in another queue");
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 1, "the other queue has only its own");
}

#[test]
fn a_link_in_place_of_a_drop_box_is_refused_and_reported_and_the_others_go_on() {
    let bed = Bed::new();
    let worker = Settings::default();
    bed.spool().add_mailbox(&name("worker-1"), &worker).unwrap();
    let mut watcher = Watcher::start(&bed);
    let trap = bed.outside().join("trap");
    fs::create_dir(&trap).unwrap();
    fs::write(trap.join("secret-completed.yaml"), "secret: yes\n").unwrap();
    let (reports, kept) = (bed.in_queue("reports"), bed.outside().join("kept"));
    eventually_true(PATIENCE, "the link takes its place", || {
        let _ = fs::remove_dir_all(&kept);
        fs::rename(&reports, &kept).is_err() || symlink(&trap, &reports).is_ok()
    });
    eventually_true(PATIENCE, "it is reported", || {
        bed.records("watch.degraded").iter().any(|data| data["why"].to_string().contains("reports"))
    });
    bed.land("tasks/worker-1-task.yaml", "id: task-1\n");
    eventually_true(PATIENCE, "another drop box goes on", || bed.total("worker-1") == 1);
    watcher.assert_running();
    fs::remove_file(&reports).unwrap();
    fs::rename(&kept, &reports).unwrap();
    assert_routed(&bed, "after the link is gone");
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 1, "nothing behind the link is routed");
}

#[test]
fn a_mailbox_that_was_removed_gets_its_mail_once_it_is_there_again() {
    let (bed, watcher) = watched_bed();
    assert_routed(&bed, "before");
    fs::remove_dir_all(bed.in_queue("mailbox/dispatch")).unwrap();
    bed.land("reports/waits-completed.yaml", "n: 1\n");
    eventually_true(PATIENCE, "it is said that the file waits", || {
        !bed.records("file.waiting").is_empty()
    });
    bed.spool().add_mailbox(&name("dispatch"), &Settings::default()).unwrap();
    assert_eq!(bed.routed_times("reports/waits-completed.yaml", 1), ["n: 1\n"]);
    assert_routed(&bed, "after the mailbox is back");
    watcher.stop();
}

#[test]
fn a_file_system_mounted_over_a_drop_box_is_watched_and_what_is_below_it_afterwards() {
    let (bed, watcher) = watched_bed();
    assert_routed(&bed, "before");
    let Some(mount) = Mount::tmpfs(&bed.in_queue("reports"), "size=1m,mode=0700") else { return };
    fs::write(bed.in_queue("reports/mounted-completed.yaml"), "n: 1\n").unwrap();
    assert_eq!(bed.routed_times("reports/mounted-completed.yaml", 1), ["n: 1\n"]);
    drop(mount);
    assert_routed(&bed, "after the unmount");
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 3);
}

/// No matter what lands before a watch is in the listing, no matter what lands after it rings: the other way round
/// something could land in between.
#[test]
fn each_drop_box_is_watched_before_it_is_listed() {
    if !support::traced::has_strace() {
        return;
    }
    if let Err(error) = FsWatcher::new() {
        println!("skipped: {error}");
        return;
    }
    // The regular look must not make up for it.
    let bed = Bed::with(&Settings::default(), "poll_interval: 3600\n");
    let trace = bed.outside().join("trace");
    let mut strace = Command::new("strace");
    // `-D` detaches the tracer, so that the started process is the watcher itself.
    strace.args(["-D", "-f", "-y", "-s", "4096", "-e", "trace=inotify_add_watch,getdents64", "-o"]);
    strace.arg(&trace).arg(watcher::WATCHER);
    bed.land("reports/before-completed.yaml", "before: yes\n");
    let mut watcher = Watcher::launch_by(strace, &bed.queue());
    let pid = watcher.pid().to_string();
    assert_eq!(bed.routed_times("reports/before-completed.yaml", 1), ["before: yes\n"]);
    watcher.stop();
    let is_end = |line: &str| line.starts_with(&pid) && line.contains("+++ exited with 0");
    let is_whole = |trace: &str| trace.lines().any(is_end);
    let trace = eventually(PATIENCE, "the tracer has written all of it", || {
        fs::read_to_string(&trace).ok().filter(|trace| is_whole(trace))
    });
    let calls: Vec<&str> = trace.lines().collect();
    for drop_box in ["reports", "tasks", "ack"] {
        let place = bed.in_queue(drop_box).display().to_string();
        let last = |call: &str, of: String| {
            calls.iter().rposition(|line| line.contains(call) && line.contains(&of))
        };
        let watched = last("inotify_add_watch(", format!("\"{place}\""));
        let listed = last("getdents64(", format!("<{place}>"));
        assert!(
            watched.is_some() && listed > watched,
            "{drop_box}: {watched:?} {listed:?}: {trace}"
        );
    }
}
