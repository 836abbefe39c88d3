//! The blackboard as other programs and dead agents leave it, on the command line.

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, SaidText as _, git, ran, terminate};
use crate::tmux_support::eventually;

/// A repository with a board and three tasks.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.begin_repository();
    bed.ok("board init");
    for task in ["t1", "t2", "t3"] {
        bed.add_task(task);
    }
    bed
}

/// An entry as another program leaves it when it dies with a task.
fn leave(bed: &Bed, until: &str) {
    let path = bed.project().join(".ensemble/state.yaml");
    let entry = format!(
        "agents:\n  coder-1:\n    role: coder\n    status: WORKING\n    current_task: t1\n    \
         lease_expires: {until}\n    heartbeat: 2026-01-01T00:00:00Z\n    mood: calm\n"
    );
    let text = std::fs::read_to_string(&path).unwrap().replace("agents: {}\n", &entry);
    let claimed = format!(
        "status: CLAIMED\n    assigned_to: coder-1\n    worktree: .worktrees/t1\n    \
         base_commit: c\n    lease_expires: {until}\n"
    );
    std::fs::write(&path, text.replacen("status: UNCLAIMED\n", &claimed, 1)).unwrap();
}

#[test]
fn an_entry_that_is_left_is_taken_over_with_one_flag() {
    let bed = bed();
    leave(&bed, "2026-01-01T00:05:00Z");
    let line = "agent supervise --role coder --id coder-1 -- sleep 600";
    let refused = bed.fails(1, line);
    refused.has(["`coder-1` is registered"]);
    refused.has(["hint: its lease has ended: `ensemble agent supervise --take-over`"]);
    let taken = line.replace("supervise", "supervise --take-over");
    let supervisor = bed.start(&taken);
    eventually("its agent runs", || {
        let seat = bed.project().join(".ensemble/supervise/coder-1.yaml");
        std::fs::read_to_string(seat).is_ok_and(|text| text.contains("agent:"))
    });
    bed.read_file(".ensemble/state.yaml").has(["mood: calm"]);
    terminate(supervisor);
}

#[test]
fn an_entry_whose_lease_runs_is_not_taken_over_but_unregistered_and_its_work_given_back() {
    let bed = bed();
    leave(&bed, "2126-01-01T00:05:00Z");
    let refused = bed.fails(1, "agent supervise --take-over --role coder --id coder-1 -- true");
    refused.has(["its lease runs until 2126-01-01", "`ensemble agent unregister coder-1 --force`"]);
    assert_eq!(bed.board().tasks[0].status.as_str(), "CLAIMED");
    bed.ok("agent register --role coder --as coder-2");
    assert!(bed.fails(3, "agent unregister nina").contains("`ensemble board show`"));
    bed.fails(1, "agent unregister coder-1 --as coder-2").has(["`coder-2` is not a planner"]);
    assert!(bed.fails(1, "agent unregister coder-1").contains("its lease runs until 2126"));
    assert_eq!(bed.ok("agent unregister coder-1 --force"), "coder-1 unregistered; returned: t1\n");
    let state = bed.board();
    assert_eq!(state.tasks[0].status.as_str(), "UNCLAIMED");
    assert_eq!(state.agents.len(), 1);
    let supervisor = bed.start("agent supervise --role coder --id coder-3 -- sleep 600");
    eventually("it is registered", || bed.board().agents.len() == 2);
    bed.fails(1, "agent unregister coder-3 --force").has(["a supervisor of `coder-3` runs"]);
    terminate(supervisor);
}

