//! Reports of a team whose mailboxes are on a real NATS server. Some messages end at once, others by the watcher. A report
//! costs the server little.

use ensemble_nats::NatsTransport;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bed::{Bed, land, watch};
use crate::nats_server::{Server, free_port, fresh_team, monitored};
use crate::servers::{bed_on, one_host, set_patience};
use crate::tmux_support::eventually;

/// Open tasks of other agents: enough that reading each of them would be noticed.
const OTHERS: u64 = 60;

fn report(bed: &Bed, task: &str) -> Vec<serde_json::Value> {
    let done =
        bed.object(&format!("report {task} --status success --as w1 --lint off --summary done"));
    done["settled"].as_array().unwrap().clone()
}

fn hold_of_pool(bed: &Bed) {
    bed.ok("mailbox add coders");
    bed.ok("send --to coders --type task --task t --id pooled -m count");
    bed.ok("recv --as w1 --mailbox coders");
}

#[test]
fn a_report_costs_as_little_with_many_open_tasks_of_others_as_with_none() {
    let (home, monitor) = (tempfile::tempdir().unwrap(), free_port());
    let server = Server::at(home.path(), free_port(), &["-m".to_owned(), monitor.to_string()]);
    let bed = bed_on(&server, &fresh_team());
    bed.add_mailboxes(&["w1", "w2"]);
    let cost = |task: &str| {
        bed.ok(&format!("send --to w1 --type task --task {task} --id {task} -m count"));
        bed.ok("recv --as w1");
        let sent = || monitored(monitor, "/varz", "out_msgs");
        let before = sent();
        assert_eq!(report(&bed, task), [json!(task)]);
        sent() - before
    };
    let alone = cost("a");
    for number in 0..OTHERS {
        bed.ok(&format!("send --to w2 --type task --task o-{number} -m count"));
    }
    let among_others = cost("b");
    assert!(among_others < alone + OTHERS / 2, "{alone} and {among_others} messages");
}

#[test]
fn a_report_ends_a_task_of_a_shared_mailbox_at_once_or_by_the_watcher() {
    let server = Server::start();
    let alone = bed_on(&server, &fresh_team());
    hold_of_pool(&alone);
    assert_eq!(report(&alone, "t"), [json!("pooled")], "no watcher would do it");
    assert!(alone.json("inbox coders").is_empty());

    let watched = bed_on(&server, &fresh_team());
    hold_of_pool(&watched);
    let _watcher = watch(&watched);
    report(&watched, "t");
    eventually("the watcher settles it", || watched.json("inbox coders").is_empty());
    watched.ok("settle pooled --as w1 --mailbox coders");

    // A watcher that ends settles what it has read, and says that it has ended.
    let team = fresh_team();
    let left = bed_on(&server, &team);
    hold_of_pool(&left);
    let mut watcher = watch(&left);
    eventually("the watcher has reached the server", || sees_server(&left, true));
    drop_report(&left);
    let routed = || left.run("log --type file.routed --json").stdout;
    eventually("the report is routed", || routed().contains("t-completed"));
    kill_process(Pid::from_child(&watcher.0), Signal::TERM).unwrap();
    watcher.0.wait().unwrap();
    assert!(left.json("inbox coders").is_empty());
    let reports = NatsTransport::connect(&server.options(&team)).unwrap().host_reports().unwrap();
    assert!(reports[0].text.contains("\"watched\":false"), "{reports:?}");
}

fn drop_report(bed: &Bed) {
    land(bed, "reports/t-completed.yaml", "task_id: t\nworker_id: w1\nstatus: success\n...\n");
}

fn sees_server(bed: &Bed, is_connected: bool) -> bool {
    let status = std::fs::read_to_string(bed.project().join(".ensemble/watch.json"));
    status.is_ok_and(|status| status.contains(&format!("\"connected\":{is_connected}")))
}

#[test]
fn files_that_land_while_the_server_is_away_receive_and_end_their_tasks_when_it_is_back() {
    // Whether the watcher knows that it is away, and whether it is killed before it is back.
    for (is_noticed, is_killed) in [(false, false), (true, true), (false, true)] {
        let (server, bed) = one_host();
        set_patience(&bed, 1);
        hold_of_pool(&bed);
        bed.ok("mailbox add w1");
        bed.ok("send --to w1 --type task --task read -m count");
        let mut watcher = Some(watch(&bed));
        eventually("the watcher has reached the server", || sees_server(&bed, true));
        let notices = || {
            eventually("the watcher notices that it is away", || sees_server(&bed, false));
        };
        server.kill();
        if is_noticed {
            notices();
        }
        land(&bed, "ack/read.ack", "w1\n");
        drop_report(&bed);
        if is_killed {
            eventually("its message is stored here", || {
                let stored = std::fs::read_dir(bed.mailbox("dispatch/new"));
                stored.is_ok_and(|mut stored| stored.next().is_some())
            });
            drop(watcher.take());
            watcher = Some(watch(&bed));
        } else {
            notices();
        }
        server.run();
        server.answers();
        eventually("the watcher settles it", || {
            let inbox = bed.run("inbox coders --json");
            inbox.code == 0 && inbox.stdout.is_empty()
        });
        eventually("the watcher receives what the ack has read", || {
            bed.run("inbox w1 --json").stdout.contains("acked")
        });
        drop(watcher);
    }
}
