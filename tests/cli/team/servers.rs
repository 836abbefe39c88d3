//! A team whose mailboxes are on a real NATS server. The request to leave comes from another host.
//! What an agent has in its hands is seen on its own host.
use std::io::{BufRead as _, BufReader};
use std::thread;

use serde_json::{Value, json};

use super::hooked::hooked;
use super::{Team, kill};
use crate::bed::{Bed, JsonMembers as _, Running, watch};
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

/// A team on this server that is up, with a mailbox there for each worker; and another host.
fn up_on(server: &Server, workers: &[&str]) -> (Team, Bed) {
    let name = fresh_team();
    let config = format!(
        "poll_interval: 1\ntransport: {}\nnats: {{team: {name}, patience: 20}}\n",
        server.url()
    );
    let (team, other) = (Team::with(workers, &config), bed_on(server, &name));
    team.up();
    for worker in workers {
        team.wait_for_puppet(worker);
        // The watcher there makes its mailbox on the server.
        eventually("it has a mailbox", || other.run("mailbox list").stdout.contains(worker));
    }
    (team, other)
}

#[test]
fn who_is_asked_on_another_host_leaves_and_who_has_gone_is_not_waited_for() {
    let Some(server) = Server::current() else { return };
    let (team, asking) = up_on(&server, &["worker-1", "worker-2"]);
    for (worker, id) in [("worker-1", "go-1"), ("worker-2", "go-2")] {
        let line = format!("request shutdown {worker} --as operator --id {id} --deadline 1h");
        assert_eq!(asking.object(&line)["state"], "pending");
    }
    // One agrees and ends; the other one ends without a word.
    team.tell("worker-1", "$E request answer go-1 --approve; kill $$");
    kill(team.pane("worker-2").pid);
    for (worker, id, state) in [("worker-1", "go-1", "approved"), ("worker-2", "go-2", "expired")] {
        eventually(&format!("{worker} has left"), || {
            asking.object(&format!("request list {id}"))["state"] == state
                && team.member(worker)["state"] == "shutdown"
        });
    }
    let mut how: Vec<String> = team
        .records("worker_release")
        .iter()
        .map(|record| record["how"].as_str().unwrap_or_default().to_owned())
        .collect();
    how.sort();
    assert_eq!(how, ["approved", "forced"]);
    asking.run("request shutdown worker-1 --as operator --id go-1 --wait 60s").ends(0);
    team.bed.ok("down --force");
}

#[test]
fn an_agent_that_ends_with_a_message_of_the_servers_raises_an_alarm() {
    let Some(server) = Server::current() else { return };
    let (team, other) = up_on(&server, &["worker-1"]);
    let _ = other.run("mailbox add conductor");
    other.ok("send --as operator --to worker-1 --id work --task task-7 -m work");
    assert_eq!(team.order("worker-1", "$E recv --wait 60s").code, 0);
    eventually("its host has seen that it holds the task", || {
        team.member("worker-1")["tasks"] == json!(["task-7"])
    });
    kill(team.pane("worker-1").pid);
    eventually("the conductor is told on the other host", || {
        other.json("inbox conductor").iter().any(|row| row["type"] == "board.alarm")
    });
    eventually("the message waits again", || {
        other.json("inbox worker-1").iter().any(|row| row["state"] == "queued")
    });
    team.bed.ok("down --force");
}