#[test]
fn status_says_what_stands_still_and_what_helps() {
    let bed = bed();
    bed.ok("status").has(["no registered agent can take: t1 needs a coder"]);
    leave(&bed, "2026-01-01T00:05:00Z");
    bed.ok("task block t2 --reason stuck --question why?");
    let shown = bed.ok("status");
    shown.has(["!  task t2 is blocked: stuck  ->", "then `ensemble task unblock t2`"]);
    shown.has(["coder-1 has no lease since 2026-01-01T00:05:00"]);
    shown.has(["`ensemble agent unregister coder-1`"]);
    let last = bed.json("status").pop().unwrap();
    let found: Vec<&str> = last["board"]["troubles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trouble| trouble["alarm"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["blocked", "lease_over"]);
    bed.ok("task unblock t2");
    bed.ok("agent unregister coder-1");
    bed.ok("agent register --role coder --as coder-2");
    bed.ok("status").lacks(["task t2 is blocked", "has no lease"]);
    bed.write_file(".ensemble/state.yaml", "version: [\n");
    bed.ok("status").has(["the blackboard cannot be read"]);
}

#[test]
fn a_branch_that_cannot_be_merged_into_is_told_in_time() {
    let bed = bed();
    let check = |bed: &Bed| {
        let ran = bed.run("doctor --json");
        let checks = crate::bed::objects(&ran.stdout);
        checks.into_iter().find(|check| check["check"] == "merges").unwrap()
    };
    assert_eq!(check(&bed)["level"], "ok");
    git(&bed.project(), "switch --quiet -c integration");
    let warned = check(&bed);
    assert_eq!(warned["level"], "warn");
    assert!(warned["remedy"].as_str().unwrap().contains("git switch --detach"), "{warned}");
    let mut supervisor =
        bed.start("agent supervise --role code-reviewer --id reviewer-1 --max-wait 10ms -- true");
    let mut said = String::new();
    std::io::Read::read_to_string(supervisor.stderr.as_mut().unwrap(), &mut said).unwrap();
    supervisor.wait().unwrap();
    said.has(["nothing can be merged into `integration`"]);
}

#[test]
fn an_agent_says_how_much_of_its_context_is_used() {
    let bed = bed();
    bed.ok("agent register --role coder --as coder-1");
    bed.ok("task claim t1 --as coder-1");
    let held = bed.object("agent whoami --as coder-1");
    held["tasks"][0].fits(json!({ "task": "t1", "duty": "work" }));
    assert!(bed.ok("agent whoami --as coder-1").contains("  work on task t1, number "));
    // Only people read it, so a value that makes no sense is a warning.
    for (written, kept) in [("63.4", 63), ("64%", 64), ("40 %", 40), ("101", 40), ("-1", 40)] {
        let line = ["agent", "heartbeat", "--json", "--as", "coder-1", "--context-used", written];
        let ran = ran(bed.command(&line).output().unwrap());
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &said["context_percent"]), (0, &json!(kept)), "{ran:?}");
        assert_eq!(ran.stderr.contains("not a share"), matches!(written, "101" | "-1"), "{ran:?}");
    }
    bed.add_task("t4");
    let used = |bed: &Bed| bed.board().agents.values().next().unwrap().context_percent;
    assert_eq!(used(&bed), Some(40));
    assert!(bed.ok("board show").contains("40%"));
    bed.ok("agent heartbeat --long tests --as coder-1");
    assert_eq!(bed.json("log --type lease.extended_long").len(), 1);
    bed.ok("agent handoff --summary half --next-action rest --context-used 91 --as coder-1");
    assert_eq!(used(&bed), Some(91));
    bed.add_task("t5");
    assert_eq!(used(&bed), Some(91), "an earlier sign does not come back");
}

#[test]
fn an_abort_leaves_nothing_that_is_broken() {
    let bed = bed();
    let mut supervisor = bed.start("agent supervise --role coder --id coder-1 -- sleep 600");
    eventually("it works", || bed.board().tasks[0].status.as_str() == "CLAIMED");
    bed.ok("board abort");
    assert!(supervisor.wait().unwrap().success());
    assert!(bed.project().join(".worktrees/t1").exists());
    bed.ok("admin fsck").has(["there is no work in it: the task is UNCLAIMED"]);
    bed.write_file(".worktrees/t1/new.txt", "work");
    assert!(bed.ok("admin fsck").contains("no agent works on this task: the task is UNCLAIMED"));
    assert!(bed.ok("admin fsck --repair").contains("repaired"));
    assert!(!bed.project().join(".worktrees/t1").exists());
}

#[test]
fn the_same_crash_at_three_tasks_stops_the_team() {
    let bed = bed();
    bed.ok("board sprint start s-1 --planned t1");
    let line =
        "agent supervise --role coder --id coder-1 --crashes 2 --restart-delay 10ms -- false";
    let supervisor = bed.start(line);
    eventually("the breaker trips", || {
        let breaker = bed.board().circuit_breaker;
        breaker.is_some_and(|breaker| breaker.status.as_deref() == Some("TRIGGERED"))
    });
    assert!(bed.project().join(".ensemble/CHECKPOINT").exists());
    assert_eq!(bed.object("board sprint show")["status"], "CHECKPOINT");
    let loops: Vec<_> =
        bed.board().anomalies.into_iter().filter(|noted| noted.kind == "retry_loop").collect();
    assert_eq!(loops.len(), 3, "{loops:?}");
    terminate(supervisor);
}
