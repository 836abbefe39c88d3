//! Requests of a team whose mailboxes are on a real NATS server: hosts ask, answer, wait and remind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ensemble_core::message::Name;
use ensemble_nats::NatsTransport;
use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _, end, watch};
use crate::conversation::member;
use crate::mcp_client::Mcp;
use crate::nats_server::{PATIENCE, Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

fn hosts(server: &Server, mailboxes: &[&str]) -> (Bed, Bed) {
    let team = fresh_team();
    let (near, far) = (bed_on(server, &team), bed_on(server, &team));
    for mailbox in mailboxes {
        // Some exist from the beginning.
        let _ = near.run(&format!("mailbox add {mailbox}"));
    }
    (near, far)
}

#[test]
fn a_plan_is_reviewed_on_another_host_and_its_task_waits_for_it() {
    let server = Server::start();
    let (near, far) = hosts(&server, &["w1", "lead"]);
    near.write_file("plan.md", "1. think\n");
    far.ok("send --to w1 --as lead --task risky -m work");
    let submitted = near.object("request plan plan.md --as w1 --to lead --task risky --id p1");
    submitted.fits(json!({ "request_id": "p1", "state": "pending" }));
    far.fails(3, "recv --as w1").has(["task risky is gated: plan p1 (round 1) waits for lead"]);
    assert_eq!(far.object("recv --as lead")["type"], "plan_approval_request");
    let listed = far.json("request list --pending");
    assert_eq!((listed.len(), &listed[0]["request_id"]), (1, &json!("p1")));
    let refused = near.fails(1, "request answer p1 --approve --as w1");
    refused.has(["a requester may not decide its own request"]);
    let waiter = near.start("request list p1");
    assert_eq!(end(waiter).code, 0);
    far.ok("request answer p1 --reject --feedback smaller --as lead");
    near.fails(1, "request answer p1 --approve --as lead").has(["was rejected by lead at"]);
    let again =
        near.start("request plan plan.md --as w1 --to lead --task risky --id p2 --wait 60s");
    while far.json("request list --pending").is_empty() {
        std::thread::sleep(LOOK_INTERVAL);
    }
    far.ok("request answer p2 --approve --as lead");
    assert_eq!(end(again).code, 0);
    let types = |bed: &Bed| {
        let received: Value = bed.object("recv --as w1");
        received["type"].as_str().unwrap().to_owned()
    };
    let mut all = [types(&far), types(&near), types(&far)];
    all.sort();
    assert_eq!(all, ["message", "plan_approval_response", "plan_approval_response"]);
}

#[test]
fn the_watchers_of_two_hosts_expire_a_question_once_and_go_on_after_the_server_was_killed() {
    let server = Server::start();
    let (near, far) = hosts(&server, &["w1", "lead", "conductor"]);
    near.ok("request ask plan_approval lead what --as w1 --id q1 --deadline 1s");
    server.kill();
    let watchers = [&near, &far].map(|bed| Running(bed.start("watch")));
    server.run();
    server.answers();
    let start = Instant::now();
    let closed = || {
        let listed = near.run("request list q1 --json");
        serde_json::from_str::<Value>(&listed.stdout).is_ok_and(|entry| entry["state"] == "expired")
    };
    while !closed() {
        assert!(start.elapsed() < PATIENCE, "no watcher has expired it");
        std::thread::sleep(LOOK_INTERVAL);
    }
    let told = |mailbox: &str, kind: &str| {
        let start = Instant::now();
        loop {
            let received = far.run(&format!("recv --as {mailbox} --json"));
            if let Ok(message) = serde_json::from_str::<Value>(&received.stdout) {
                assert_eq!(message["type"], kind);
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{mailbox} hears nothing");
            std::thread::sleep(LOOK_INTERVAL);
        }
    };
    told("conductor", "request.expired");
    told("w1", "plan_approval_response");
    for mailbox in ["conductor", "w1"] {
        far.fails(3, &format!("recv --as {mailbox}"));
    }
    drop(watchers);
    // A host's log may have the other's records, too.
    let expired: BTreeSet<String> = [&near, &far]
        .iter()
        .flat_map(|bed| {
            let lines = bed.ok("log --type request.expired --json");
            let records: Vec<Value> =
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            records.into_iter().map(|it| format!("{} {}", it["session_id"], it["seq"]))
        })
        .collect();
    assert_eq!(expired.len(), 1, "one host has recorded it: {expired:?}");
}

#[test]
fn a_worker_on_another_host_takes_its_assignment() {
    let server = Server::start();
    for is_buried in [false, true] {
        let (near, far) = hosts(&server, &["w1"]);
        near.add_config("readiness: {wait: 60, retry: 1}\nladder: {phase: 60, ceiling: 0}\n");
        near.write_file("task.md", "count the lines\n");
        let assigning = near.start("assign w1 -f task.md --task t1 --until settled --json");
        // It is asked where it is assigned from, and answers there.
        let asked = near.project().join(".ensemble/ready/w1.ping");
        let start = Instant::now();
        while !asked.exists() {
            assert!(start.elapsed() < PATIENCE, "no agent asks");
            std::thread::sleep(LOOK_INTERVAL);
        }
        near.write_file(".ensemble/ready/w1@1.pong", "");
        let taken = far.object("recv --as w1 --wait 60s");
        taken.fits(json!({ "id": "t1.1", "task_id": "t1", "body": "count the lines\n" }));
        let records = |bed: &Bed, kind: &str| {
            bed.run(&format!("log --type {kind} --json")).stdout.lines().count()
        };
        let ended_by = match is_buried {
            true => {
                eventually("who assigns it sees the ack", || records(&near, "task_start") == 1);
                let letter = json!({ "id": "t1.1", "reason": "not for us" });
                Mcp::of(&far, "w1").object("dead_letter", &letter);
                "task_failed"
            }
            false => {
                far.ok("settle --as w1 t1.1");
                "task_complete"
            }
        };
        let done = end(assigning);
        assert_eq!(done.code == 0, !is_buried, "{done:?}");
        assert_eq!([&near, &far].map(|bed| records(bed, ended_by)), [0, 1], "one host records it");
        if !is_buried {
            let told: Value = serde_json::from_str(&done.stdout).unwrap();
            told.fits(json!({ "id": "t1.1", "state": "settled" }));
        }
    }
}

#[test]
fn a_worker_is_pinged_by_the_watcher_of_the_host_that_has_it() {
    let (server, team) = (Server::start(), fresh_team());
    let (near, far) = (bed_on(&server, &team), bed_on(&server, &team));
    near.add_config("readiness: {wait: 60, retry: 1}\n");
    member(&far, "w1");
    let _watcher = watch(&far);
    let servers = NatsTransport::connect(&server.options(&team)).unwrap();
    let worker = Name::new("w1").unwrap();
    eventually("its host has its name", || servers.host_of_member(&worker).unwrap().is_some());
    let pinging = near.start("agent ping w1");
    let asked = far.project().join(".ensemble/ready/w1.ping");
    eventually("that host asks it", || asked.exists());
    far.write_file(".ensemble/ready/w1@1.pong", "");
    let answered = end(pinging);
    assert_eq!((answered.code, &*answered.stdout), (0, "w1 is ready (ping 1)\n"), "{answered:?}");
}

#[test]
fn the_tools_for_mail_and_requests_work_from_host_to_host() {
    let server = Server::start();
    let (near, far) = hosts(&server, &["w1", "lead"]);
    let (mut worker, mut lead) = (Mcp::of(&near, "w1"), Mcp::of(&far, "lead"));
    let plan = json!({ "plan": "1. think\n", "to": "lead", "task_id": "risky" });
    let submitted = worker.object("plan_approval", &plan);
    let id = submitted["request_id"].as_str().unwrap().to_owned();
    let inbox = lead.object("inbox", &json!({}));
    assert_eq!(inbox["messages"][0]["type"], "plan_approval_request", "{inbox}");
    let message = inbox["messages"][0]["id"].clone();
    let taken = lead.object("recv", &json!({ "id": message }));
    taken.fits(json!({ "correlation_id": id, "epoch": 1 }));
    assert_eq!(lead.object("recv", &json!({ "id": message }))["epoch"], 1, "it is shown again");
    far.ok("send --to w1 --as lead --task risky --id work -m begin");
    worker.call("recv", &json!({ "id": "work" })).has(["risky"]);
    let reviewed = lead
        .object("plan_approval", &json!({ "request_id": id, "approve": true, "feedback": "go" }));
    assert_eq!(reviewed["state"], "approved");
    // The decision settles the question.
    assert!(!lead.call("heartbeat", &json!({})).contains(message.as_str().unwrap()));
    assert_eq!(worker.object("recv", &json!({ "id": "work" }))["body"], "begin");
    assert_eq!(near.object(&format!("request list {id}"))["state"], "approved");
    let sent = worker.object("send", &json!({ "to": "lead", "message": "done" }));
    assert_eq!(far.object("recv --as lead")["id"], sent["id"]);
}
