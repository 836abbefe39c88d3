//! An agent's program that has ended is opened again by what asks the agent, and by `agent restart`: the agent is the same.

use std::fs;

use serde_json::{Value, json};

use super::{Team, kill};
use crate::bed::{JsonMembers as _, SaidText as _, objects, write_program};
use crate::tmux_support::eventually;

/// Notes how it was started, draws the composer of Claude Code, answers pings, and does the work that a hint announces.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys, tty
keys = ["ENSEMBLE_AGENT_ID", "ENSEMBLE_GENERATION", "ENSEMBLE_QUEUE", "EXTRA"]
with open(os.environ["STARTS"], "a") as starts:
    env = {key: os.environ.get(key) for key in keys}
    starts.write(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": env}) + "\n")
tty.setraw(0)
os.write(1, b"\x1b[?1049h\x1b[?2004h\x1b]0;Claude Code\x07")
buffer = ""
def draw():
    rule = "\u2500" * 60
    text = f"\x1b[2J\x1b[H{rule}\r\n\u276f {buffer}\r\n{rule}\r\n  ? for shortcuts\x1b[2;{len(buffer) + 3}H"
    os.write(1, text.encode())
def ensemble(*words):
    return subprocess.run([os.environ["E"], *words], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
draw()
while True:
    for key in os.read(0, 4096).decode(errors="replace").replace("\x1b[200~", "").replace("\x1b[201~", ""):
        if key == "\r":
            if buffer.startswith("AGENT_TEAM_PING"):
                ensemble("agent", "pong", *buffer.split()[1:])
            elif buffer.startswith("ensemble"):
                ensemble("recv")
                ensemble("report", "t1", "--status", "success", "--summary", "counted 1 of 1 files (100%), see ensemble.yaml:1")
            buffer = ""
        elif key == "\x7f":
            buffer = buffer[:-1]
        elif key >= " ":
            buffer += key
    draw()
"#;

fn team() -> Team {
    let team = Team::with(&[], "  spare: {command: exec sleep 1000}\n");
    let (root, here) = (team.bed.project(), team.bed.project().join("here"));
    fs::create_dir(root.join("sub")).unwrap();
    write_program(here.join("claude"), CLAUDE);
    let config = format!(
        "durability: process\nteam: {{name: crew}}\nreadiness: {{wait: 8, retry: 0}}\nlint: {{mode: off}}\n\
         agents:\n  worker-1:\n    provider: claude\n    command: claude --model sonnet\n    directory: sub\n    env: \
         {{PATH: '{here}:/usr/local/bin:/usr/bin:/bin', STARTS: '{here}/starts', E: '{program}', EXTRA: 'a b'}}\n",
        here = here.display(),
        program = crate::bed::program().display(),
    );
    fs::write(root.join("ensemble.yaml"), config).unwrap();
    team
}

fn starts(team: &Team) -> Vec<Value> {
    objects(&fs::read_to_string(team.here("starts")).unwrap_or_default())
}

/// The last start was like the first one, a generation later.
#[track_caller]
fn starts_alike(team: &Team, generation: usize) {
    let starts = starts(team);
    assert_eq!(starts.len(), generation, "{starts:#?}");
    let (first, last) = (&starts[0], &starts[generation - 1]);
    assert!(first["argv"].as_array().unwrap().len() > 2, "it has our hooks: {first}");
    first.fits(json!({ "argv": last["argv"], "cwd": last["cwd"] }));
    for key in ["ENSEMBLE_AGENT_ID", "ENSEMBLE_QUEUE", "EXTRA"] {
        assert_eq!(first["env"][key], last["env"][key], "{key}");
    }
    last["env"].fits(json!({ "EXTRA": "a b", "ENSEMBLE_GENERATION": generation.to_string() }));
    assert_eq!(team.member("worker-1")["generation"], generation);
}

#[test]
fn a_dead_pane_that_assign_opens_again_has_the_same_agent() {
    let team = team();
    team.up();
    team.wait_for_state("worker-1", "idle");
    kill(team.pane("worker-1").pid);
    eventually("the pane is dead", || team.pane("worker-1").dead);
    let words =
        ["assign", "worker-1", "count", "--task", "t1", "--until", "settled", "--wait", "90s"];
    let done = crate::bed::to_end(&mut team.bed.command(&words));
    assert_eq!(done.code, 0, "{done:?}\n{}", team.bed.ok("log"));
    starts_alike(&team, 2);
    team.wait_for_state("worker-1", "idle");
    assert_eq!(team.records("ready.open")[0]["command"], "claude --model sonnet");
    assert!(team.records("nudge.deferred").iter().all(|it| it["reason"] != "pane_reused"));
    // `up` finds it.
    assert_eq!(super::of(&team.up(), "worker-1")["how"], "running");
}

#[test]
fn a_restarted_agent_starts_alike_and_gets_back_what_it_held() {
    let team = team();
    team.up();
    team.wait_for_state("worker-1", "idle");
    team.bed.fails(3, "agent restart stranger");
    let before = team.member("worker-1");
    team.bed.run("agent restart worker-1 --force").ends(0);
    let after = team.wait_for_state("worker-1", "idle");
    assert_ne!(before["pid"], after["pid"]);
    starts_alike(&team, 2);
    // It does not run: then it is only started.
    kill(team.pane("worker-1").pid);
    eventually("the pane is dead", || team.pane("worker-1").dead);
    assert_eq!(team.bed.run("agent restart worker-1").code, 0);
    starts_alike(&team, 3);
    assert_eq!(team.panes().iter().filter(|pane| pane.member.is_some()).count(), 1);
}

#[test]
fn what_a_restarted_agent_held_comes_back_to_it() {
    let team = Team::with(&["conductor", "worker-1"], "");
    team.up();
    team.bed.ok("send --as operator --to worker-1 --id kept -m work");
    team.order("worker-1", "$E recv --json").shows(["\"kept\""]);
    // An agent ends no other one without authority, and never itself.
    team.order("worker-1", "$E agent restart worker-1").says(["cannot restart itself"]);
    let refused = team.order("worker-1", "$E agent restart conductor --force");
    assert!(refused.code == 1 && team.member("conductor")["generation"] == 1, "{refused:?}");
    fs::remove_file(team.here("worker-1.ready")).unwrap();
    team.bed.run("agent restart worker-1 --force").ends(0);
    assert_eq!(team.bed.ok("inbox"), "mailbox operator is empty\n", "it has shown the answer");
    let again = team.order("worker-1", "$E recv --json; echo $ENSEMBLE_GENERATION");
    again.shows(["\"kept\""]);
    again.stdout.finishes("2\n");
    // A program that cannot be found ends nothing.
    let config = team.bed.read_file("ensemble.yaml");
    let broken = config.replacen("sh here/puppet.sh", "no-such-program", 1);
    team.bed.write_file("ensemble.yaml", broken);
    team.bed.fails(5, "agent restart conductor --force").has(["no-such-program"]);
    assert_eq!(team.member("conductor")["state"], "idle");
}
