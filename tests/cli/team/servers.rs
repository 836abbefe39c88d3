//! A team whose mailboxes are on a real NATS server. The request to leave comes from another host.
//! What an agent has in its hands is seen on its own host.

use serde_json::json;

use super::{Team, kill};
use crate::bed::Bed;
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

/// A team on this server that is up, with a mailbox there for each worker; and another host.
fn up_on(server: &Server, workers: &[&str]) -> (Team, Bed) {
    let name = fresh_team();
    let config = format!(
        "poll_interval_seconds: 1\ntransport: {}\nnats: {{team: {name}, patience_seconds: 3}}\n",
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
    let server = Server::start();
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
            asking.object(&format!("requests {id}"))["state"] == state
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
    let again = asking.run("request shutdown worker-1 --as operator --id go-1 --wait 60s");
    assert_eq!(again.code, 0, "{again:?}");
    team.bed.ok("down --force");
}

#[test]
fn an_agent_that_ends_with_a_message_of_the_servers_raises_an_alarm() {
    let server = Server::start();
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
    let server = Server::start();
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
    let asked = team.order("worker-1", "$E request ask plan_approval lead what --id q1");
    assert_eq!(asked.code, 0, "{asked:?}");
    let waiting = team.member("worker-1");
    assert_eq!(waiting["state"], "waiting", "{waiting}");
    is_recorded("waiting", "plan_approval q1 by lead");
    // Its panes are here also while the server is away.
    server.kill();
    let away = team.bed.run("team worker-1");
    assert_eq!(away.code, 0, "{away:?}");
    assert!(away.stdout.contains("worker-1"), "{away:?}");
    assert!(away.stderr.contains("what the agents hold is not known"), "{away:?}");
}