#[test]
fn what_an_agent_holds_and_waits_for_on_a_server_is_its_state() {
    let Some(server) = Server::current() else { return };
    let (team, other) = up_on(&server, &["worker-1"]);
    other.ok("mailbox add lead");
    let is_recorded = |state: &str, why: &str| {
        eventually(&format!("the watcher has seen it {state}: {why}"), || {
            let all = team.records("agent.state");
            all.iter().any(|r| r["to"] == state && r["why"].as_str().unwrap().contains(why))
        });
    };
    assert_eq!(team.wait_for_state("worker-1", "idle")["tasks"], json!([]));
    other.ok("send --as lead --to worker-1 --id work --task task-7 -m work");
    assert_eq!(team.member("worker-1")["unread"], 1);
    assert_eq!(team.order("worker-1", "$E recv --wait 60s").code, 0);
    let working = team.member("worker-1");
    assert_eq!((&working["state"], &working["why"]), (&json!("working"), &json!("holds task-7")));
    assert_eq!((&working["tasks"], &working["unread"]), (&json!(["task-7"]), &json!(0)));
    is_recorded("working", "holds task-7");
    team.order("worker-1", "$E request ask plan_approval lead what --id q1").ends(0);
    let waiting = team.member("worker-1");
    assert_eq!(waiting["state"], "waiting", "{waiting}");
    is_recorded("waiting", "lead to decide on its plan approval");
    // Its panes are here also while the server is away.
    server.kill();
    team.bed.run("team worker-1").ends(0).shows(["worker-1", "the servers are away"]);
}

/// As `recv` and all other verbs do.
#[test]
fn no_host_sends_under_the_name_of_an_agent_of_another_one() {
    let Some(server) = Server::current() else { return };
    let (team, other) = up_on(&server, &["worker-1"]);
    other.ok("mailbox add lead");
    eventually("the other host knows whose name it is", || {
        other.run("recv --as worker-1").stderr.contains("acts there alone")
    });
    other.run("send --to lead --as worker-1 -m trust-me").ends(1).says(["acts there alone"]);
    assert_eq!(other.json("inbox lead").len(), 0);
    team.bed.ok("down --force");
}

#[test]
#[ignore = "long"]
fn an_agent_at_its_usage_limit_keeps_what_it_holds_on_a_server() {
    let Some(server) = Server::current() else { return };
    let config = format!(
        "poll_interval: 1\ntransport: {}\nnats: {{team: {}, patience: 20}}\n",
        server.url(),
        fresh_team()
    );
    let team = hooked(&[("worker-1", "claude")], &config);
    eventually("it has a mailbox", || team.bed.run("mailbox list").stdout.contains("worker-1"));
    team.bed.ok("send --as operator --to worker-1 --id work --task task-7 -m work");
    let limit = "Claude usage limit reached. Your limit resets at teatime";
    let shown = format!("printf '\\033[H\\033[2J{limit}\\n❯ ' >/dev/tty");
    for line in ["$E recv --wait 60s", &shown] {
        let told = team.order("worker-1", line);
        assert_eq!(told.code, 0, "{line}: {told:?}");
    }
    eventually("it is parked", || !team.records("worker.parked").is_empty());
    // Its lease is five minutes long; one that works would keep it only once half of that has passed.
    eventually("its lease is extended for it", || {
        team.records("message.extended").iter().any(|record| record["id"] == "work")
    });
    let kept = team.bed.json("inbox worker-1");
    assert!(kept.iter().any(|row| row["state"] == "acked"), "{kept:?}");
    team.bed.ok("down --force");
}

