//! Ladders and dispatch of a team whose mailboxes are on a real NATS server. One host keeps the files of a ladder, and its
//! watcher runs it.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::assign::{NEVER, Team};
use crate::bed::{Bed, Running, objects, program, ran, watch};
use crate::nats_server::{Server, fresh_team};
use crate::servers::bed_on;
use crate::tmux_support::eventually;

/// For a worker that is given up soon.
const HASTY: &str = "ladder: {phase: 1, ceiling: 0}\n";
/// Two seconds a phase: longer than the pause that a pane is given between two lines.
const IN_PANE: &str = "ladder: {phase: 2, ceiling: 0}\n";

fn configure(bed: &Bed, more: &str) {
    let file = bed.project().join("ensemble.yaml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{config}{more}")).unwrap();
}

/// What this host itself has recorded; `log` has the records of all hosts.
fn records(bed: &Bed, kind: &str) -> Vec<Value> {
    let logs = std::fs::read_dir(bed.project().join(".ensemble/logs")).unwrap();
    let sessions = logs.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let text: String = sessions.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    objects(&text).into_iter().filter(|record| record["type"] == kind).collect()
}

fn ladder(bed: &Bed, task: &str) -> Option<Value> {
    let all = bed.json("status").pop()?["ladders"].as_array()?.clone();
    all.into_iter().find(|ladder| ladder["task"] == task)
}

fn phases(bed: &Bed) -> Vec<Value> {
    records(bed, "ladder.phase").iter().map(|record| record["data"]["phase"].clone()).collect()
}

/// Receives all messages of the conductor.
fn told(bed: &Bed) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(message) = bed.run("recv --as conductor --json").stdout.lines().next() {
        told.push(serde_json::from_str(message).unwrap());
    }
    told
}

#[test]
fn of_two_watchers_one_runs_the_ladder_of_a_task_and_goes_on_after_it_was_killed() {
    let server = Server::start();
    let team = fresh_team();
    let hosts = [bed_on(&server, &team), bed_on(&server, &team)];
    for host in &hosts {
        configure(host, HASTY);
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
    let server = Server::start();
    let bed = bed_on(&server, &fresh_team());
    configure(&bed, "ladder: {phase: 600}\n");
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
    let server = Server::start();
    let bed = bed_on(&server, &fresh_team());
    configure(&bed, "ladder: {phase: 600}\n");
    bed.ok("mailbox add w1");
    let _watcher = watch(&bed);
    bed.ok("send --to w1 --as lead --type task --task t1 --id first -m count");
    eventually("its ladder runs", || ladder(&bed, "t1").is_some_and(|l| l["state"] == "open"));
    let place = |content: &str, file: &str| {
        fs::write(bed.project().join("queue/tmp/file"), content).unwrap();
        fs::rename(bed.project().join("queue/tmp/file"), bed.project().join(file)).unwrap();
    };
    place("w1\n", "queue/ack/t1.ack");
    eventually("it is received", || bed.run("inbox w1 --json").stdout.contains("acked"));
    eventually("its ladder has ended", || records(&bed, "task_start").len() == 1);
    assert_eq!(records(&bed, "ack.received")[0]["data"]["lease"], "w1/first@w1@1");
    place("task_id: t1\nstatus: success\n...\n", "queue/reports/t1-completed.yaml");
    eventually("it is settled", || bed.run("inbox w1 --json").stdout.is_empty());
}

#[test]
fn the_ladder_runs_where_the_pane_of_its_reader_is() {
    let server = Server::start();
    let name = fresh_team();
    let config =
        format!("transport: {}\nnats: {{team: {name}, patience: 120}}\n{IN_PANE}", server.url());
    let other = bed_on(&server, &name);
    configure(&other, IN_PANE);
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
fn an_assign_that_is_killed_leaves_its_ladder_on_a_server_to_the_watcher() {
    let server = Server::start();
    let bed = bed_on(&server, &fresh_team());
    configure(&bed, &format!("readiness: {{wait: 120}}\n{HASTY}"));
    bed.ok("mailbox add w1");
    fs::write(bed.project().join("task.md"), "count the lines\n").unwrap();
    let assign = || {
        let assigning = bed.start("assign w1 -f task.md --task t1 --json", Stdio::null());
        let asked = bed.project().join(".ensemble/ready/w1.ping");
        eventually("the worker is asked", || asked.exists());
        fs::write(bed.project().join(".ensemble/ready/w1@1.pong"), "").unwrap();
        assigning
    };
    let assigning = Running(assign());
    eventually("a phase has begun", || {
        ladder(&bed, "t1").is_some_and(|l| l["phase"].as_u64() > Some(0))
    });
    drop(assigning);
    let _watcher = watch(&bed);
    eventually("it is escalated", || records(&bed, "escalation").len() == 1);
    assert_eq!(phases(&bed), [1]);
    // Assigned again: the attempt that was given up has ended, and this command is notified of the end.
    let done = ran(assign().wait_with_output().unwrap());
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains(r#""attempt":2"#), "{done:?}");
    assert_eq!(records(&bed, "escalation").len(), 2);
}

/// A worker that answers pings, and works off its mailbox on the server until it is stopped.
const WORKER: &str = r#"
me=$1
while [ ! -e stop ]; do
    if read -r _ worker attempt 2>/dev/null <".ensemble/ready/$me.ping"; then
        : >".ensemble/ready/$worker@$attempt.pong"
    fi
    if "$ENSEMBLE" recv --as "$me" --json >"taken.$me" 2>/dev/null; then
        field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p" "taken.$me"; }
        task=$(field task_id) attempt=$(field attempt)
        case $(field type) in task) ;; *) # advice
            "$ENSEMBLE" settle --as "$me" "$(field id)" >/dev/null
            continue ;;
        esac
        echo "$task $attempt" >>begun
        until [ -e go ]; do sleep 0.02; done
        status=success
        case $(cat "taken.$me") in *fail*) [ "$attempt" -gt 1 ] || status=failed ;; esac
        printf 'task_id: %s\nworker_id: %s\nstatus: %s\nfailure_reason: "no luck"\nsummary: "%s has done 1 of 1 (100%%), see begun:1"\n...\n' \
            "$task" "$me" "$status" "$me" >"queue/tmp/$task.$me"
        mv "queue/tmp/$task.$me" "queue/reports/$task-completed.yaml"
    fi
    sleep 0.05
