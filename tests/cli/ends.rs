//! How a task is handed out and ends, by its holder or its last one, and the events that are recorded.

use std::fs;

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

fn task(bed: &Bed, task: &str) -> String {
    bed.ok(&format!("send --to coders --type task --task {task} -m work"));
    bed.object("recv --as w1 --mailbox coders")["id"].as_str().unwrap().to_owned()
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.add_mailboxes(&["w2", "coders"]);
    bed
}

#[test]
fn a_report_settles_its_message_and_settling_it_afterwards_is_no_mistake() {
    let bed = bed();
    let id = task(&bed, "t-1");
    let said = bed.object("report t-1 --status success --lint off --as w1");
    assert_eq!(said["settled"], json!([id]));
    let said = bed.ok(&format!("settle {id} --as w1"));
    assert_eq!(said, format!("{id} was settled by the report of t-1\n"));
    let again = bed.object(&format!("settle {id} --as w1 --epoch 1"));
    again.fits(json!({ "state": "settled", "already_settled": true }));
    bed.fails(3, "recv --as w1 --mailbox coders");
    assert_eq!(bed.json("log --type task_complete").len(), 1);
    bed.ok("log replay --strict");
}

#[test]
fn the_last_holder_settles_a_message_whose_lease_is_over() {
    let bed = bed();
    let id = task(&bed, "t-1");
    // As an observer that takes a message back from a silent holder.
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.fails(1, &format!("settle {id} --as w2")).has(["is not held: it is queued"]);
    bed.ok(&format!("settle {id} --as w1"));
    bed.fails(3, "recv --as w2 --mailbox coders");

    let id = task(&bed, "t-2");
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.ok("recv --as w2 --mailbox coders");
    bed.fails(1, &format!("settle {id} --as w1")).has(["held by w2, not by w1"]);
    bed.ok(&format!("mailbox release {id} --as w2 --mailbox coders"));
    let refused = bed.fails(1, &format!("settle {id} --as w1"));
    assert!(refused.contains("it is queued"), "another delivery has begun since: {refused}");
    bed.ok("log replay --strict");
}

#[test]
fn a_task_that_was_reported_is_withdrawn_from_its_next_holder() {
    let bed = bed();
    let id = task(&bed, "t-1");
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.ok("recv --as w2 --mailbox coders");
    bed.ok("report t-1 --status success --lint off --as w1");
    bed.object("recv --as w2").fits(json!({ "type": "mail.withdrawn", "causation_id": *id }));
    let said = bed.ok(&format!("settle {id} --as w2 --epoch 2"));
    assert_eq!(said, format!("{id} was settled by the report of t-1\n"));
    assert_eq!(bed.json("log --type task_complete").len(), 1, "it has ended once");
    bed.ok("log replay --strict");
}

#[test]
fn recv_says_how_long_it_holds_how_many_wait_and_the_commands_that_go_on() {
    let bed = bed();
    for n in 1..=3 {
        bed.ok(&format!("send --to w1 --type task --task t-{n} -m work"));
    }
    let got = bed.object("recv --as w1");
    let id = got["id"].as_str().unwrap();
    assert_eq!(got["waiting"], 2);
    got["held"].as_str().unwrap().begins("for 5m, until you report or settle");
    let settle = got["commands"]["settle"].as_str().unwrap();
    let short = settle.strip_prefix("ensemble settle ").unwrap().strip_suffix(" --as w1").unwrap();
    assert!(id.starts_with(short) && short.len() < id.len(), "{settle}");
    // Each is run as it is printed.
    for verb in ["extend", "release"] {
        let line = got["commands"][verb].as_str().unwrap().strip_prefix("ensemble ").unwrap();
        bed.ok(line);
    }
    bed.ok("recv --as w1").has(["2 more wait: `ensemble recv --as w1`\n"]);
    let settled = bed.ok(&format!("settle {id} --as w1"));
    assert_eq!(settled, format!("settled {id}\n2 more wait: `ensemble recv --as w1`\n"));
    bed.ok("recv --as w1").has(["Done: ensemble report t-2 --status success"]);
    bed.ok("send --to coders -m x");
    let shared = bed.object("recv --as w1 --mailbox coders");
    let release = shared["commands"]["release"].as_str().unwrap();
    bed.ok(release.strip_prefix("ensemble ").unwrap());
    bed.ok("recv --as w1");
    bed.ok("recv --as w2 --mailbox coders").lacks(["more wait"]);
}

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
        let found = (of(&bed, "task_complete").len(), of(&bed, "task_failed").len());
        assert_eq!(found, ended, "{what}");
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

#[test]
fn a_task_is_mail_a_step_or_a_task_of_the_board() {
    let bed = Bed::new();
    bed.object("task new login --to w1 test").fits(json!({ "kind": "mail", "mailbox": "w1" }));
    bed.object("recv --as w1").fits(json!({ "type": "task", "task_id": "login" }));
    let step = bed.object("task new form --to w1 --files src/form.rs green");
    assert_eq!(step["kind"], "step");
    bed.ok("step list form").has(["w1"]);
    bed.ok("board init");
    bed.write_file("spec.md", "as it is\n");
    let board = bed.object("task new logout --review --files spec.md build");
    board.fits(json!({ "kind": "board", "status": "UNCLAIMED" }));
    bed.ok("task new later --after logout --files spec.md build");
    assert!(bed.ok("task list").contains("later"));
    // What cannot be meant.
    bed.fails(2, "task new x text");
    bed.fails(2, "task new x --review text");
    bed.fails(2, "task new x --to w1 --after logout --files spec.md text");
    assert!(bed.fails(3, "task new x --to absent text").contains("no mailbox"));
}
