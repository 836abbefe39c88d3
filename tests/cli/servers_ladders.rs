//! Ladders of a team whose mailboxes are on a real NATS server. One host keeps the files of a ladder, and its
//! watcher runs it.

use serde_json::Value;

use crate::assign::{NEVER, Team};
use crate::bed::{Bed, Running, SaidText as _, end, land, objects, watch};
use crate::conversation::member;
use crate::ladders::{ladder, told};
use crate::nats_server::{Server, fresh_team};
use crate::servers::{bed_on, one_host, two_hosts};
use crate::tmux_support::eventually;

const HASTY: &str = "ladder: {phase: 1, ceiling: 0}\n";
/// Two seconds a phase: longer than the pause that a pane is given between two lines.
const IN_PANE: &str = "ladder: {phase: 2, ceiling: 0}\n";

/// What this host itself has recorded; `log` has the records of all hosts.
fn records(bed: &Bed, kind: &str) -> Vec<Value> {
    let logs = std::fs::read_dir(bed.project().join(".ensemble/logs")).unwrap();
    let sessions = logs.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let text: String = sessions.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    objects(&text).into_iter().filter(|record| record["type"] == kind).collect()
}

fn phases(bed: &Bed) -> Vec<Value> {
    records(bed, "ladder.phase").iter().map(|record| record["data"]["phase"].clone()).collect()
}

#[test]
fn of_two_watchers_one_runs_the_ladder_of_a_task_and_goes_on_after_it_was_killed() {
    let server = Server::start();
    let team = fresh_team();
    let hosts = [bed_on(&server, &team), bed_on(&server, &team)];
    for host in &hosts {
        host.add_config(HASTY);
    }
    hosts[0].ok("mailbox add w1");
    let mut watchers: Vec<Running> = hosts.iter().map(watch).collect();
    hosts[1].ok("send --to w1 --as lead --type task --task t1 -m count");
    let climbs = |host: &&Bed| ladder(host, "t1").is_some_and(|l| l["phase"].as_u64() > Some(0));
    eventually("a phase has begun", || hosts.iter().any(|host| climbs(&host)));
    let running = hosts.iter().position(|host| climbs(&host)).unwrap();
    drop(watchers.remove(running));
    let (here, other) = (&hosts[running], &hosts[1 - running]);
    let before = ladder(here, "t1").unwrap();
    let _again = watch(here);
    eventually("it is escalated", || records(here, "escalation").len() == 1);
    assert!(before["phase"].as_u64() >= Some(1), "{before}");
    assert_eq!(phases(here), [1], "no phase twice, and without a pane no key");
    eventually("the conductor has mail", || {
        here.run("inbox conductor --json").stdout.contains("report.escalation")
    });
    assert_eq!((phases(other).len(), records(other, "escalation").len()), (0, 0));
    assert_eq!(told(other).len(), 1);
    // An ack after the escalation is recorded as late.
    other.ok("recv --as w1");
    eventually("the late ack is seen", || records(here, "ladder.late_ack").len() == 1);
}

#[test]
fn a_task_that_is_received_on_a_server_ends_its_ladder() {
    let (_server, bed) = one_host();
    bed.add_config("ladder: {phase: 600}\n");
    bed.ok("mailbox add w1");
    let _watcher = watch(&bed);
    bed.ok("send --to w1 --as lead --type task --task t1 --id first -m count");
    bed.ok("send --to w1 --as lead --type task --task t2 --id second -m count");
    bed.ok("send --to w1 --as lead --id letter -m hello");
    eventually("one ladder runs", || ladder(&bed, "t1").is_some_and(|l| l["state"] == "open"));
    eventually("one waits behind", || ladder(&bed, "t2").is_some_and(|l| l["state"] == "behind"));
    assert_eq!(bed.object("recv --as w1")["id"], "first");
    eventually("it is acked", || records(&bed, "task_start").len() == 1);
    assert_eq!(ladder(&bed, "t2").unwrap()["state"], "behind", "the worker holds a task");
    bed.ok("settle first --as w1");
    eventually("the next one runs", || ladder(&bed, "t2").is_some_and(|l| l["state"] == "open"));
    assert_eq!(records(&bed, "ladder.begun").len(), 2, "a letter has none");
}

