//! The watcher without inotify, beside another watcher, and during a stop.

use std::os::unix::fs::PermissionsExt as _;

use crate::*;

/// Another watcher runs: try again.
const EXIT_BUSY: i32 = 75;
/// Seed 002's word is "at once"; how much of a burst is left undone says the same without a clock.
const STOP_WITHIN: Duration = Duration::from_secs(1);

fn polling_bed() -> Bed {
    Bed::with(&Settings::default(), "poll_interval: 1\n")
}

/// Sets how many instances or watches of inotify there are in a user namespace.
const SET_LIMIT: &str = "echo $NUMBER > /proc/sys/user/max_inotify_$WHAT && exec \"$@\"";

/// Runs the watcher in its own user namespace with `number` inotify `instances` or `watches`, so that no other
/// process is affected. Prints the reason and returns `None` if that is not permitted here.
fn watcher_with_little_inotify(bed: &Bed, what: &str, number: &str) -> Option<Watcher> {
    let wrapped = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", SET_LIMIT, "sh", program]);
        command.env("WHAT", what).env("NUMBER", number);
        command
    };
    let trial = wrapped("true").output();
    if !trial.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no user namespace with little inotify: {trial:?}");
        return None;
    }
    Some(Watcher::launch_by(wrapped(watcher::WATCHER), &bed.queue()))
}

fn give_inotify_back(watcher: &mut Watcher, what: &str) {
    let pid = watcher.pid().to_string();
    let status = Command::new("nsenter")
        .args(["--user", "--preserve-credentials", "-t", &pid])
        .args(["sh", "-c", SET_LIMIT, "sh", "true"])
        .env("WHAT", what)
        .env("NUMBER", "128")
        .status();
    assert!(status.unwrap().success(), "inotify is given back");
}

#[test]
fn without_inotify_files_are_found_by_polling_and_events_come_back() {
    polls_until_inotify_is_back("instances", "0");
}

/// Some directories have a watch then, and the next one has none.
#[test]
fn with_too_few_inotify_watches_files_are_found_by_polling_and_events_come_back() {
    polls_until_inotify_is_back("watches", "3");
}

fn polls_until_inotify_is_back(what: &str, number: &str) {
    if !Watcher::may_hear_events() {
        return;
    }
    let bed = polling_bed();
    let Some(mut watcher) = watcher_with_little_inotify(&bed, what, number) else { return };
    watcher.wait_for_status("it polls and says why", |status| {
        let why = format!("max_user_{what}");
        status["mode"] == "polling" && status["degraded"].to_string().contains(&why)
    });
    let start = Instant::now();
    bed.land("reports/polled-completed.yaml", "n: 1\n");
    assert_eq!(bed.routed_times("reports/polled-completed.yaml", 1), ["n: 1\n"]);
    let found = start.elapsed();
    give_inotify_back(&mut watcher, what);
    // A source is tried again when a path was replaced, without waiting for the next retry.
    fs::remove_dir_all(bed.in_queue("reports")).unwrap();
    fs::create_dir_all(bed.in_queue("reports")).unwrap();
    watcher.wait_for_status("events are back", |status| {
        status["mode"] == "native" && status["degraded"].is_null()
    });
    assert!(!bed.records("watch.recovered").is_empty());
    bed.land("reports/rung-completed.yaml", "n: 2\n");
    assert_eq!(bed.routed_times("reports/rung-completed.yaml", 1), ["n: 2\n"]);
    watcher.assert_running();
    watcher.stop();
    println!("found by polling after {:.1} s", found.as_secs_f64());
}

#[test]
fn a_second_watcher_is_refused_and_the_first_one_unharmed() {
    let bed = polling_bed();
    let mut first = Watcher::start(&bed);
    for _ in 0..5 {
        let second = watcher::command(&bed.queue()).stdout(Stdio::null()).output().unwrap();
        assert_eq!(second.status.code(), Some(EXIT_BUSY));
        let message = String::from_utf8(second.stderr).unwrap();
        assert!(message.contains("watch.lock is locked by ensemble-watch (pid "), "{message}");
    }
    first.assert_running();
    bed.land("reports/first-completed.yaml", "n: 1\n");
    assert_eq!(bed.routed_times("reports/first-completed.yaml", 1), ["n: 1\n"]);
    first.kill();
    let third = Watcher::start(&bed);
    third.stop();
}

