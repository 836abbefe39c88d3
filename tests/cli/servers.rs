//! A team whose mailboxes are on a real NATS server, through the command.

mod away;

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, end, watch};
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, fresh_team};
use crate::tmux_support::eventually;

/// A project whose mailboxes are on this server, with the mailbox `w1`.
pub(crate) fn bed_on(server: &Server, team: &str) -> Bed {
    let bed = Bed::empty();
    configure(&bed, server, team);
    bed.ok("init");
    bed
}

pub(crate) fn one_host() -> (Server, Bed) {
    let server = Server::start();
    let bed = bed_on(&server, &fresh_team());
    (server, bed)
}

pub(crate) fn two_hosts() -> (Server, [Bed; 2]) {
    let (server, team) = (Server::start(), fresh_team());
    let beds = [bed_on(&server, &team), bed_on(&server, &team)];
    (server, beds)
}

fn configure(bed: &Bed, server: &Server, team: &str) {
    let config = format!("transport: {}\nnats:\n  team: {team}\n  patience: 120\n", server.url());
    bed.configure(&config);
}

pub(crate) fn set_patience(bed: &Bed, seconds: u64) {
    bed.change_config(|config| {
        let (before, after) = config.split_once("patience: ").unwrap();
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{before}patience: {seconds}{after}")
    });
}

#[test]
fn the_verbs_work_from_host_to_host() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    assert!(far.json("mailbox list").iter().any(|m| m["mailbox"] == "w1"));
    let id = near.send("over there");
    let waiting = far.object("inbox w1");
    waiting.fits(json!({ "id": id, "state": "queued" }));
    far.object("recv --as w1").fits(json!({ "id": id, "epoch": 1, "body": "over there" }));
    far.fails(3, "recv --as w1");
    near.fails(1, &format!("settle --as another {id}"));
    far.ok(&format!("mailbox extend --as w1 {id} 10m"));
    far.ok(&format!("mailbox release --as w1 {id} --delay 1h"));
    far.fails(3, "recv --as w1");
    let second = near.send("again");
    far.ok("recv --as w1");
    let waiter =
        near.start(&format!("send --to w1 --id {second} -m again --until settled --wait 60s"));
    far.ok(&format!("settle --as w1 {second}"));
    assert_eq!(end(waiter).code, 0);
    let status = near.json("status");
    let w1 = status.iter().find(|row| row["mailbox"] == "w1").unwrap();
    w1.fits(json!({ "waiting": 1, "delayed": 1, "held": 0 }));
    let late = far.start("recv --as w1 --wait 60s --body");
    near.send("just in time");
    assert_eq!(end(late).stdout, "just in time");
}

#[test]
fn a_broadcast_reaches_every_host_once() {
    let (_server, [near, far]) = two_hosts();
    far.add_mailboxes(&["w1", "w2", "w3"]);
    let told = near.json("send --all stop --as w1 --id b-1");
    let reached: Vec<_> = told.iter().filter_map(|row| row["mailbox"].as_str()).collect();
    assert!(reached.contains(&"w2") && reached.contains(&"w3") && !reached.contains(&"w1"));
    // The same again is stored once.
    near.ok("send --all stop --as w1 --id b-1");
    for mailbox in ["w2", "w3"] {
        assert_eq!(far.ok(&format!("recv --as {mailbox} --body")), "stop");
        far.fails(3, &format!("recv --as {mailbox}"));
    }
    far.fails(3, "recv --as w1");
    near.run_with("send --all --as w1 -", &[0xff, 0xfe]).ends(0);
    let received = far.object("recv --as w2");
    let path = received["attachment_path"].as_str().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), [0xff, 0xfe]);
}