#[test]
fn an_ack_file_receives_the_task_on_the_server_and_a_report_settles_it() {
    let (_server, bed) = one_host();
    bed.add_config("ladder: {phase: 600}\n");
    bed.ok("mailbox add w1");
    let _watcher = watch(&bed);
    land(&bed, "ack/typo.ack", "w1\n");
    eventually("its author learns that it fits no task", || {
        bed.run("inbox w1 --json").stdout.contains("report.rejected")
    });
    // An ack may land before its task.
    land(&bed, "ack/t1.ack", "w1\n");
    eventually("it is read", || records(&bed, "ack.received").len() == 2);
    bed.ok("send --to w1 --as lead --type task --task t1 --id first -m count");
    eventually("it is received", || bed.run("inbox w1 --json").stdout.contains("acked"));
    // It has begun only if the watcher saw the task before it received it.
    eventually("its ladder has ended", || ladder(&bed, "t1").is_none());
    assert_eq!(records(&bed, "ack.received")[2]["data"]["lease"], "w1/first@w1@1");
    land(&bed, "reports/t1-completed.yaml", "task_id: t1\nstatus: success\n...\n");
    eventually("it is settled", || !bed.run("inbox w1 --json").stdout.contains("first"));
}

#[test]
fn the_ladder_runs_where_the_pane_of_its_reader_is() {
    let server = Server::start();
    let name = fresh_team();
    let config =
        format!("transport: {}\nnats: {{team: {name}, patience: 120}}\n{IN_PANE}", server.url());
    let other = bed_on(&server, &name);
    other.add_config(IN_PANE);
    other.ok("mailbox add w1");
    let team = Team::new(&config, "touch", NEVER);
    let _far = watch(&other);
    other.ok("send --to w1 --as lead --type task --task t1 -m count");
    eventually("the other host has taken it up", || ladder(&other, "t1").is_some());
    let near = watch(&team.bed);
    eventually("it is escalated", || team.records("escalation").len() == 1);
    drop(near);
    assert_eq!(phases(&team.bed), [1, 2, 3]);
    assert!(ladder(&other, "t1").is_none(), "the host without a reader has left it");
    assert_eq!(records(&other, "escalation").len(), 0);
    assert!((4..=5).contains(&team.nudges()), "{:?}", team.tmux.received());
}

#[test]
fn a_task_that_no_worker_takes_is_given_up_by_dispatch_though_other_hosts_see_its_mailbox() {
    let (_server, [bed, other]) = two_hosts();
    let times = format!("readiness: {{wait: 60}}\n{HASTY}");
    bed.add_config(&times);
    other.add_config(&times);
    bed.ok("mailbox add worker-1");
    let _watchers = [watch(&bed), watch(&other)];
    bed.write_file("i.yaml", "type: start_workers\ntasks:\n- {id: a, instruction: count}\n...\n");
    bed.ok("agent instruct i.yaml");
    let dispatch = bed.start("task dispatch --once --json");
    let asked = bed.project().join(".ensemble/ready/worker-1.ping");
    eventually("the worker is asked", || asked.exists());
    bed.write_file(".ensemble/ready/worker-1@1.pong", "");
    let done = end(dispatch);
    let summary: Value = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(summary["failed_tasks"], 1, "{summary}");
    summary["task_results"][0]["summary"].as_str().unwrap().has(["worker-1 did not take it"]);
    assert_eq!(records(&other, "escalation").len(), 0, "one host tells");
    assert_eq!(bed.json("dead list").len(), 1, "its message is taken back");
}

/// The host of the reader takes the ladder over, and alone knows how it ends.
#[test]
fn a_wait_ends_with_a_ladder_that_another_host_runs() {
    let (_server, [near, far]) = two_hosts();
    near.add_config("readiness: {wait: 120}\nladder: {phase: 600}\n");
    far.add_config(HASTY);
    let _ = near.run("mailbox add conductor");
    let change = |worker: &str, from: &str, to: &str| {
        let file = format!(".ensemble/roster/{worker}.yaml");
        let text = far.read_file(&file).replace(&format!("state: {from}"), &format!("state: {to}"));
        far.write_file(&file, text);
    };
    for worker in ["worker-1", "worker-2"] {
        member(&far, worker);
        change(worker, "up", "shutdown");
    }
    let _watcher = watch(&far);
    let tasks = "tasks:\n- {id: a, instruction: count, worker: worker-2}\n";
    near.write_file("i.yaml", format!("type: start_workers\n{tasks}...\n"));
    near.ok("agent instruct i.yaml");
    let waits = [
        ("worker-1", "assign worker-1 count --task t1", "escalated"),
        ("worker-2", "task dispatch --once", "worker-2 did not take it"),
    ];
    let waiting = waits.map(|(worker, line, said)| {
        let waiting = near.start(&format!("{line} --json"));
        let asked = near.project().join(format!(".ensemble/ready/{worker}.ping"));
        eventually("the worker is asked", || asked.exists());
        near.write_file(format!(".ensemble/ready/{worker}@1.pong"), "");
        eventually("the task is stored", || !near.json(&format!("inbox {worker}")).is_empty());
        change(worker, "shutdown", "up");
        (waiting, said)
    });
    for (waiting, said) in waiting {
        end(waiting).shows([said]);
    }
    assert_eq!(records(&far, "escalation").len(), 2, "they ran there");
    assert_eq!(records(&near, "escalation").len(), 0, "one host tells");
}
