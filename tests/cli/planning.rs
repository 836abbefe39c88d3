//! Goal, sprint, discoveries, anomalies and control files on the command line.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, keys, ran};

fn bed() -> Bed {
    let bed = Bed::empty();
    bed.ok("board init");
    bed.ok("task add a -d first --spec s.md --done-when works");
    bed.ok("task add b -d second --spec s.md --done-when works --after a");
    bed
}

fn there(bed: &Bed, file: &str) -> bool {
    bed.project().join(".ensemble").join(file).exists()
}

#[test]
fn a_goal_goes_from_planning_to_its_end() {
    let bed = bed();
    assert!(bed.fails(3, "board goal show").contains("`ensemble board goal set ID -d TEXT`"));
    assert!(bed.fails(1, "board goal begin").contains("no goal"));
    bed.ok("board goal set g-1 -d retry --spec s.md").begins("g-1 PLANNING\n");
    assert!(bed.fails(1, "board goal set g-2 -d other").contains("goal `g-1` is not over"));
    assert!(bed.fails(1, "board goal complete").contains("it is PLANNING"));
    let begun = bed.object("board goal begin");
    assert_eq!(keys(&begun)[..4], ["id", "description", "spec_ref", "status"]);
    assert_eq!(begun["status"], "IN_PROGRESS");
    bed.ok("board goal complete");
    assert_eq!(bed.object("board goal set g-2 -d other")["status"], "PLANNING");
    bed.ok("board goal abort");
    bed.fails(2, "board goal set ../x -d x");
}

#[test]
fn a_sprint_has_a_scope_and_numbers() {
    let bed = bed();
    bed.ok("board goal set g-1 -d retry");
    assert!(bed.fails(3, "board sprint show").contains("`ensemble board sprint start"));
    bed.fails(2, "board sprint start s-1 --deadline tomorrow");
    assert!(bed.fails(1, "board sprint start s-1 --planned x").contains("sprint.scope.planned[0]"));
    let sprint = bed
        .object("board sprint start s-1 --planned a --stretch b --deadline 2030-01-01T00:00:00Z");
    sprint.fits(json!({ "id": "s-1", "goal_ref": "g-1", "status": "IN_PROGRESS" }));
    sprint["metrics"].fits(json!({ "total": 2, "open": 2 }));
    assert!(bed.fails(1, "board sprint start s-2").contains("sprint `s-1` is not over"));
    bed.ok("board sprint show").has(["  planned: a\n  stretch: b\n  deadline: 2030-01-01"]);
    let over = ran(bed
        .command(&["board", "sprint", "complete", "--retrospective", "all well"])
        .output()
        .unwrap());
    over.stdout.begins("s-1 COMPLETED\n");
    bed.ok("board sprint start s-2");
    let text = bed.read_file(".ensemble/state.yaml");
    for kept in ["sprint_history:", "id: s-1", "all well", "id: s-2"] {
        assert!(text.contains(kept), "{kept}\n{text}");
    }
    assert!(bed.ok("board validate").ends_with("is valid\n"));
}

#[test]
fn a_discovery_becomes_a_task_or_waits_and_planners_decide_about_tasks() {
    let bed = bed();
    assert_eq!(bed.ok("board discover list"), "none\n");
    let found = bed
        .object("--as ann board discover add d-1 -d tokens --during a --immediate --severity high");
    found.fits(json!({ "by": "ann", "urgency": "immediate" }));
    bed.fails(1, "board discover add d-1 -d again").has(["a discovery of that name exists"]);
    bed.ok("board discover add d-2 -d later");
    assert_eq!(bed.json("board discover list").len(), 2);
    assert_eq!(bed.json("board discover list --immediate").len(), 1);
    assert!(bed.fails(3, "board discover convert d-1 --task x").contains("no task `x`"));
    assert!(bed.fails(3, "board discover convert d-9 --task a").contains("d-9"));
    assert_eq!(bed.ok("board discover convert d-1 --task b"), "d-1 is task b\n");
    assert!(bed.fails(1, "board discover convert d-1 --task a").contains("`b`"));
    bed.ok("board discover add d-3 -d soon --immediate");
    assert_eq!(bed.ok("board discover defer d-3"), "d-3 deferred\n");
    assert_eq!(bed.ok("board discover list --immediate"), "none\n");
    assert!(bed.ok("board discover list").contains("d-1        immediate  ann"));
    bed.ok("task add c -d third --spec s.md --done-when works --draft");
    assert_eq!(bed.ok("task finalize c"), "c UNCLAIMED\n");
    assert!(bed.fails(1, "task finalize c").contains("its status is UNCLAIMED"));
    bed.ok("task block c --reason stuck --question why?");
    assert_eq!(bed.ok("task unblock c"), "c UNCLAIMED\n");
    bed.ok("task block c --reason stuck --question why?");
    assert_eq!(bed.object("task abandon c --reason useless")["status"], "ABANDONED");
    assert!(bed.fails(1, "task unblock c").contains("its status is ABANDONED"));
}

