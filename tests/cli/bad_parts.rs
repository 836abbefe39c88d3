//! One bad part of a project hides no other, ends no view and stops no watcher.
//!
//! Each own file and each member is replaced by each kind of bad thing: text that is not what the place holds, a
//! directory, a pipe without a writer, a link to an endless file, and a huge sparse file.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use ensemble_core::durable::FileLock;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::bed::{
    Bed, JsonMembers as _, Ran, Running, SaidText as _, land, objects, program, to_end, watch,
    words,
};
use crate::tmux_support::eventually;

/// Below the project; some exist, others do not.
const PARTS: [&str; 17] = [
    "queue/mailbox/bad/mailbox.yaml",
    "queue/mailbox/bad/cur",
    "queue/mailbox/bad/new",
    "queue/mailbox/bad/dead",
    "queue/requests/bad/request.yaml",
    "queue/gates/bad@.yaml",
    ".ensemble/roster/bad.yaml",
    ".ensemble/panes/bad.yaml",
    ".ensemble/sessions/bad.json",
    ".ensemble/ladders/bad@bad.yaml",
    ".ensemble/watch.json",
    ".ensemble/leases/observed.json",
    ".ensemble/leases/kept.json",
    ".ensemble/alarms.json",
    ".ensemble/alerts.json",
    ".ensemble/budget.yaml",
    ".ensemble/state.yaml",
];
const KINDS: [&str; 5] = ["wrong", "directory", "pipe", "link", "huge"];
/// Views that name the good mailbox and its message.
const VIEWS: [&str; 5] = ["status", "mailbox list", "inbox", "tmux-status", "dead list"];

/// A project with a good mailbox in which a message waits, and a bad one in which one is held.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.ok("mailbox add bad");
    bed.ok("send --to bad --as operator -m held");
    bed.ok("recv --as bad");
    bed.send("waiting");
    bed
}