#[test]
fn an_agent_of_another_host_is_seen_and_asked_and_its_name_is_its_own() {
    let Some(server) = Server::current() else { return };
    let (team, other) = up_on(&server, &["worker-1"]);
    let _watching = watch(&other);
    let row = || -> Value {
        let rows = other.json("team");
        rows.into_iter().find(|row| row["agent"] == "worker-1").unwrap_or_default()
    };
    eventually("the other host sees it idle", || row()["state"] == "idle");
    assert_eq!((&row()["came"], &row()["role"]), (&json!("remote"), &json!("worker")));
    assert!(row()["host"].as_str().unwrap().starts_with("host "), "{}", row());

    // Its name is taken, for those who merely say it and for those who would start another one.
    for line in ["recv --as worker-1", "agent start worker-1 --role worker --command cat"] {
        let refused = other.run(line);
        assert_eq!(refused.code, 1, "{line}: {refused:?}");
        refused.says(["is an agent of the team on host"]);
    }
    assert!(!other.project().join(".ensemble/tmux.sock").exists(), "no session was made for it");
    assert_eq!(team.order("worker-1", "$E inbox").code, 0, "it is itself on its own host");

    // Its own host asks it whether it is ready.
    let answer = |ping: usize| {
        eventually("it is asked", || team.records("ready.ping").len() >= ping);
        assert_eq!(team.order("worker-1", "$E agent pong worker-1 1").code, 0);
    };
    thread::scope(|scope| {
        let asking = scope.spawn(|| other.object("agent ping worker-1"));
        answer(1);
        asking.join().unwrap().fits(json!({ "ready": true, "attempt": 1 }));
    });
    thread::scope(|scope| {
        let line = "assign worker-1 work --task t9 --until acked --wait 60s";
        let assigning = scope.spawn(|| other.run(line));
        answer(2);
        assert_eq!(team.order("worker-1", "$E recv --wait 60s").code, 0);
        assigning.join().unwrap().ends(0);
    });
    eventually("the other host sees what it holds", || row()["tasks"] == json!(["t9"]));

    // What needs a person there is said here, too.
    kill(team.pane("worker-1").pid);
    let status = || other.ok("status");
    eventually("its end is seen", || status().contains("worker-1 is gone"));
    assert!(status().contains("-> on "), "{}", status());
    team.bed.ok("down --force");
    eventually("its name is free", || other.run("recv --as worker-1").code != 1);
}

const DONE: &str = "--status success --summary '1 of 1 (100%) is counted, see ensemble.yaml:1'";
const FAILED: &str = "--status failed --reason '0 of 1 (0%) is counted, see ensemble.yaml:1'";

/// Both ask the worker first, through the watcher of its host. Its reports come by mail.
#[test]
fn an_mcp_client_and_dispatch_hand_tasks_to_a_worker_of_another_host() {
    let Some(server) = Server::current() else { return };
    let (team, other) = up_on(&server, &["worker-1"]);
    let _watching = watch(&other);
    eventually("the other host sees it idle", || {
        let rows = other.json("team");
        rows.iter().any(|row| row["agent"] == "worker-1" && row["state"] == "idle")
    });
    let works_on = |ping: usize, task: &str, outcome: &str| {
        eventually("it is asked", || team.records("ready.ping").len() >= ping);
        let report = format!("$E report {task} {outcome}");
        for line in ["$E agent pong worker-1 1", "$E recv --wait 60s", &report] {
            let told = team.order("worker-1", line);
            assert_eq!(told.code, 0, "{line}: {told:?}");
        }
    };
    thread::scope(|scope| {
        let assigning = scope.spawn(|| {
            let work = json!({ "worker": "worker-1", "task_id": "t1", "instruction": "count" });
            Mcp::of(&other, "lead").object("assign", &work)
        });
        works_on(1, "t1", DONE);
        assigning.join().unwrap().fits(json!({ "state": "stored", "ready_attempt": 1 }));
    });

    let batch = "type: start_workers\ntasks:\n\
                 - {id: t2, instruction: count, worker: worker-1, retry: {attempts: 2, delay: 0}}\n...\n";
    other.write_file("i.yaml", batch);
    other.ok("agent instruct i.yaml");
    let mut dispatch = Running(other.start("task dispatch --once --json"));
    works_on(2, "t2", FAILED);
    works_on(3, "t2", DONE);
    let out = dispatch.0.stdout.take().unwrap();
    let summary: Value =
        serde_json::from_str(&BufReader::new(out).lines().next().unwrap().unwrap()).unwrap();
    let result = &summary["task_results"][0];
    result.fits(json!({ "worker_id": "worker-1", "status": "success" }));
    team.bed.ok("down --force");
}
