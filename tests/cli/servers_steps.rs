//! Step queues of a team on servers, from host to host: mail by NATS, queues by PostgreSQL, both real.

use std::fs;

use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, end, objects, watch};
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, fresh_team};
use crate::postgres_support::Cluster;
use crate::servers::bed_on;
use crate::tmux_support::eventually;

const PLAN: &str = "
task_id: login
orchestrator: conductor
steps:
  - {agent: Tara, goal: Write a failing test, files: [tests/login.rs]}
  - {agent: Devon, goal: Make it pass, files: [src/login.rs]}
  - {agent: Tara, goal: Review it, fix_by: Devon}
";

fn host(server: &Server, team: &str, cluster: &Cluster) -> Bed {
    let bed = bed_on(server, team);
    bed.add_config(&format!("steps:\n  postgres: {}\n", cluster.address()));
    bed
}

fn hosts(server: &Server, cluster: &Cluster) -> (Bed, Bed) {
    let team = fresh_team();
    let (near, far) = (host(server, &team, cluster), host(server, &team, cluster));
    // `init` of the other host has made it, or this does.
    let _ = near.run("mailbox add conductor");
    near.ok("mailbox add Tara");
    far.ok("mailbox add Devon");
    near.write_file("plan.yaml", PLAN);
    (near, far)
}

#[track_caller]
fn submit(bed: &Bed, agent: &str, index: u32, status: &str) -> Value {
    let report = json!({
        "task_id": "login", "step_index": index, "agent": agent, "status": status,
        "summary": "src/login.rs:1", "blockers": if status == "blocked" { vec!["no database"] } else { vec![] },
    });
    let line = format!("step submit --as {agent} -f - --json");
    let ran = bed.run_with(&line, report.to_string().as_bytes());
    ran.ends(0);
    objects(&ran.stdout).remove(0)
}

#[test]
fn a_queue_is_driven_on_one_host_and_worked_on_by_two() {
    let (server, cluster) = (Server::start(), Cluster::shared());
    let (near, far) = hosts(&server, cluster);
    near.ok("step add -f plan.yaml");
    assert_eq!(far.object("step list")["task_id"], "login");
    let driver = near.start("step run login --wait 110s");

    near.ok("recv --as Tara --wait 60s");
    assert_eq!(submit(&near, "Tara", 1, "success")["status"], "COMPLETED");
    let prompt = far.ok("recv --as Devon --wait 60s --body");
    prompt.begins("ROLE: Devon\nGOAL: Make it pass");
    assert_eq!(near.object("step show login 2")["holder"], "Devon");
    let held = far.json("status");
    let devon = held.iter().find(|row| row["mailbox"] == "Devon").unwrap();
    assert_eq!(devon["held"], 1, "the prompt is held: {devon}");

    // A blocked step is reported to the orchestrator, and unblocked on the other host.
    assert_eq!(submit(&far, "Devon", 2, "blocked")["paused"], true);
    near.ok("recv --as conductor --wait 60s --body").has(["step.blocked", "no database"]);
    near.run("status --json").shows(["\"remedy\":\"unblock\""]);
    near.ok("step unblock login 2 --note mended");
    far.ok("recv --as Devon --wait 60s");
    submit(&far, "Devon", 2, "success");

    // A failed review becomes a step of the agent on the other host.
    near.ok("recv --as Tara --wait 60s");
    assert_eq!(submit(&near, "Tara", 3, "failure")["fix_step"], 4);
    far.ok("recv --as Devon --wait 60s");
    submit(&far, "Devon", 4, "success");
    near.ok("recv --as Tara --wait 60s");
    assert_eq!(submit(&near, "Tara", 3, "success")["queue_done"], true);
    end(driver).ends(0).shows(["task login: all 4 steps are done"]);
    assert!(!near.project().join(".ensemble/steps.db").exists());
}

#[test]
fn tools_and_the_watcher_of_another_host_work_on_the_queues() {
    let (server, cluster) = (Server::start(), Cluster::shared());
    let (near, far) = hosts(&server, cluster);
    near.ok("step add -f plan.yaml");
    near.ok("step next --as Tara");
    submit(&near, "Tara", 1, "success");
    let mut devon = Mcp::of(&far, "Devon");
    devon.call("next_step", &json!({})).has(["Make it pass"]);
    assert_eq!(near.object("step show login 2")["holder"], "Devon");
    let report = json!({
        "task_id": "login", "step_index": 2, "agent": "Devon", "status": "blocked", "blockers": ["no database"],
    });
    devon.call("submit_step_completion", &report);
    // The tool has sent the notice; what it leaves out, a watcher of any host sends.
    near.ok("recv --as conductor --wait 60s --body").has(["no database"]);
    let _watcher = watch(&near);
    eventually("the watcher shows the server of the queues", || {
        let status = fs::read_to_string(near.project().join(".ensemble/watch.json"));
        status.is_ok_and(|status| status.contains("postgres://127.0.0.1"))
    });
}

#[test]
fn a_server_that_is_away_makes_verbs_end_with_75_and_they_are_repeated() {
    let (server, cluster) = (Server::start(), Cluster::start());
    let (near, far) = hosts(&server, &cluster);
    near.ok("step add -f plan.yaml");
    near.ok("step next --as Tara");
    let check = |bed: &Bed| {
        let looked = bed.run("doctor --json");
        let found = objects(&looked.stdout).into_iter().find(|it| it["check"] == "step queues");
        found.unwrap_or_else(|| panic!("{looked:?}"))
    };
    assert_eq!(check(&far)["level"], "ok");
    cluster.kill();
    for line in ["step list", "step next --as Tara", "step show login 1", "step add -f plan.yaml"] {
        let away = near.run(line);
        assert_eq!((away.code, &*away.stdout), (75, ""), "{line}: {away:?}");
        assert!(away.stderr.contains("postgres://127.0.0.1"), "{line}: {away:?}");
    }
    let report =
        json!({ "task_id": "login", "step_index": 1, "agent": "Tara", "status": "success" });
    let line = "step submit --as Tara -f - --json";
    assert_eq!(near.run_with(line, report.to_string().as_bytes()).code, 75);
    assert_eq!(check(&far)["level"], "fail");
    let status = far.run("status");
    assert_eq!(status.code, 0, "the rest can be seen: {status:?}");
    cluster.run();
    near.ok("step add -f plan.yaml");
    near.ok("step next --as Tara");
    assert_eq!(submit(&near, "Tara", 1, "success")["already_submitted"], false);
    assert_eq!(submit(&near, "Tara", 1, "success")["already_submitted"], true);
    assert_eq!(far.object("step show login 1")["status"], "COMPLETED");
}

#[test]
fn mistakes_in_the_address_are_named_and_a_password_in_it_is_not_shown() {
    let bed = Bed::new();
    for (address, why) in [
        ("mysql://a@b", "is not like"),
        ("postgres://a:hush@db/x", "password_file"),
        ("postgres://a@db/x?sslmode=maybe", "`sslmode`"),
    ] {
        bed.configure(&format!("steps: {{postgres: '{address}'}}\n"));
        bed.fails(2, "step list").has(["steps.postgres", why]).lacks(["hush"]);
    }
}
