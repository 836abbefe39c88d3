//! `ensemble log replay`: the log matches the disk, and every difference is found.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::event_log::EventLog;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use serde_json::{Value, json};

use crate::bad_parts::break_part;
use crate::bed::{Bed, JsonMembers as _, Ran, SaidText as _, objects};

const PLAN: &str =
    "task_id: 0-4-1\nsteps:\n  - {agent: Tara, goal: one}\n  - {agent: Devon, goal: two}\n";

/// A project with messages in every state, a pending and a decided request, a board with a task and
/// an agent, and a held step.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.add_mailboxes(&["lead", "Tara", "Devon"]);
    messages(&bed);
    bed.ok("board init");
    bed.ok("task add t1 -d first --spec s.md --done-when works");
    bed.ok("agent register --role coder --as coder-1");
    std::fs::write(bed.project().join("plan.yaml"), PLAN).unwrap();
    bed.ok("step add -f plan.yaml");
    bed.ok("step next --as Tara");
    bed
}

fn messages(bed: &Bed) {
    let log = Arc::new(EventLog::open(&bed.project().join(".ensemble/logs")).unwrap());
    let options = SpoolOptions::default().with_durability(Durability::Process).with_recorder(log);
    let spool = Spool::open(&bed.project().join("queue"), options).unwrap();
    let w1: Name = "w1".parse().unwrap();
    let take = |id: &str| {
        let id = MessageId::new(id).unwrap();
        spool.receive_id(&w1, &id, &w1).unwrap().expect("a message").lease
    };
    for id in ["waits", "held", "done", "dead", "back", "extended"] {
        let envelope = Envelope::new(w1.clone(), "text\n").with_id(MessageId::new(id).unwrap());
        spool.publish(&envelope).unwrap();
    }
    take("held");
    spool.settle(&take("done")).unwrap();
    spool.dead_letter(&take("dead"), "no").unwrap();
    spool.release(&take("back"), Duration::ZERO).unwrap();
    let lease = take("extended");
    for seconds in [600, 700] {
        spool.extend(&lease, Duration::from_secs(seconds)).unwrap();
    }
}

fn replay(bed: &Bed, flags: &str) -> (i32, Vec<Value>) {
    let Ran { code, stdout, .. } = bed.run(&format!("log replay --json {flags}"));
    (code, objects(&stdout))
}

/// The differences, as `kind about id`.
fn differences(rows: &[Value]) -> Vec<String> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let differing = rows.iter().filter(|row| row["kind"].is_string());
    let mut all: Vec<String> = differing
        .map(|row| format!("{} {} {}", text(row, "kind"), text(row, "about"), text(row, "id")))
        .collect();
    all.sort();
    all
}

fn message(bed: &Bed, below: &str) -> PathBuf {
    bed.mailbox(&format!("w1/{below}"))
}

#[test]
fn the_log_matches_the_disk_and_every_kind_of_tampering_is_found() {
    let bed = bed();
    let (code, rows) = replay(&bed, "--strict");
    assert_eq!((code, differences(&rows)), (0, Vec::new()), "{rows:#?}");
    let summary = rows.last().unwrap();
    summary.fits(json!({ "messages": 6, "tasks": 1, "steps": 1, "log_is_whole": true }));
    assert!(bed.ok("log replay").starts_with("as the log tells"));
    assert!(Bed::empty().fails(3, "log replay").contains("there is no event log"));
    let held = "cur/held@w1@1.yaml";
    let cases: [(&str, &str, &str); 10] = [
        ("remove", "new/waits.yaml", "contradiction message waits"),
        ("remove", "cur/held@w1@1.yaml", "contradiction message held"),
        ("remove", "done/done.yaml", "contradiction message done"),
        ("remove", "dead/dead.yaml", "unrecorded message dead"),
        ("new/waits.yaml", "done/waits.yaml", "unrecorded message waits"),
        ("done/done.yaml", "new/done.yaml", "contradiction message done"),
        ("cur/held@w1@1.yaml", "cur/held@other@1.yaml", "contradiction message held"),
        ("cur/held@w1@1.yaml", "cur/held@w1@0.yaml", "contradiction message held"),
        ("copy", held, "contradiction message held"),
        ("remove", "lease/extended@1.yaml", "contradiction message extended"),
    ];
    for (from, to, expected) in cases {
        let keep =
            std::fs::read(message(&bed, if from.contains('/') { from } else { to })).unwrap();
        let undo: Box<dyn Fn()> = match from {
            "remove" => {
                std::fs::remove_file(message(&bed, to)).unwrap();
                Box::new(|| std::fs::write(message(&bed, to), &keep).unwrap())
            }
            "copy" => {
                std::fs::write(message(&bed, "done/held.yaml"), &keep).unwrap();
                Box::new(|| std::fs::remove_file(message(&bed, "done/held.yaml")).unwrap())
            }
            _ => {
                std::fs::rename(message(&bed, from), message(&bed, to)).unwrap();
                Box::new(|| std::fs::rename(message(&bed, to), message(&bed, from)).unwrap())
            }
        };
        let (code, rows) = replay(&bed, "--strict");
        assert_eq!((code, differences(&rows)), (4, vec![expected.to_owned()]), "{from} {to}");
        let (code, _) = replay(&bed, "");
        assert_eq!(code, if expected.starts_with("unrecorded") { 0 } else { 4 }, "{from} {to}");
        let row = rows.iter().find(|row| row["kind"].is_string()).unwrap();
        assert!(row["path"].as_str().unwrap().starts_with("queue/mailbox/w1/"), "{row}");
        assert!(row["record"].as_str().unwrap().starts_with("session-"), "{row}");
        undo();
        assert_eq!(replay(&bed, "--strict").0, 0, "{from} {to} was not undone");
    }
}