#[test]
fn anomalies_are_checked_when_they_are_noted() {
    let bed = bed();
    assert!(bed.fails(1, "board anomaly add mood").contains("its type must be one of retry_loop"));
    let missing = bed.fails(1, "board anomaly add retry_loop --detail count=3");
    missing.has(["retry_loop needs the details error_pattern"]);
    bed.fails(2, "board anomaly add workaround --detail x");
    let noted = bed.object(
        "--as ann board anomaly add retry_loop --task a --detail count=3 --detail error_pattern=timeout",
    );
    assert_eq!(noted["details"], json!({ "count": 3, "error_pattern": "timeout" }));
    assert_eq!((&noted["reporter"], &noted["task"]), (&json!("ann"), &json!("a")));
    bed.ok("board anomaly add workaround");
    assert_eq!(bed.json("board anomaly list --type workaround").len(), 1);
    assert!(bed.ok("board anomaly list").contains("operator  {}"));
}

#[test]
fn only_a_person_lifts_a_control_file() {
    let bed = bed();
    assert!(bed.fails(3, "resume").contains("nothing stops the team"));
    assert!(bed.ok("pause --reason lunch").starts_with("PAUSE since 20"));
    bed.object("pause --reason dinner").fits(json!({ "put": false, "reason": "lunch" }));
    bed.ok("board sprint start s-1 --planned a");
    bed.ok("board checkpoint");
    assert_eq!(bed.object("board sprint show")["status"], "CHECKPOINT");
    assert!(there(&bed, "PAUSE") && there(&bed, "CHECKPOINT"));
    let resumed = bed.ok("--as ann resume");
    assert_eq!(resumed, "resumed: PAUSE removed, CHECKPOINT removed, sprint in progress\n");
    assert!(!there(&bed, "PAUSE") && !there(&bed, "CHECKPOINT"));
    assert_eq!(bed.object("board sprint show")["status"], "IN_PROGRESS");
    assert!(bed.ok("board abort --reason fire").starts_with("ABORT since 20"));
    assert_eq!(bed.object("board sprint show")["status"], "ABORTED");
    assert!(bed.fails(1, "resume").contains("`ensemble resume --lift-abort`"));
    assert_eq!(bed.object("resume --lift-abort")["lifted"], json!(["ABORT"]));
    let kinds: Vec<_> =
        bed.json("log --type control.*").iter().map(|r| r["data"]["file"].clone()).collect();
    assert_eq!(kinds, ["PAUSE", "CHECKPOINT", "PAUSE", "CHECKPOINT", "ABORT", "ABORT"]);
    // An agent of the board may stop it, and not let it continue.
    let state = bed.project().join(".ensemble/state.yaml");
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, text.replace("agents: {}", "agents: {ann: {status: IDLE}}")).unwrap();
    bed.ok("--as ann pause");
    let refused = bed.fails(1, "--as ann resume");
    refused.has(["ann (role worker) may not let the team continue"]);
    refused.has(["`authority: {resume: …}` in ensemble.yaml"]);
    assert!(there(&bed, "PAUSE"));
    bed.ok("resume");
}

