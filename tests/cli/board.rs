//! The blackboard on the command line.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, keys, ran};

fn bed() -> Bed {
    let bed = Bed::empty();
    bed.ok("board init");
    bed.ok("task add a -d first --spec s.md --done-when works --priority 2");
    bed.ok("task add b -d second --spec s.md --done-when works --after a --priority 1");
    bed
}

fn edit(bed: &Bed, editor: &str) -> crate::bed::Ran {
    ran(bed.command(&["board", "edit", "--editor", editor]).output().unwrap())
}

fn text(bed: &Bed) -> String {
    bed.read_file(".ensemble/state.yaml")
}

/// Copies that were kept.
fn kept(bed: &Bed) -> Vec<String> {
    std::fs::read_dir(bed.project().join(".ensemble"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("state.edit."))
        .collect()
}

#[test]
fn tasks_are_added_and_listed() {
    let bed = bed();
    let all = bed.json("task list");
    assert_eq!(all.len(), 2);
    assert_eq!(keys(&all[0])[..3], ["id", "description", "status"]);
    all[1].fits(json!({ "waits_for": ["a"], "status": "UNCLAIMED" }));
    let claimable = bed.json("task list --claimable");
    assert_eq!((claimable.len(), &claimable[0]["id"]), (1, &json!("a")));
    assert_eq!(bed.ok("task list --status merged"), "none\n");
    assert!(bed.ok("task list").contains("b     UNCLAIMED  -      a          second"));
    assert!(bed.ok("task show a").contains("done_when: works"));
    assert!(bed.fails(3, "task show c").contains("there is no task `c`"));
    assert!(bed.fails(1, "task add A -d x --draft").contains("task `a` exists"));
    assert!(bed.fails(1, "task add c -d x --draft --after d").contains("tasks[2].depends_on[0]"));
    bed.fails(2, "task add c -d x");
    bed.fails(2, "task add ../c -d x --draft");
}

#[test]
fn a_specification_that_does_not_exist_is_named_when_files_are_looked_for() {
    let bed = Bed::empty();
    bed.ok("board init");
    bed.write_file("s.md", "# A\n");
    for line in [
        "board goal set g -d x --spec g.md",
        "task add a -d x --spec nope/a.md#part --done-when y",
        "task add b -d x --spec s.md#a --done-when y",
        "task add c -d x --spec https://example.org/c.md --done-when y",
        "task new d --review --files d.md text",
        "task add e -d x --draft",
    ] {
        let is_missing = ["g.md", "nope/", "d.md"].iter().any(|file| line.contains(file));
        assert_eq!(bed.ok(line).contains("\nthere is no file "), is_missing, "{line}");
    }
    let found = bed.run("board validate --worktrees");
    found.ends(4);
    let found = found.stdout;
    for path in ["goal.spec_ref: there is no file g.md", "tasks[0].spec_ref", "tasks[3].spec_ref"] {
        assert!(found.contains(path), "{path}: {found}");
    }
    found.lacks(["tasks[1]", "tasks[2]"]);
}

#[test]
fn a_blocked_task_is_superseded() {
    let bed = bed();
    assert!(bed.fails(1, "task supersede a --by b --reason r").contains("its status is UNCLAIMED"));
    assert_eq!(bed.ok("task block a --reason stuck --question why?"), "a BLOCKED\n");
    assert!(bed.fails(1, "task supersede a --by b --reason r").contains("depends on itself"));
    bed.ok("task add c -d third --spec s.md --done-when works");
    assert_eq!(bed.object("task supersede a --by c --reason r")["superseded_by"], json!(["c"]));
    assert_eq!(bed.object("task show b")["depends_on"], json!(["c"]));
    bed.object("board show").fits(json!({ "revision": 5, "controls": [] }));
    assert!(bed.ok("board show").contains("3 tasks, revision 5: 2 UNCLAIMED, 1 SUPERSEDED"));
    let log = bed.json("log --type board.*");
    assert_eq!(log.len(), 5);
    assert_eq!(log[4]["data"]["steps"][0]["what"], "task.superseded");
}

#[test]
fn validate_lists_all_violations_by_field() {
    let bed = bed();
    assert!(bed.ok("board validate").ends_with("is valid\n"));
    let ran = bed.run("board validate --worktrees");
    assert_eq!((ran.code, ran.stdout.lines().count()), (4, 2), "{ran:?}");
    let broken = text(&bed).replace("status: UNCLAIMED", "status: CLAIMED");
    bed.write_file(".ensemble/state.yaml", broken);
    let ran = bed.run("board validate --json");
    let object: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &object["valid"], &object["count"]), (4, &json!(false), &json!(7)));
    assert!(bed.fails(4, "task list").contains("hint: `ensemble board edit` repairs it"));
    bed.write_file(".ensemble/state.yaml", "a: *x\n");
    let ran = bed.run("board validate");
    assert_eq!((ran.code, ran.stdout.split(':').next()), (4, Some("line 1, column 4")), "{ran:?}");
    std::fs::remove_file(bed.project().join(".ensemble/state.yaml")).unwrap();
    assert!(bed.fails(3, "board validate").contains("`ensemble board init`"));
}