#[test]
fn a_part_that_cannot_be_read_is_said_and_keeps_no_other_from_the_comparison() {
    for part in [
        "queue/mailbox/w1/mailbox.yaml",
        "queue/mailbox/w1/cur",
        "queue/requests/stop/request.yaml",
        ".ensemble/state.yaml",
        ".ensemble/steps.db",
    ] {
        let bed = bed();
        bed.ok("send --to lead --as w1 --id other hello");
        bed.ok("request shutdown w1 --as lead --id stop");
        break_part(&bed.project().join(part), "wrong");
        let (code, rows) = replay(&bed, "--strict");
        assert_eq!((code, differences(&rows)), (1, Vec::new()), "{part}: {rows:#?}");
        let unread: Vec<&str> = rows.iter().filter_map(|row| row["unread"].as_str()).collect();
        assert!(matches!(unread[..], [path] if part.starts_with(path)), "{part}: {rows:#?}");
        let shown = bed.run("log replay").stdout;
        assert!(shown.contains("not read  "), "{part}: {shown}");
        fs::remove_file(bed.mailbox("lead/new/other.yaml")).unwrap();
        let (code, rows) = replay(&bed, "");
        let found = vec!["contradiction message other".to_owned()];
        assert_eq!((code, differences(&rows)), (4, found), "{part}: {rows:#?}");
    }
}

#[test]
fn an_edited_board_and_edited_steps_are_found() {
    let bed = bed();
    let path = bed.project().join(".ensemble/state.yaml");
    let board = std::fs::read_to_string(&path).unwrap();
    let edit = |from: &str, to: &str| {
        board.has([from]);
        std::fs::write(&path, board.replacen(from, to, 1)).unwrap();
        let (code, rows) = replay(&bed, "--strict");
        (code, differences(&rows))
    };
    let untold = "unrecorded board board".to_owned();
    let status = edit("status: UNCLAIMED", "status: DRAFT");
    assert_eq!(status, (4, vec!["contradiction task t1".to_owned(), untold.clone()]));
    // The same number twice is against the board's own rules; a higher one is not.
    let epoch = edit("epoch: 1", "epoch: 7");
    assert_eq!(epoch.0, 4);
    let text = edit("first", "another");
    assert_eq!(text, (4, vec![untold]));
    std::fs::write(&path, &board).unwrap();
    assert_eq!(replay(&bed, "--strict").0, 0);

    let steps = rusqlite::Connection::open(bed.project().join(".ensemble/steps.db")).unwrap();
    let changed = steps.execute("UPDATE task_steps SET epoch = 9 WHERE holder IS NOT NULL", []);
    assert_eq!(changed.unwrap(), 1);
    drop(steps);
    let (code, rows) = replay(&bed, "--strict");
    let found = differences(&rows);
    assert_eq!((code, found.len()), (4, 1), "{found:?}");
    assert!(found[0].starts_with("unrecorded step 0-4-1/"), "{found:?}");
}

#[test]
fn a_log_that_was_cut_or_rotated_says_so() {
    let bed = bed();
    let logs = bed.project().join(".ensemble/logs");
    let mut segments: Vec<PathBuf> = std::fs::read_dir(&logs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "ndjson"))
        .collect();
    segments.sort();
    let whole = std::fs::read_to_string(&segments[0]).unwrap();
    let without = |gone: std::ops::Range<usize>| -> String {
        let lines = whole.lines().enumerate().filter(|(at, _)| !gone.contains(at));
        lines.map(|(_, line)| format!("{line}\n")).collect()
    };
    for gone in [0..3, 4..6] {
        let expected = format!("{} to {}", gone.start + 1, gone.end);
        std::fs::write(&segments[0], without(gone)).unwrap();
        let Ran { code, stdout, stderr } = bed.run("log replay");
        assert_ne!(code, 0, "{stdout}");
        assert!(
            stdout.contains("has no records") && stdout.contains(&expected),
            "{stdout}{stderr}"
        );
    }
    std::fs::write(&segments[0], &whole).unwrap();
    // A second session, and the first one moved away, as a program that rotates logs does.
    let log = EventLog::start_session(&logs, "ensemble").unwrap();
    drop(log);
    assert_eq!(replay(&bed, "--strict").0, 0, "two sessions");
    std::fs::remove_file(&segments[0]).unwrap();
    let Ran { code, stdout, stderr } = bed.run("log replay");
    stdout.has(["the log begins with"]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    stderr.has(["the log is not whole"]);
}

#[test]
fn killed_commands_leave_no_contradiction() {
    let bed = Bed::new();
    bed.ok("mailbox add w2 --attempts-max 99");
    let ids: Vec<String> =
        (0..10).map(|_| bed.ok("send --to w2 -m text").trim_end().to_owned()).collect();
    bed.ok("recv --as w2");
    bed.ok("recv --as w2");
    // One of each four has ended; the others are killed at any point.
    let settle = format!("settle {} --as w2", ids[0]);
    let release = format!("mailbox release {} --as w2", ids[1]);
    let verbs = ["recv --as w2", &release, &settle, "send --to w2 -m text"];
    let mut children = Vec::new();
    for round in 0..40 {
        let mut child = bed.start(verbs[round % verbs.len()]);
        if round % 3 == 0 {
            child.wait().unwrap();
        }
        children.push(child);
        if round % 4 == 3 {
            children.iter_mut().for_each(|child| drop(child.kill()));
        }
    }
    for mut child in children {
        let _ = child.kill();
        child.wait().unwrap();
    }
    let (code, rows) = replay(&bed, "");
    assert_eq!(code, 0, "{rows:#?}");
    assert!(rows.last().unwrap()["records"].as_u64() > Some(10));
}