#[test]
fn large_content_travels_and_a_server_that_is_away_stops_no_sender() {
    let (server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    let large = "line\n".repeat(100_000);
    assert_eq!(near.run_with("send --to w1 -", large.as_bytes()).code, 0);
    let received = far.object("recv --as w1");
    let path = received["attachment_path"].as_str().unwrap();
    path.begins(far.project().to_str().unwrap());
    assert_eq!(std::fs::read_to_string(path).unwrap(), large);
    server.kill();
    set_patience(&near, 3);
    let kept = near.run_with("send --to w1 --json -", large.replace("line", "later").as_bytes());
    kept.shows(["\"outbox\":true"]).ends(0).says(["outbox"]);
    near.fails(75, "recv --as w1").has(["127.0.0.1"]);
    server.run();
    server.answers();
    set_patience(&near, 120);
    near.send("after");
    assert_eq!(far.ok("recv --as w1 --body"), large.replace("line", "later"));
    assert_eq!(far.ok("recv --as w1 --body"), "after");
    // The content of a question.
    far.ok("mailbox add lead");
    near.run_with("request plan --as w1 --to lead --task t-1 -f -", large.as_bytes()).ends(0);
    assert_eq!(far.ok("recv --as lead --body"), large);
}

#[test]
fn a_server_that_is_away_stops_no_door_and_changes_no_order() {
    let (server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    set_patience(&near, 5);
    let mut client = Mcp::of(&near, "lead");
    let mut send = |text: &str| {
        let sent = client.call("send", &json!({ "to": "w1", "message": text }));
        serde_json::from_str::<serde_json::Value>(&sent).unwrap_or_else(|_| panic!("{sent}"))
    };
    assert_eq!(send("first")["outbox"], false);
    assert_eq!(far.ok("recv --as w1 --body"), "first");
    server.kill();
    let kept = near.run("task new t-1 second --to w1");
    kept.ends(0).says(["outbox"]);
    assert_eq!(send("third")["outbox"], true);
    server.run();
    server.answers();
    // It takes along what was kept before it.
    assert_eq!(send("fourth")["outbox"], false);
    for text in ["second", "third", "fourth"] {
        assert_eq!(far.ok("recv --as w1 --body"), text);
    }
}

#[test]
fn a_tool_that_waits_gets_what_a_dead_holder_had_and_short_waits_end_a_lease_together() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add shared --lease 1s");
    near.ok("send --to shared --id t-1 -m left");
    near.ok("recv --as gone --mailbox shared");
    let mut client = Mcp::of(&far, "shared");
    let got = client.object("recv_wait", &json!({ "timeout_seconds": 600 }));
    got["message"].fits(json!({ "id": "t-1", "epoch": 2 }));
    near.ok("mailbox add coders --lease 1s");
    near.ok("send --to coders -m count");
    near.ok("recv --as w1 --mailbox coders");
    eventually("the lease of the silent holder ends", || {
        near.run("recv --as w2 --mailbox coders --wait 200ms").code == 0
    });
}

#[test]
fn a_team_moves_to_the_server_and_back() {
    let server = Server::start();
    let bed = Bed::new();
    let ids: Vec<String> = (0..3).map(|n| bed.send(&format!("{n}"))).collect();
    bed.ok("recv --as w1");
    let url = server.url();
    let partly = bed.run(&format!("admin migrate --to servers --servers {url} --json"));
    assert_eq!(partly.code, 75, "one is held: {partly:?}");
    bed.ok(&format!("settle --as w1 {}", ids[0]));
    bed.ok(&format!("admin migrate --to servers --servers {url}"));
    for mailbox in ["conductor", "dispatch", "operator", "w1"] {
        let left = bed.json(&format!("inbox {mailbox}"));
        assert!(left.iter().all(|message| message["state"] != "queued"), "{mailbox}: {left:?}");
    }
    let files = bed.read_file("ensemble.yaml");
    configure(&bed, &server, "team");
    assert_eq!(bed.ok("recv --as w1 --body"), "1");
    bed.ok(&format!("settle --as w1 {}", ids[1]));
    bed.write_file("ensemble.yaml", files);
    bed.ok(&format!("admin migrate --to directory --servers {url}"));
    assert_eq!(bed.object("recv --as w1")["id"], json!(ids[2]));
}

#[test]
fn a_task_that_dies_on_servers_is_recorded_and_its_sender_is_notified() {
    let (_server, [near, far]) = two_hosts();
    near.add_mailboxes(&["w1", "lead"]);
    near.ok("send --to w1 --as lead --type task --task t1 --id t1 --expires 0s work");
    far.fails(3, "recv --as w1");
    far.object("log --type task_failed")["data"].fits(json!({ "task_id": "t1", "id": "t1" }));
    let _watcher = watch(&far);
    eventually("its sender is notified", || !near.json("inbox lead").is_empty());
    let told = near.object("recv --as lead");
    assert_eq!(told["type"], "mail.returned", "{told}");
    near.fails(3, "recv --as lead");
}