#[test]
fn an_edit_becomes_the_board_or_is_kept() {
    let bed = bed();
    assert_eq!(edit(&bed, "true").stdout, "not changed\n");
    let ran = edit(&bed, "sed -i 's/^tasks:/# ours\\ntasks:/'");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "changed, revision 3\n"), "{ran:?}");
    assert!(text(&bed).contains("# ours\ntasks:"));
    assert_eq!(kept(&bed).len(), 0);

    let before = text(&bed);
    let ran = edit(&bed, "sed -i 's/UNCLAIMED/CLAIMED/'");
    ran.ends(4).says(["tasks[0].assigned_to: is missing", "the board is as it was; your copy is"]);
    assert_eq!((text(&bed), kept(&bed).len()), (before, 1));

    let program = crate::bed::program().display();
    let ran = edit(
        &bed,
        &format!("f() {{ sed -i 's/first/1st/' $1; {program} task add x -d x --draft; }}; f"),
    );
    ran.ends(1).says(["the board has changed since"]);
    assert!(text(&bed).contains("id: x") && !text(&bed).contains("1st"));
    assert_eq!(kept(&bed).len(), 2);
    assert!(edit(&bed, "false").stderr.contains("the editor failed"));
    bed.fails(2, "board edit");
}

#[test]
fn the_circuit_breaker_stops_the_team_until_a_person_resumes() {
    let bed = bed();
    assert_eq!(bed.object("board analyze")["verdict"], "OK");
    let two = "anomalies: [{type: workaround, task: a}, {type: workaround, task: b}]";
    edit(&bed, &format!("sed -i 's/^anomalies: .*/{two}/'")).ends(0);
    let state = bed.project().join(".ensemble");
    assert_eq!(bed.object("board analyze --dry-run")["verdict"], "TRIGGERED");
    assert!(!state.join("CHECKPOINT").exists());
    assert!(bed.ok("board analyze").contains("WorkaroundPattern (ARCHITECTURE_FLAW): 2 anomalies"));
    bed.ok("board analyze");
    std::fs::read_to_string(state.join("circuit_breaker_report.md")).unwrap().has(["a, b"]);
    assert!(bed.ok("board show").starts_with("CHECKPOINT since 20"));
    std::fs::remove_file(state.join("CHECKPOINT")).unwrap();
    bed.ok("init");
    let tripped = "CHECKPOINT was removed without a decision";
    assert!(bed.ok("status").contains(tripped), "agents work on");
    assert_eq!(bed.ok("board analyze --resume"), "resumed\n");
    assert!(!state.join("CHECKPOINT").exists() && !bed.ok("status").contains(tripped));
    assert_eq!(bed.ok("board analyze"), "no pattern in 0 anomalies\n");
    assert!(bed.fails(1, "board analyze --resume").contains("is not triggered"));
}
