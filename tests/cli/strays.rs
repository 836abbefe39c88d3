//! Files that have no business in the directories of a project: they cost a warning, and no verb.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::bad_parts::break_part;
use crate::bed::{Bed, SaidText as _, land, objects, terminate};
use crate::tmux_support::eventually;
use crate::waiting::until_it_listens;

/// Each directory of a project, with a name that its own files have; `#` stands for a digit.
const PLACES: [(&str, &str); 33] = [
    ("queue", "#.yaml"),
    ("queue/requests", "0000000#"),
    ("queue/requests/11111111", "#.yaml"),
    ("queue/gates", "t#@w1.yaml"),
    ("queue/attachments", "#1e43bbe22013983d64d1c53179a78d7f5b4dec02cfe95721b1f10e6e2b624ee"),
    ("queue/rejected", "reports.a#-completed.yaml.4711.c0ffee.0"),
    ("queue/tmp", "#.yaml.tmp"),
    ("queue/reports", "a#-completed.yaml"),
    ("queue/tasks", "w1#-task.yaml"),
    ("queue/ack", "t#.ack"),
    ("queue/mailbox", "stray#"),
    ("queue/mailbox/w1", "#.yaml"),
    ("queue/mailbox/w1/new", "#.yaml"),
    ("queue/mailbox/w1/front", "#.yaml"),
    ("queue/mailbox/w1/cur", "a#@w1@1.yaml"),
    ("queue/mailbox/w1/done", "#.yaml"),
    ("queue/mailbox/w1/dead", "#.yaml"),
    ("queue/mailbox/w1/lease", "#.yaml"),
    (".ensemble", "#.yaml"),
    (".ensemble/panes", "w#.yaml"),
    (".ensemble/roster", "r#.yaml"),
    (".ensemble/logs", "session-2020010#-000000.ndjson"),
    (".ensemble/sessions", "w#.json"),
    (".ensemble/leases", "w#@1.beat"),
    (".ensemble/ready", "w1@#.pong"),
    (".ensemble/batches", "b#.yaml"),
    (".ensemble/reviews", "t#.yaml"),
    (".ensemble/ends", "0#.ndjson"),
    (".ensemble/locks", "assign-w#.lock"),
    (".ensemble/hooks", "claude-#.json"),
    (".ensemble/mcp", "#.json"),
    (".ensemble/supervise", "w#.yaml"),
    (".ensemble/canary", "canary#"),
];