/// Puts a bad thing in place of a part.
pub(crate) fn break_part(part: &Path, kind: &str) {
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    let is_there = part.symlink_metadata();
    match is_there {
        Ok(found) if found.is_dir() => fs::remove_dir_all(part).unwrap(),
        Ok(_) => fs::remove_file(part).unwrap(),
        Err(_) => {}
    }
    match kind {
        "wrong" => fs::write(part, "\u{1}: [{ not what belongs here\n").unwrap(),
        "directory" => fs::create_dir(part).unwrap(),
        "pipe" => mknodat(CWD, part, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
        "link" => symlink("/dev/zero", part).unwrap(),
        "huge" => File::create(part).unwrap().set_len(4 << 40).unwrap(),
        other => panic!("{other}"),
    }
}

/// Runs a verb, which must end, and not by a crash.
fn view(bed: &Bed, line: &str) -> Ran {
    let ran = to_end(&mut bed.command(&words(line)));
    assert!((0..=5).contains(&ran.code), "{line}: {ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{line}: {ran:?}");
    ran
}

fn last_of_status(bed: &Bed) -> Value {
    objects(&view(bed, "status --json").stdout).pop().unwrap()
}

fn has_report(bed: &Bed, task: &str) -> bool {
    let shown = objects(&view(bed, "inbox dispatch --json").stdout);
    shown.iter().any(|row| row["task_id"] == task)
}

fn shows_the_good_mailbox(objects: &[Value]) -> bool {
    objects.iter().any(|row| row["mailbox"] == "w1" && row["waiting"] == 1)
}

#[test]
#[ignore = "long"]
fn each_bad_part_leaves_the_rest_of_status_and_of_an_introduction() {
    for kind in KINDS {
        for part in PARTS {
            let bed = bed();
            break_part(&bed.project().join(part), kind);
            let status = view(&bed, "status --json");
            let (code, shown) = (status.code, objects(&status.stdout));
            assert_eq!(code, 0, "{part} as {kind}: {status:?}");
            assert!(shows_the_good_mailbox(&shown), "{part} as {kind}: {status:?}");
            let prime = view(&bed, "agent prime --as w1");
            let told = prime.stdout.contains("1 message waits in your mailbox");
            assert!(prime.code == 0 && told, "{part} as {kind}: {prime:?}");
        }
    }
}

#[test]
fn a_bad_mailbox_is_a_need_with_its_path_and_what_helps() {
    for state in ["held", "waits", "empty"] {
        let bed = if state == "held" { bed() } else { Bed::new() };
        if state != "held" {
            bed.ok("mailbox add bad");
        }
        if state == "waits" {
            bed.ok("send --to bad --as operator -m waits");
        }
        let path = bed.project().join("queue/mailbox/bad/mailbox.yaml");
        break_part(&path, "wrong");
        let status = last_of_status(&bed);
        let needs = status["needs"].as_array().unwrap();
        let need = needs.iter().find(|need| need["need"] == "unreadable");
        let need = need.unwrap_or_else(|| panic!("{needs:?}"));
        assert_eq!(need["about"], "mailbox bad");
        assert!(need["text"].as_str().unwrap().contains("mailbox.yaml"), "{need}");
        assert!(need["help"].as_str().unwrap().contains(path.to_str().unwrap()), "{need}");
        // What is not known is not 0.
        break_part(&bed.project().join("queue/mailbox/bad/cur"), "wrong");
        let status = objects(&view(&bed, "status --json").stdout);
        assert!(status.iter().all(|row| row["mailbox"] != "bad"), "{status:?}");
        view(&bed, "log export prometheus").stdout.lacks(["mailbox=\"bad\",state="]);
    }
}

/// What `status` says of parts that cannot be read: what they are about, the text and the help.
fn unreadable(bed: &Bed) -> Vec<[String; 3]> {
    let status = last_of_status(bed);
    let needs = status["needs"].as_array().unwrap().clone();
    let of_parts = needs.into_iter().filter(|need| need["need"] == "unreadable");
    let field = |need: &Value, field: &str| need[field].as_str().unwrap().to_owned();
    of_parts.map(|need| ["about", "text", "help"].map(|it| field(&need, it))).collect()
}

#[test]
fn what_is_in_the_place_of_an_own_part_is_named_and_stops_no_other() {
    let parts = [
        ("queue/mailbox/bad", "mailbox bad"),
        ("queue/mailbox/bad/done", "mailbox bad"),
        ("queue/reports", "queue/reports"),
        (".ensemble/roster", ".ensemble/roster"),
        (".ensemble/logs", ".ensemble/logs"),
        (".ensemble/routed.ndjson", ".ensemble/routed.ndjson"),
        ("queue/tmp", "queue/tmp"),
        ("queue/mailbox", "queue/mailbox"),
        ("queue/gates", "queue/gates"),
        ("queue/mailbox/bad/gate.lock", "mailbox bad"),
    ];
    let kinds = ["wrong", "pipe", "link", "directory", "elsewhere"];
    for (number, (part, about)) in parts.into_iter().enumerate() {
        let bed = bed();
        let path = bed.project().join(part);
        let kind = kinds[number % kinds.len()];
        match kind {
            _ if part.ends_with("lock") => break_part(&path, "directory"),
            // What it was, by a link.
            "elsewhere" => {
                fs::rename(&path, bed.project().join("elsewhere")).unwrap();
                symlink(bed.project().join("elsewhere"), &path).unwrap();
            }
            _ if part.ends_with("ndjson") => break_part(&path, "directory"),
            "directory" => break_part(&path, "wrong"),
            _ => break_part(&path, kind),
        }
        let named = unreadable(&bed);
        let [what, text, help] = named.first().unwrap_or_else(|| panic!("{part} as {kind}"));
        assert_eq!((what.as_str(), named.len()), (about, 1), "the cause alone: {named:?}");
        assert!(text.contains("and should be a "), "{named:?}");
        assert!(help.contains(path.to_str().unwrap()), "{named:?}");
        // `fsck` knows the same places, and says the cause alone, too.
        let found = view(&bed, "admin fsck");
        assert_eq!(found.code, 4, "{part} as {kind}: {found:?}");
        let (_, why) = text.split_once(" cannot be read: ").unwrap();
        assert!(about.starts_with("mailbox ") || found.stdout.contains(why), "{found:?}");
        assert_eq!(found.stdout.lines().count(), 1, "{part} as {kind}: {found:?}");
        if ["queue/tmp", "queue/mailbox"].contains(&part) {
            view(&bed, "send --to w1 -m lost").says(["in the place of a directory"]);
            continue;
        }
        assert_eq!(view(&bed, "send --to w1 -m next").code, 0, "{part} as {kind}");
        // Whether a plan is awaited is not known without the gates.
        let may_receive = part != "queue/gates";
        assert_eq!(view(&bed, "recv --as w1").code == 0, may_receive, "{part} as {kind}");
    }
    let bed = bed();
    break_part(&bed.mailbox("bad"), "link");
    for line in ["send --to bad -m lost", "recv --as bad"] {
        view(&bed, line).says(["in the place of a directory"]);
    }
    let board = bed.project().join(".ensemble/state.yaml");
    break_part(&board, "directory");
    view(&bed, "status").stdout.has(["state.yaml away, then `ensemble board init`"]);
    fs::remove_dir(board).unwrap();
    view(&bed, "admin fsck").ends(4).shows(["mailbox/bad: is not a mailbox"]);
}

#[test]
fn a_project_whose_queue_and_state_are_behind_links_is_watched() {
    let bed = bed();
    for part in ["queue", ".ensemble"] {
        let elsewhere = bed.project().with_file_name(part);
        fs::rename(bed.project().join(part), &elsewhere).unwrap();
        symlink(&elsewhere, bed.project().join(part)).unwrap();
    }
    let _watcher = watch(&bed);
    land(&bed, "reports/t1-completed.yaml", "task_id: t1\nstatus: success\n");
    eventually("the report is routed", || has_report(&bed, "t1"));
    assert!(unreadable(&bed).is_empty(), "a link to what it was is not in its place");
}

#[test]
fn something_else_in_the_place_of_a_request_is_named_by_all_and_repeats_nothing() {
    for kind in ["wrong", "pipe", "link"] {
        let bed = bed();
        bed.ok("request shutdown w1 --as lead --id good");
        let path = bed.project().join("queue/requests/bad");
        break_part(&path, kind);
        let named = unreadable(&bed);
        let [[about, text, help]] = &named[..] else { panic!("{kind}: {named:?}") };
        assert_eq!(about, "request bad");
        let said = format!("{} is a ", path.display());
        assert!(text.contains(&said) && help.starts_with("move /"), "{kind}: {named:?}");
        let listed = view(&bed, "request list");
        assert!(listed.code == 0 && listed.stdout.contains("good"), "{kind}: {listed:?}");
        let watcher = watch(&bed);
        eventually("the good one is followed", || {
            last_of_status(&bed)["watcher"]["status"]["requests"]["pending"] == 1
        });
        assert!(path.symlink_metadata().is_ok(), "{kind}: it is left to its owner");
        let needs = last_of_status(&bed)["needs"].to_string();
        assert_eq!(needs.matches("requests/bad is a ").count(), 1, "{kind}: {needs}");
        drop(watcher);
        fs::remove_file(&path).unwrap();
        assert!(unreadable(&bed).is_empty() && view(&bed, "request list").code == 0, "{kind}");
    }
}

#[test]
fn a_report_below_a_directory_of_its_box_is_a_need() {
    let bed = bed();
    let reports = bed.project().join("queue/reports");
    let stranded = || -> Vec<String> {
        let status = last_of_status(&bed);
        let needs = status["needs"].as_array().unwrap();
        let of_files = needs.iter().filter(|need| need["need"] == "undelivered");
        of_files.map(|need| format!("{} -> {}", need["text"], need["help"])).collect()
    };
    for directory in ["archive", "feature", "t2-completed.yaml"] {
        fs::create_dir(reports.join(directory)).unwrap();
    }
    bed.write_file("queue/reports/archive/notes.txt", "not a report");
    bed.write_file("queue/reports/feature/login-completed.yaml", "status: success\n...\n");
    let named = stranded();
    let [of_file, of_directory] = &named[..] else { panic!("{named:?}") };
    assert!(of_file.contains("reports/feature/login-completed.yaml"), "{named:?}");
    assert!(of_file.contains("move it to reports/login-completed.yaml"), "{named:?}");
    assert!(of_directory.contains("reports/t2-completed.yaml"), "{named:?}");
    assert!(of_directory.contains("it is a directory"), "{named:?}");
    fs::remove_dir(reports.join("t2-completed.yaml")).unwrap();
    let _watcher = watch(&bed);
    fs::rename(reports.join("feature/login-completed.yaml"), reports.join("login-completed.yaml"))
        .unwrap();
    eventually("it is delivered", || has_report(&bed, "login"));
    fs::rename(reports.join("login-completed.yaml"), reports.join("archive/login-completed.yaml"))
        .unwrap();
    assert_eq!(stranded(), Vec::<String>::new(), "it was delivered before it was put away");
}

#[test]
fn a_part_that_is_closed_to_its_owner_is_named_with_what_opens_it() {
    let bed = bed();
    bed.write_file(".ensemble/routed.ndjson", "");
    for (part, mode, open) in [("logs", 0o500, 0o700), ("routed.ndjson", 0o400, 0o600)] {
        let path = bed.project().join(".ensemble").join(part);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let named = unreadable(&bed);
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        let [[about, text, help]] = &named[..] else { panic!("{part}: {named:?}") };
        assert!(about.ends_with(part) && text.contains(&format!("(mode {mode:o})")), "{named:?}");
        assert!(help.starts_with("`chmod u+rwX /"), "{named:?}");
    }
}

#[test]
fn fsck_checks_the_rest_where_a_part_cannot_be_checked() {
    for part in [".ensemble/state.yaml.last", ".git/HEAD"] {
        let bed = bed();
        bed.begin_repository();
        bed.ok("board init");
        bed.add_task("t1");
        bed.ok("agent register --role coder --as c1");
        bed.ok("task claim t1 --as c1");
        bed.write_file("queue/mailbox/bad/new/stray", "");
        break_part(&bed.project().join(part), "directory");
        let found = view(&bed, "admin fsck");
        assert_eq!(found.code, 4, "{part}: {found:?}");
        assert!(found.stdout.contains("stray"), "{part}: {found:?}");
        assert!(found.stdout.lines().count() > 1, "{part} is found itself: {found:?}");
    }
}

#[test]
fn a_bad_entry_of_the_roster_keeps_the_team_from_no_end() {
    for kind in KINDS {
        let bed = bed();
        break_part(&bed.project().join(".ensemble/roster/bad.yaml"), kind);
        let down = view(&bed, "down");
        assert_eq!(down.code, 0, "{kind}: {down:?}");
        down.says(["a member is not asked to leave: "]);
        down.stdout.finishes("watcher was not running\n");
    }
}

#[test]
fn the_home_of_another_user_has_no_settings_and_a_deleted_directory_is_said_to_be_one() {
    let bed = bed();
    bed.write_file("home", "not a directory");
    let mut command = bed.command(&["status"]);
    command.env_remove("XDG_CONFIG_HOME").env("HOME", bed.project().join("home"));
    let ran = to_end(&mut command);
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{ran:?}");
    for line in ["status", "send --to w1 -m lost", "recv --as w1", "doctor", "init"] {
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(program()).args(words(line));
        let ran = to_end(shell.current_dir(bed.project()));
        assert_eq!(ran.code, 1, "{line}: {ran:?}");
        let said = "cannot use the working directory: it was deleted: `cd` to another";
        assert!(ran.stderr.contains(said), "{line}: {ran:?}");
    }
}

#[test]
fn everything_bad_at_once_ends_no_view_and_stops_no_watcher() {
    for kind in KINDS {
        let bed = bed();
        for part in PARTS.iter().filter(|part| !part.ends_with("/cur")) {
            break_part(&bed.project().join(part), kind);
        }
        for line in VIEWS {
            let ran = view(&bed, line);
            let is_shown = ran.stdout.contains("w1") || line != "status";
            assert!(is_shown, "{line} with {kind}: {ran:?}");
        }
        for line in ["team", "doctor", "admin fsck", "log export prometheus"] {
            let _ = view(&bed, line);
        }
        let _watcher = Running(bed.start("admin watch"));
        land(&bed, "reports/t1-completed.yaml", "task_id: t1\nstatus: success\n");
        eventually(&format!("the report is routed with {kind} parts"), || has_report(&bed, "t1"));
    }
}

#[test]
fn a_watcher_whose_state_directory_was_removed_takes_a_new_one() {
    let bed = bed();
    let watcher = Running(bed.start("admin watch"));
    let lock = bed.project().join(".ensemble/watch.lock");
    let holds_it = || FileLock::holder(&lock) == Some(watcher.0.id());
    // It has the lock before it has opened everything; it writes its status after that.
    let status = bed.project().join(".ensemble/watch.json");
    eventually("the watcher watches", || {
        let written = fs::read(&status).unwrap_or_default();
        let written: Value = serde_json::from_slice(&written).unwrap_or_default();
        written["pid"] == watcher.0.id()
    });
    // At once: a removal file by file meets what the watcher writes in between.
    let removed = bed.project().join("removed");
    fs::rename(bed.project().join(".ensemble"), &removed).unwrap();
    eventually("it has the lock of the new directory", holds_it);
    eventually("it says so", || last_of_status(&bed)["watcher"]["running"] == true);
    assert_eq!(bed.run("admin watch").code, 75, "no other one begins beside it");
}

#[test]
fn a_watcher_whose_project_was_moved_ends_and_leaves_the_new_place_to_another() {
    let bed = bed();
    let mut watcher = watch(&bed);
    let moved = bed.project().with_file_name("moved");
    fs::rename(bed.project(), &moved).unwrap();
    eventually("it ends", || watcher.0.try_wait().unwrap().is_some());
    let lock = FileLock::acquire(&moved.join(".ensemble/watch.lock"), std::time::Duration::ZERO);
    assert!(lock.is_ok(), "another watcher can begin: {lock:?}");
    fs::create_dir(bed.project()).expect("nothing is left at the old place");
}

#[test]
fn what_fails_again_and_again_in_the_watcher_is_a_need_until_it_is_mended() {
    let bed = bed();
    let rejected = bed.project().join("queue/rejected");
    fs::write(&rejected, "no directory").unwrap();
    let _watcher = Running(bed.start("admin watch"));
    let report = bed.project().join("queue/reports/t1-completed.yaml");
    land(&bed, "reports/t1-completed.yaml", "task_id: [\n...\n");
    let is_needed =
        || view(&bed, "status").stdout.contains("!  the watcher cannot read a drop-box");
    eventually("it is a need", is_needed);
    view(&bed, "status").stdout.has(["queue/rejected", " times)"]);
    fs::remove_file(&rejected).unwrap();
    eventually("the report is put aside", || !report.exists());
    eventually("it is a need no more", || !is_needed());
}

#[test]
fn a_file_that_cannot_be_delivered_is_a_need_until_it_is() {
    let bed = Bed::new();
    for line in ["remove dispatch", "add dispatch --capacity 1"] {
        bed.ok(&format!("mailbox {line}"));
    }
    bed.ok("send --to dispatch --as operator --id first -m first");
    let _watcher = watch(&bed);
    land(&bed, "reports/t1-completed.yaml", "task_id: t1\nstatus: success\n");
    let is_needed =
        || view(&bed, "status").stdout.contains("!  the watcher cannot deliver a drop-box file");
    eventually("it is a need", is_needed);
    bed.ok("recv --as dispatch");
    bed.ok("settle first --as dispatch");
    eventually("it is delivered", || has_report(&bed, "t1"));
    eventually("it is a need no more", || !is_needed());
}

#[test]
fn a_watcher_that_hangs_is_said_to_hang() {
    let bed = bed();
    let state = bed.project().join(".ensemble");
    let lock = FileLock::acquire(&state.join("watch.lock"), std::time::Duration::ZERO).unwrap();
    let pid = std::process::id();
    let beat = |at_ms: u128| {
        let status = json!({ "pid": pid, "beat": { "pid": pid, "at_ms": at_ms as u64 } });
        fs::write(state.join("watch.json"), status.to_string()).unwrap();
    };
    let now = || {
        use ensemble_core::env::Clock as _;
        ensemble_core::env::SystemClock.monotonic().as_duration().as_millis()
    };
    beat(now());
    let status = view(&bed, "status");
    status.stdout.lacks(["watcher"]);
    // The last sign of life is of the start of the machine.
    beat(0);
    let status = view(&bed, "status");
    status.shows(["!  the watcher hangs: no sign of life", &format!("kill -KILL {pid}")]);
    let told = last_of_status(&bed);
    told["watcher"].fits(json!({ "running": true, "hangs": true }));
    assert!(
        told["needs"].as_array().unwrap().iter().any(|need| need["need"] == "watcher"),
        "{told}"
    );
    view(&bed, "doctor").shows(["no sign of life"]);
    drop(lock);
    let status = view(&bed, "status");
    assert!(status.stdout.lines().next().unwrap().contains("watcher not running"), "{status:?}");
}
