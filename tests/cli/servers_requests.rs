//! Requests of a team whose mailboxes are on a real NATS server: hosts ask, answer, wait and remind.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bed::{Bed, ran};
use crate::nats_server::{PATIENCE, Server, fresh_team};
use crate::servers::bed_on;

/// Between two looks at what a watcher does.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A watcher, which ends with the test.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hosts(server: &Server, mailboxes: &[&str]) -> (Bed, Bed) {
    let team = fresh_team();
    let (near, far) = (bed_on(server, &team), bed_on(server, &team));
    for mailbox in mailboxes {
        // Some are there from the beginning.
        let _ = near.run(&format!("mailbox add {mailbox}"));
    }
    (near, far)
}

#[test]
fn a_plan_is_reviewed_on_another_host_and_its_task_waits_for_it() {
    let server = Server::start();
    let (near, far) = hosts(&server, &["w1", "lead"]);
    std::fs::write(near.project().join("plan.md"), "1. think\n").unwrap();
    far.ok("send --to w1 --as lead --task risky -m work");
    let submitted = near.object("plan submit plan.md --as w1 --to lead --task risky --id p1");
    assert_eq!((&submitted["request_id"], &submitted["state"]), (&json!("p1"), &json!("pending")));
    let said = far.fails(3, "recv --as w1");
    assert!(said.contains("task risky is gated: plan p1 (round 1) waits for lead"), "{said}");
    let asked = far.object("recv --as lead");
    assert_eq!(asked["envelope"]["type"], "plan_approval_request");
    let listed = far.json("requests --pending");
    assert_eq!((listed.len(), &listed[0]["request_id"]), (1, &json!("p1")));
    let refused = near.fails(1, "plan review p1 --approve --as w1");
    assert!(refused.contains("nobody decides their own"), "{refused}");
    let waiter = near.start("requests p1", Stdio::null());
    assert_eq!(ran(waiter.wait_with_output().unwrap()).code, 0);
    far.ok("plan review p1 --reject --feedback smaller --as lead");
    let late = near.fails(1, "plan review p1 --approve --as lead");
    assert!(late.contains("was rejected by lead at"), "{late}");
    let again = near.start(
        "plan submit plan.md --as w1 --to lead --task risky --id p2 --wait 60s",
        Stdio::null(),
    );
    while far.json("requests --pending").is_empty() {
        std::thread::sleep(LOOK_INTERVAL);
    }
    far.ok("plan review p2 --approve --as lead");
    assert_eq!(ran(again.wait_with_output().unwrap()).code, 0);
    let types = |bed: &Bed| {
        let received: Value = bed.object("recv --as w1");
        received["envelope"]["type"].as_str().unwrap().to_owned()
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
    let watchers = [&near, &far].map(|bed| Watching(bed.start("watch", Stdio::null())));
    server.run();
    server.answers();
    let start = Instant::now();
    let closed = || {
        let listed = near.run("requests q1 --json");
        serde_json::from_str::<Value>(&listed.stdout).is_ok_and(|entry| entry["state"] == "expired")
    };
    while !closed() {
        assert!(start.elapsed() < PATIENCE, "nobody has expired it");
        std::thread::sleep(LOOK_INTERVAL);
    }
    let told = |mailbox: &str, kind: &str| {
        let start = Instant::now();
        loop {
            let received = far.run(&format!("recv --as {mailbox} --json"));
            if let Ok(message) = serde_json::from_str::<Value>(&received.stdout) {
                assert_eq!(message["envelope"]["type"], kind);
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
    let expired = |bed: &Bed| bed.ok("log --type request.expired --json").lines().count();
    assert_eq!(expired(&near) + expired(&far), 1, "one host has recorded it");
}
