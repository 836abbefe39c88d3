//! `up` killed at its system calls: the next one finishes what it began, and starts no agent twice.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Team, of};
use crate::bed::JsonMembers as _;

const AGENTS: [&str; 2] = ["one", "two"];
/// Where a process is killed: when it changes a file, and when it speaks to the tmux server.
const DEADLY: [&str; 8] =
    ["renameat", "renameat2", "mkdirat", "mkdir", "write", "sendto", "fdatasync", "clone3"];
/// `up` makes fewer such calls.
const CALLS_MAX: u32 = 200;

/// What must hold after the next `up`, no matter what happened before.
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
        line.fits(json!({ "pane": pane.id, "pid": pane.pid }));
        let who = team.order(name, "$E agent whoami --json");
        assert!(who.stdout.contains(r#""known_by":"pass""#), "{place}: {who:?}");
        assert_eq!(team.member(name)["unread"], 1, "{place}");
    }
    let watchers: BTreeSet<u32> =
        team.panes().iter().filter(|pane| pane.is_sidecar).map(|pane| pane.pid).collect();
    assert_eq!(watchers.len(), 1, "{place}");
}

#[test]
#[ignore = "long"]
fn up_that_was_killed_anywhere_is_finished_by_the_next() {
    let mut kills = 0;
    for call in DEADLY {
        let mut number = 1;
        // Every call at first, then wider apart: the later ones repeat for the second agent.
        while number < CALLS_MAX {
            let team = Team::with(&AGENTS, "");
            for name in AGENTS {
                team.bed.ok(&format!("mailbox add {name}"));
                assert_eq!(team.bed.run(&format!("send --to {name} -m unread")).code, 0);
            }
            if !team.is_killed_at("up", call, number) {
                break;
            }
            kills += 1;
            check(&team, &format!("{call} {number}"));
            number += 1 + number / 3;
        }
    }
    println!("up was killed {kills} times");
    assert!(kills > 20, "the harness kills too little: {kills}");
}
