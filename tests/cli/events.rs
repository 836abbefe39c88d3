//! Events in the log: what `log record` writes and refuses, and how each way in which a task ends is recorded.

use std::fs;

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

fn of(bed: &Bed, kind: &str) -> Vec<Value> {
    bed.json(&format!("log --type {kind}"))
        .into_iter()
        .map(|record| record["data"].clone())
        .collect()
}

#[test]
fn an_event_is_recorded_in_the_name_of_the_caller_unless_it_would_falsify_the_replay() {
    let bed = Bed::new();
    let line = "log record task_start task_id=task-001 worker_id=1 attempt=007 done=false --as w1";
    assert_eq!(bed.ok(line), "recorded task_start\n");
    let record = bed.json("log --type task_start").remove(0);
    let data = json!({"task_id": "task-001", "worker_id": 1, "attempt": "007", "done": false});
    record.fits(json!({ "actor": "w1", "data": data }));
    let said = bed.object("log record deploy.done host=web-3 --as w1");
    assert_eq!(said, json!({"type": "deploy.done", "actor": "w1", "data": {"host": "web-3"}}));
    bed.ok("log replay --strict");
    let id = bed.send("work");
    let before = bed.ok("log --json");
    for kind in
        ["message.settled", "board.written", "step.taken", "request.decided", "mailbox.removed"]
    {
        let said = bed.fails(1, &format!("log record {kind} id={id} mailbox=w1 epoch=1 --as w1"));
        said.has(["is written by Ensemble itself", "hint: use your own type"]);
    }
    for kind in ["session_start", "session_end", "log.continued"] {
        bed.fails(1, &format!("log record {kind} --as w1"));
    }
    for line in ["deployed", "deploy.done Key=x", "deploy.done a=1 a=2", "deploy.done x"] {
        bed.fails(2, &format!("log record {line} --as w1"));
    }
    assert!(bed.fails(2, "log record deploy.done").contains("--as"));
    assert_eq!(bed.ok("log --json"), before, "nothing was written");
    bed.ok("log replay --strict");
}

#[test]
fn each_way_to_end_a_task_is_recorded_once() {
    let bed = Bed::new();
    let mut ended = (0, 0);
    let mut check = |what: &str, complete: usize, failed: usize| {
        ended = (ended.0 + complete, ended.1 + failed);
        assert_eq!(
            (of(&bed, "task_complete").len(), of(&bed, "task_failed").len()),
            ended,
            "{what}"
        );
    };
    let take = |task: &str| {
        bed.ok(&format!("send --to w1 --type task --task {task} -m work"));
        bed.object("recv --as w1")["id"].as_str().unwrap().to_owned()
    };
    let id = take("t-1");
    bed.ok(&format!("settle {id} --as w1"));
    check("settle", 1, 0);
    let id = take("t-2");
    bed.ok("report t-2 --status failed --lint off --reason x --as w1");
    bed.ok(&format!("settle {id} --as w1"));
    check("report, then settle", 0, 1);
    assert_eq!(of(&bed, "task_failed")[0]["reason"], "x");
    let id = take("t-3");
    bed.ok(&format!("settle {id} --as w1"));
    bed.ok("report t-3 --status success --lint off --as w1");
    check("settle, then report", 1, 0);
    take("t-4");
    let id = bed.json("inbox --as w1")[0]["id"].as_str().unwrap().to_owned();
    for _ in 0..5 {
        bed.ok(&format!("mailbox release {id} --as w1"));
        let _ = bed.run("recv --as w1");
    }
    check("released until it is dead", 0, 1);
    // Without a watcher, `summary` is the first that reads what was dropped.
    let reports = bed.project().join("queue/reports");
    fs::write(reports.join("t-5-completed.yaml"), "task_id: t-5\nstatus: blocked\nworker_id: w1\n")
        .unwrap();
    let _ = bed.run("task summary --task t-5 --batch b-5 --as dispatch");
    check("summary", 0, 1);
    bed.ok("log replay --strict");
}
