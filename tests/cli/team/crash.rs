//! `up` killed at its system calls: the next one finishes what it began, and starts nobody twice.
//! Needs `strace`; skipped with a printed reason where there is none.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Team, of};
use crate::bed::program;

const AGENTS: [&str; 2] = ["one", "two"];
/// Where a process is killed: when it changes a file, and when it speaks to the tmux server.
const DEADLY: [&str; 8] =
    ["renameat", "renameat2", "mkdirat", "mkdir", "write", "sendto", "fdatasync", "clone3"];
/// `up` makes fewer such calls.
const CALLS_MAX: u32 = 200;

fn is_strace_here() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: there is no `strace`");
    }
    found
}

/// Runs `up` and kills it before its `number`th call of `call`; whether it got that far.
fn killed_at(team: &Team, call: &str, number: u32) -> bool {
    let inject = format!("inject={call}:signal=SIGKILL:when={number}");
    // Without -f, only `up` itself is watched, and not what it starts.
    let mut strace = Command::new("strace");
    strace
        .args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
        .arg(program())
        .arg("up")
        .env_clear()
        .env("HOME", team.bed.project())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(team.bed.project())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    !strace.status().unwrap().success()
}

/// What must hold after the next `up`, whatever happened before.
#[track_caller]
fn check(team: &Team, place: &str) {
    let up = team.up();
    let again = team.up();
    for name in AGENTS {
        let line = of(&up, name);
        assert_eq!(line["ended"], false, "{place}: {line}");
        assert_eq!(of(&again, name)["how"], "running", "{place}: {up:#?} {again:#?}");
        assert_eq!(of(&again, name)["pid"], line["pid"], "{place}");
        // One pane, the one that is recorded, whose agent knows its pass.
        let pane = team.pane(name);
        assert_eq!((&line["pane"], &line["pid"]), (&Value::from(pane.id), &Value::from(pane.pid)));
        let who = team.order(name, "$E whoami --json");
        assert!(who.stdout.contains(r#""known_by":"pass""#), "{place}: {who:?}");
        assert_eq!(team.member(name)["unread"], 1, "{place}");
    }
    let watchers: BTreeSet<u32> =
        team.panes().iter().filter(|pane| pane.is_sidecar).map(|pane| pane.pid).collect();
    assert_eq!(watchers.len(), 1, "{place}");
}

#[test]
fn up_that_was_killed_anywhere_is_finished_by_the_next() {
    if !is_strace_here() {
        return;
    }
    let mut kills = 0;
    for call in DEADLY {
        let mut number = 1;
        // Every call at first, then wider apart: the later ones repeat for the second agent.
        while number < CALLS_MAX {
            let team = Team::with(&AGENTS, "");
            for name in AGENTS {
                team.bed.ok(&format!("mailbox add {name}"));
                team.bed.ok(&format!("send --to {name} -m unread"));
            }
            if !killed_at(&team, call, number) {
                break;
            }
            kills += 1;
            check(&team, &format!("{call} {number}"));
            number += 1 + number / 3;
        }
    }
    println!("up was killed {kills} times");
    assert!(kills > 20, "the harness kills nobody: {kills}");
}