/// No matter what may be in a directory by mistake, by names that nothing has and by names that our files have.
fn litter(place: &Path, name: &str) {
    fs::create_dir_all(place).unwrap();
    let stray = |digit: &str, other: &str| [name.replace('#', digit), other.to_owned()];
    let pipe = |path: &Path| {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    for (digit, other) in [("2", "stray"), ("3", "directory"), ("4", "pipe"), ("5", "link")] {
        for file in stray(digit, other).map(|name| place.join(name)) {
            match other {
                "stray" => fs::write(file, "round: [").unwrap(),
                "directory" => fs::create_dir(file).unwrap(),
                "pipe" => pipe(&file),
                _ => symlink("/nowhere/at/all", file).unwrap(),
            }
        }
    }
    let odd = [name.replace('#', "6").as_bytes(), b"-\xff"].concat();
    fs::write(place.join(OsStr::from_bytes(&odd)), "x").unwrap();
}

fn at_work(bed: &Bed) {
    bed.configure("identity: {outsiders: allow}\n");
    let roster = bed.project().join(".ensemble/roster");
    fs::create_dir_all(&roster).unwrap();
    let row = "version: 1\nname: w1\nrole: worker\nprovider: shell\nmailbox: w1\nstate: up\n\
               since: \"2026-01-01T00:00:00.000Z\"\n";
    fs::write(roster.join("w1.yaml"), row).unwrap();
    bed.ok("send --to w1 --as lead --id held -m held");
    bed.ok("recv --as w1");
    bed.ok("request shutdown w1 --as lead --id 11111111");
}

/// Runs what must succeed, no matter what it warns of; its stdout.
#[track_caller]
fn works(bed: &Bed, line: &str) -> String {
    let ran = bed.run(line);
    assert_eq!(ran.code, 0, "ensemble {line}: {ran:?}");
    ran.stdout
}

#[test]
fn a_stray_file_costs_a_warning_and_no_verb() {
    let bed = Bed::new();
    at_work(&bed);
    for (place, name) in PLACES {
        litter(&bed.project().join(place), name);
    }
    let watcher = bed.start("watch");
    until_it_listens(&watcher);
    // Of the drop boxes, all files but those that may still grow are set aside.
    let reports = bed.project().join("queue/reports");
    eventually("strays in a drop box are put aside", || {
        !reports.join("a4-completed.yaml").exists()
            && reports.join("a5-completed.yaml").symlink_metadata().is_err()
    });
    land(&bed, "reports/good-completed.yaml", "good: yes\n");

    let warned = bed.run("status --json").stdout;
    for stray in ["roster/r2.yaml", "roster/r3.yaml", "roster/r4.yaml", "roster/r5.yaml"] {
        assert!(warned.contains(stray), "{stray}: {warned}");
    }
    let team = objects(&works(&bed, "team --json"));
    assert!(team.iter().any(|row| row["agent"] == "w1"), "{team:?}");
    assert!(works(&bed, "inbox --as w1").contains("held by w1"));
    let asked = objects(&works(&bed, "request list --json"));
    assert_eq!((asked.len(), &asked[0]["request_id"]), (1, &json!("11111111")), "{asked:?}");
    works(&bed, "send --to w1 --as lead --id sent -m hello");
    assert!(works(&bed, "recv --as w1").contains("request answer"));
    assert!(works(&bed, "recv --as w1").contains("hello"));
    works(&bed, "settle sent --as w1");
    works(&bed, "request answer 11111111 --reject --reason busy --as w1");
    assert!(works(&bed, "why sent").contains("finished"));
    let stored = objects(&works(&bed, "log --type message.stored --json"));
    assert!(stored.iter().any(|record| record["data"]["id"] == "sent"), "{stored:?}");
    for line in ["log", "mailbox list", "doctor", "agent usage", "agent whoami --as w1"] {
        works(&bed, line);
    }
    eventually("a good report is routed", || {
        works(&bed, "inbox --as dispatch --json").contains("good-completed.yaml")
            || works(&bed, "log --type file.routed --json").contains("good-completed.yaml")
    });
    terminate(watcher);

    // What is not of the queue is found, and set aside on demand.
    let found = bed.run("admin fsck");
    found.ends(4);
    for stray in ["requests/stray", "requests/pipe", "requests/link", "gates/directory"] {
        assert!(found.stdout.contains(stray), "{stray}: {found:?}");
    }
    assert_eq!(bed.run("admin fsck --repair").code, 4, "directories stay where they are");
    assert!(!bed.project().join("queue/requests/stray").exists());
}

#[test]
fn fsck_names_each_unreadable_file_of_the_state_directory_and_no_file_of_a_file_manager() {
    let bed = Bed::new();
    let queue = bed.project().join("queue");
    fs::create_dir_all(queue.join("requests")).unwrap();
    fs::create_dir(queue.join("mailbox/@eaDir")).unwrap();
    for file in ["mailbox/.DS_Store", "mailbox/Thumbs.db", "requests/desktop.ini"] {
        fs::write(queue.join(file), "").unwrap();
    }
    bed.json("status").pop().unwrap()["needs"].to_string().lacks(["Thumbs.db", "desktop.ini"]);
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    let parts = [
        ("roster/bad.yaml", "wrong"),
        ("panes/bad.yaml", "pipe"),
        ("ladders/bad@bad.yaml", "wrong"),
        ("sessions/bad.json", "directory"),
        ("logs/log.lock", "directory"),
    ];
    for (part, kind) in parts {
        break_part(&bed.project().join(".ensemble").join(part), kind);
    }
    let found = bed.run("admin fsck");
    found.ends(4);
    assert!(parts.iter().all(|(part, _)| found.stdout.contains(part)), "{found:?}");
}