done
"#;

/// Workers in a shell, who end with the test.
struct Workers<'b>(&'b Bed, Vec<Running>);

impl Workers<'_> {
    fn start<'b>(bed: &'b Bed, names: &[&str]) -> Workers<'b> {
        fs::write(bed.project().join("worker.sh"), WORKER).unwrap();
        let start = |name: &&str| {
            bed.ok(&format!("mailbox add {name}"));
            let child = std::process::Command::new("sh")
                .args(["worker.sh", name])
                .env("ENSEMBLE", program())
                .current_dir(bed.project())
                .stdin(Stdio::null())
                .spawn();
            Running(child.unwrap())
        };
        Workers(bed, names.iter().map(start).collect())
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        for file in ["stop", "go"] {
            fs::write(self.0.project().join(file), "").unwrap();
        }
        for worker in &mut self.1 {
            let _ = worker.0.wait();
        }
    }
}

#[test]
fn a_batch_is_dispatched_over_a_server_in_order_and_told_of_once_whatever_is_killed() {
    let server = Server::start();
    let team = fresh_team();
    let (bed, other) = (bed_on(&server, &team), bed_on(&server, &team));
    let times = "readiness: {wait: 60}\nladder: {phase: 600}\n";
    configure(&bed, times);
    configure(&other, times);
    let workers = Workers::start(&bed, &["worker-1", "worker-2"]);
    let _watchers = [watch(&bed), watch(&other)];
    fs::write(
        bed.project().join("i.yaml"),
        "type: start_workers\nworker_count: 2\ntasks:\n\
         - {id: a, instruction: count}\n\
         - {id: b, instruction: fail once, retry: {attempts: 2, delay: 0}}\n\
         - {id: c, instruction: count, blocked_by: [a, b]}\n\
         - {id: d, instruction: count, worker: worker-2}\n...\n",
    )
    .unwrap();
    bed.ok("agent instruct i.yaml");
    let begun = || -> Vec<String> {
        let text = fs::read_to_string(bed.project().join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let first = Running(bed.start("task dispatch --once --json", Stdio::null()));
    eventually("two are at work", || begun().len() == 2);
    drop(first);
    let second = bed.start("task dispatch --once --json", Stdio::null());
    fs::write(bed.project().join("go"), "").unwrap();
    let done = ran(second.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    let summary: Value = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(summary["completed_tasks"], 4, "{summary}");
    let mut once = begun();
    let c = once.iter().position(|line| *line == "c 1").unwrap();
    assert!(once.iter().position(|line| *line == "b 2").unwrap() < c, "{once:?}");
    once.sort_unstable();
    assert_eq!(once, ["a 1", "b 1", "b 2", "c 1", "d 1"], "none twice");
    bed.ok("task dispatch --once");
    eventually("the conductor has mail", || {
        other.run("inbox conductor --json").stdout.contains("report.summary")
    });
    let told = told(&other);
    assert_eq!(told.iter().filter(|m| m["type"] == "report.summary").count(), 1);
    drop(workers);
}

#[test]
fn a_task_that_no_worker_takes_is_given_up_by_dispatch_though_other_hosts_see_its_mailbox() {
    let server = Server::start();
    let team = fresh_team();
    let (bed, other) = (bed_on(&server, &team), bed_on(&server, &team));
    let times = format!("readiness: {{wait: 60}}\n{HASTY}");
    configure(&bed, &times);
    configure(&other, &times);
    bed.ok("mailbox add worker-1");
    let _watchers = [watch(&bed), watch(&other)];
    fs::write(
        bed.project().join("i.yaml"),
        "type: start_workers\ntasks:\n- {id: a, instruction: count}\n...\n",
    )
    .unwrap();
    bed.ok("agent instruct i.yaml");
    let dispatch = bed.start("task dispatch --once --json", Stdio::null());
    let asked = bed.project().join(".ensemble/ready/worker-1.ping");
    eventually("the worker is asked", || asked.exists());
    fs::write(bed.project().join(".ensemble/ready/worker-1@1.pong"), "").unwrap();
    let done = ran(dispatch.wait_with_output().unwrap());
    let summary: Value = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(summary["failed_tasks"], 1, "{summary}");
    let why = summary["task_results"][0]["summary"].as_str().unwrap();
    assert!(why.contains("worker-1 did not take it"), "{why}");
    assert_eq!(records(&other, "escalation").len(), 0, "one host tells");
    assert_eq!(bed.json("dead list").len(), 1, "its message is taken back");
}
