//! The ladder of a task, whichever door it came through and whichever process is killed in the meantime.

use serde_json::{Value, json};

use crate::assign::{HASTY, NEVER, Team};
use crate::bed::{Bed, JsonMembers as _, Running, end, land, watch};
use crate::tmux_support::eventually;

/// Two seconds a phase: longer than the pause that a pane is given between two lines.
const LADDER: &str = "ladder: {phase: 2, ceiling: 0}\n";

impl Team {
    /// A worker that never takes its mail.
    fn mute() -> Self {
        Self::new(LADDER, "touch", NEVER)
    }

    fn has_climbed(&self, task: &str) -> bool {
        ladder(&self.bed, task).is_some_and(|ladder| ladder["phase"].as_u64() > Some(0))
    }
}

pub(crate) fn ladder(bed: &Bed, task: &str) -> Option<Value> {
    let all = bed.json("status").pop()?["ladders"].as_array()?.clone();
    all.into_iter().find(|ladder| ladder["task"] == task)
}

pub(crate) fn told(bed: &Bed) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(message) = bed.run("recv --as conductor --json").stdout.lines().next() {
        told.push(serde_json::from_str(message).unwrap());
    }
    told
}

#[test]
fn a_task_of_any_door_is_escalated_by_the_watcher_alone() {
    let team = Team::mute();
    let watcher = watch(&team.bed);
    let task = "task_id: w1\nworker_id: w1\ninstruction: x\n...\n";
    land(&team.bed, "tasks/w1-task.yaml", task);
    team.bed.ok("send --to w1 --type task --task sent -m count");
    eventually("both are escalated", || team.records("escalation").len() == 2);
    eventually("both are routed", || team.records("file.routed").len() == 3);
    let lines = team.nudges();
    drop(watcher);
    let mut tasks: Vec<String> =
        told(&team.bed).iter().map(|m| m["task_id"].as_str().unwrap().to_owned()).collect();
    tasks.sort();
    assert_eq!(tasks, ["sent", "w1"], "the file names its worker as the task");
    // The delivery and three phases, at most one line more for the one that came second.
    assert!((4..=5).contains(&lines), "{:?}", team.tmux.received());
    assert_eq!(team.records("nudge.unanswered").len(), 0, "the ladder speaks for it");
}

#[test]
fn a_watcher_that_is_killed_goes_on_with_its_ladders() {
    let team = Team::mute();
    let watcher = watch(&team.bed);
    team.bed.ok("send --to w1 --type task --task t1 -m count");
    eventually("a phase has begun", || team.has_climbed("t1"));
    drop(watcher);
    let before = ladder(&team.bed, "t1").unwrap();
    let why = team.bed.object("why t1");
    let now = why["now"].as_array().unwrap();
    assert!(
        now.iter().any(|row| row["what"] == "ladder" && row["phase"] == before["phase"]),
        "{why}"
    );
    let watcher = watch(&team.bed);
    eventually("it is escalated", || team.records("escalation").len() == 1);
    eventually("it is routed", || team.records("file.routed").len() == 1);
    drop(watcher);
    // After another restart nothing is reported again.
    let watcher = watch(&team.bed);
    eventually("the file is known", || {
        ladder(&team.bed, "t1").is_some_and(|l| l["state"] == "escalated")
    });
    drop(watcher);
    assert_eq!(told(&team.bed).len(), 1);
    assert_eq!(team.records("escalation").len(), 1);
    let phases: Vec<Value> =
        team.records("ladder.phase").iter().map(|record| record["data"]["phase"].clone()).collect();
    assert_eq!(phases, [1, 2, 3], "no phase twice");
}

#[test]
fn an_assign_that_is_killed_leaves_its_ladder_to_the_next_watcher() {
    let team = Team::new(&format!("readiness: {{wait: 120}}\n{LADDER}"), "touch", NEVER);
    let assigning = Running(team.bed.start("assign w1 -f task.md --task t1"));
    eventually("a phase has begun", || team.has_climbed("t1"));
    drop(assigning);
    assert_eq!(team.bed.json("log escalations")[0]["source"], "ladder");
    let watcher = watch(&team.bed);
    eventually("it is escalated", || team.records("escalation").len() == 1);
    eventually("it is routed", || team.records("file.routed").len() == 1);
    // Assigned again: the attempt that was given up has ended.
    let again = team.bed.start("assign w1 -f task.md --task t1 --json");
    eventually("the next attempt waits", || team.records("worker_assign").len() == 2);
    end(again).ends(1);
    eventually("it is routed, too", || team.records("file.routed").len() == 2);
    drop(watcher);
    assert_eq!(told(&team.bed).len(), 2);
}

#[test]
fn a_task_that_is_taken_under_a_watcher_is_acked_by_its_ladder() {
    let config = format!("readiness: {{wait: 120}}\n{LADDER}");
    let team = Team::new(&config.replace("phase: 2", "phase: 6"), "touch", "2");
    let watcher = watch(&team.bed);
    let done = team.assign();
    // The ladder is the watcher's; the command sees the ack by itself.
    eventually("the watcher has seen the ack", || team.records("task_start").len() == 1);
    drop(watcher);
    done.ends(0);
    crate::assign::object(&done).fits(json!({ "state": "acked", "phase": 1 }));
    assert_eq!((team.nudges(), team.records("escalation").len()), (2, 0), "one pace");
    assert_eq!(team.records("task_start").len(), 1);
}

#[test]
fn the_last_phase_is_configured() {
    let config = HASTY.replace("ceiling: 0", "ceiling: 0, max_phases: 2");
    let team = Team::new(&config, "mute", NEVER);
    let watcher = watch(&team.bed);
    team.bed.ok("send --to w1 --type task --task t1 -m count");
    eventually("it is escalated", || team.records("escalation").len() == 1);
    drop(watcher);
    assert_eq!(team.records("escalation")[0]["data"]["phase"], 1);
}