#[test]
fn resuming_acknowledges_the_circuit_breaker() {
    let bed = bed();
    bed.ok("board sprint start s-1");
    bed.ok("board anomaly add workaround --task a");
    bed.ok("board anomaly add workaround --task b");
    assert_eq!(bed.object("board analyze")["verdict"], "TRIGGERED");
    assert_eq!(bed.object("board sprint show")["status"], "CHECKPOINT");
    bed.object("resume").fits(json!({ "acknowledged": true, "by": "operator" }));
    assert_eq!(bed.object("board analyze")["verdict"], "OK");
    assert_eq!(bed.object("board show")["circuit_breaker"]["status"], "OK");
}

#[test]
fn a_prompt_can_be_looked_at_and_its_form_be_changed() {
    let bed = bed();
    bed.fails(2, "board prompt");
    bed.fails(2, "board prompt --role coder");
    bed.fails(2, "board prompt --role boss --task a");
    bed.fails(2, "board prompt --role planner").has(["say who it is for with `--as NAME`"]);
    assert!(bed.fails(1, "board prompt --task a").contains("is not CLAIMED: claim it first"));
    assert!(bed.fails(3, "board prompt --task x").contains("there is no task `x`"));
    let planner = bed.object("--as planner-1 board prompt --role planner");
    assert_eq!(keys(&planner), ["agent", "role", "wake", "documents", "prompt"]);
    assert!(planner["prompt"].as_str().unwrap().contains("WAKE TRIGGER: NONE (monitor)\n"));
    bed.ok("task block a --reason stuck --question why?");
    bed.ok("--as planner-1 board prompt --role planner").has(["WAKE TRIGGER: BLOCKED_TASKS\n"]);
    let state = bed.project().join(".ensemble/state.yaml");
    let text = std::fs::read_to_string(&state).unwrap();
    let claimed = text.replacen(
        "status: UNCLAIMED",
        "status: READY_FOR_REVIEW\n    assigned_to: ann\n    worktree: w\n    review_commit: c1\n    reviewing_by: rev\n    review_lease_expires: 2026-01-01T00:00:00Z",
        1,
    );
    std::fs::write(&state, claimed).unwrap();
    bed.object("board prompt --task b").fits(json!({ "role": "code-reviewer", "agent": "rev" }));
    let form = bed.ok("board prompt --role code-reviewer --template");
    form.has(["COMMIT TO REVIEW: {{commit}}\nAUTHOR: {{author}}"]);
    let own = bed.project().join(".ensemble/prompts");
    assert!(bed.ok("board prompt --role code-reviewer --write").contains("code-reviewer.md"));
    assert!(bed.fails(1, "board prompt --role code-reviewer --write").contains("already exists"));
    assert_eq!(bed.ok("board prompt --role code-reviewer --template"), form);
    std::fs::write(own.join("coder.md"), "\n").unwrap();
    assert_eq!(bed.object("board prompt --role coder --template")["is_own"], json!(false));
    std::fs::write(own.join("code-reviewer.md"), format!("Be kind.\n{form}")).unwrap();
    assert!(bed.ok("board prompt --task b").starts_with("Be kind.\nMode: Liza code-reviewer\n"));
    assert_eq!(bed.object("board prompt --role code-reviewer --template")["is_own"], json!(true));
    std::fs::write(own.join("code-reviewer.md"), "{{task}}").unwrap();
    bed.fails(4, "board prompt --task b").has(["`{{task}}` is unknown: use mode, role"]);
}

#[test]
fn fsck_looks_around_the_blackboard() {
    let bed = bed();
    bed.ok("init");
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    let state = bed.project().join(".ensemble");
    std::fs::create_dir_all(state.join("leases")).unwrap();
    std::fs::write(state.join("leases/ann@7.beat"), "sequence: 1\nlease_seconds: 300\n").unwrap();
    let found = bed.run("admin fsck");
    found.ends(4);
    found.stdout.begins("can be repaired  ");
    found.says(["`ensemble admin fsck --repair`"]);
    assert!(bed.ok("admin fsck --repair").starts_with("repaired  "));
}