#[test]
fn a_watcher_stops_cleanly_and_at_once_also_in_a_burst() {
    // No look but those that are asked for, by a signal as well.
    let bed = Bed::with(&Settings::default(), "poll_interval: 3600\n");
    for (round, burst) in [0, 5_000].into_iter().enumerate() {
        let mut watcher = Watcher::start(&bed);
        watcher.stand_still();
        for number in 0..burst {
            bed.land(&format!("reports/b{number}-completed.yaml"), format!("n: {number}\n"));
        }
        let before = bed.total("dispatch");
        watcher.signal(Signal::CONT);
        if burst > 0 {
            eventually_true(PATIENCE, "it routes", || bed.total("dispatch") > before);
        }
        // The test counts the watcher's work after the signal, so it must not continue in between.
        watcher.stand_still();
        let at_signal = bed.total("dispatch");
        let start = Instant::now();
        watcher.signal(Signal::TERM);
        watcher.signal(Signal::CONT);
        let status = watcher.end(PATIENCE);
        let took = start.elapsed();
        assert_eq!(status.code(), Some(0));
        assert_eq!(bed.records("session_end").len(), round + 1, "the log says so");
        let said = watcher.status().unwrap();
        assert!(said["routed"].as_u64().is_some(), "{said}");
        let after = bed.total("dispatch") - at_signal;
        println!(
            "a burst of {burst}: {at_signal} were routed, stopped after {:.2} s and {after} more",
            took.as_secs_f64()
        );
        assert!(after <= burst / 2, "it routed {after} of {burst} after it was told to stop");
        let slowness = u32::try_from(support::setting("TORTURE_SLOWNESS", 20)).unwrap();
        assert!(took < STOP_WITHIN * slowness, "stopped only after {took:?}");
    }
    let left = eventually(PATIENCE, "the rest is routed by the next one", || {
        let watcher = Watcher::start(&bed);
        eventually_true(PATIENCE, "all are routed", || bed.total("dispatch") >= 5_000);
        watcher.stop();
        Some(bed.total("dispatch"))
    });
    assert_eq!(left, 5_000);
}

/// Other users could forge messages from then on. What lands in the meantime is routed once the directory is private
/// again.
#[test]
fn a_directory_that_becomes_writable_by_every_user_is_refused_by_a_running_watcher() {
    let bed = polling_bed();
    let watcher = Watcher::start(&bed);
    for (number, directory) in ["reports", ""].into_iter().enumerate() {
        let path = bed.in_queue(directory);
        let allow = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        allow(0o777);
        watcher.wait_for_status("it says why", |status| {
            status["mode"] == "polling" && status["degraded"].to_string().contains("every user")
        });
        let report = format!("reports/r{number}-completed.yaml");
        bed.land(&report, "n: 1\n");
        if directory == "reports" {
            // The other boxes continue.
            bed.spool().add_mailbox(&name("worker-1"), &Settings::default()).unwrap();
            bed.land("tasks/worker-1-task.yaml", "id: task-1\n");
            eventually_true(PATIENCE, "a task is routed", || bed.total("worker-1") == 1);
        }
        let private_again = SystemClock.wall();
        allow(0o700);
        bed.routed_times(&report, 1);
        let routed = support::messages(&bed.queue(), "dispatch");
        let routed = routed.into_iter().find(|(_, it)| it.source.as_deref() == Some(&*report));
        let created_at = routed.expect("the message").1.created_at;
        assert!(created_at >= private_again, "{directory}: routed while every user could write");
        watcher.wait_for_status("it watches again", |status| {
            status["mode"] == "native" || status["degraded"].to_string().contains("inotify")
        });
    }
    watcher.stop();
    bed.assert_clean();
}
