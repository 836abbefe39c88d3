//! A team whose mailboxes are on a real NATS server: each verb works there, says that it is about this host, or is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, end, objects, watch};
use crate::conversation::member;
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, free_port, fresh_team};
use crate::tmux_support::eventually;

mod away;

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

/// A shortest line of each verb that needs a database of all hosts.
const REFUSED: [&str; 1] = ["step list"];

fn documented(word: &str) -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("<!-- verbs: this table is generated -->").unwrap();
    let (table, _) = table.split_once("<!-- end of verbs -->").unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, verb, reach, said, _] = cells[..] else { return None };
        (reach == word).then(|| (verb.trim_matches('`').to_owned(), said.to_owned()))
    };
    table.lines().filter_map(row).collect()
}

/// The place that a line begins with: two words, or one.
fn place<'d>(documented: &'d BTreeMap<String, String>, line: &str) -> &'d str {
    let begins = |verb: &&String| line == verb.as_str() || line.starts_with(&format!("{verb} "));
    documented
        .keys()
        .filter(begins)
        .max_by_key(|verb| verb.len())
        .unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn what_is_of_one_host_is_refused_in_one_sentence_and_what_shows_it_says_so() {
    let (_server, bed) = one_host();
    let verbs = documented("database");
    for line in REFUSED {
        let verb = place(&verbs, line);
        let refused = bed.run(line);
        assert_eq!((refused.code, &*refused.stdout), (1, ""), "{line}: {refused:?}");
        assert!(refused.stderr.contains(&verbs[verb]), "{line}: {refused:?}");
    }
    for verb in verbs.keys() {
        assert!(REFUSED.iter().any(|line| place(&verbs, line) == verb), "{verb} is tried");
    }
    assert!(!bed.project().join(".ensemble/state.yaml").exists(), "nothing was made");
    let documented = documented("this host");
    bed.ok("mailbox add w1");
    bed.run("admin fsck").ends(0).says([&documented["admin fsck"]]);
    // In a directory there is no other host.
    Bed::new().ok("admin fsck");
}

#[test]
fn a_nudge_knows_what_waits_on_the_servers() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    assert!(far.fails(3, "agent nudge w1").contains("nothing waits"));
    near.send("over there");
    far.fails(3, "agent nudge w1").lacks(["nothing waits"]).has(["pane", "host"]);
}

#[test]
fn a_summary_from_another_host_ends_the_wait_of_an_instruct() {
    let (_server, [near, far]) = two_hosts();
    for mailbox in ["dispatch", "conductor"] {
        let _ = near.run(&format!("mailbox add {mailbox}"));
    }
    let instruction = "type: start_workers\ncreated_at: \"2026-11-26T00:00:00Z\"\ntasks:\n  - id: t-1\n    instruction: count the lines\n...\n";
    for bed in [&near, &far] {
        bed.write_file("i.yaml", instruction);
    }
    let waiting = near.start("agent instruct i.yaml --wait 120s --as conductor --json");
    let _watcher = watch(&far);
    eventually("the instruction arrives", || !far.json("inbox dispatch").is_empty());
    // A worker of the other host reports there, and its summary is gathered there.
    far.write_file(
        "queue/reports/t-1-completed.yaml",
        "task_id: t-1\nworker_id: w1\nstatus: completed\nsummary: 7 lines\n...\n",
    );
    far.ok("task summary --instruction i.yaml --wait 60s --as dispatch --json");
    end(waiting).ends(0).shows(["t-1"]);
}

#[test]
fn the_story_of_a_message_is_told_by_all_hosts() {
    let (_server, [near, far]) = two_hosts();
    near.ok("mailbox add w1");
    let id = near.send("over there");
    far.ok("recv --as w1");
    far.ok(&format!("settle --as w1 {id}"));
    let _watchers = [watch(&near), watch(&far)];
    for bed in [&near, &far] {
        eventually("both halves are known on both hosts", || {
            let told = bed.run(&format!("why {id} --json"));
            ["message.stored", "message.acked", "message.settled"]
                .iter()
                .all(|kind| told.stdout.contains(kind))
        });
        let all = bed.json("log");
        let times: Vec<&str> = all.iter().map(|r| r["timestamp"].as_str().unwrap()).collect();
        assert!(times.is_sorted(), "the records of all hosts are merged by time");
        let stored = all.iter().filter(|record| {
            record["type"] == "message.stored" && record["data"]["id"] == id.as_str()
        });
        assert_eq!(stored.count(), 1, "each record is there once");
    }
}

#[test]
fn doctor_examines_the_servers() {
    let Some(server) = Server::current() else { return };
    let bed = bed_on(&server, &fresh_team());
    bed.ok("mailbox add w1");
    let check = |name: &str| {
        let looked = bed.run("doctor --json");
        let found = crate::bed::objects(&looked.stdout);
        let check = found.iter().find(|check| check["check"] == name).cloned();
        check.unwrap_or_else(|| panic!("{name}: {found:?}"))
    };
    assert_eq!(["servers", "server time"].map(|name| check(name)["level"].clone()), ["ok", "ok"]);
    server.kill();
    set_patience(&bed, 1);
    assert_eq!(check("servers")["level"], "fail");
    let home = tempfile::tempdir().unwrap();
    let flags = ["--user", "a", "--pass", "b"].map(str::to_owned);
    let guarded = Server::at(home.path(), free_port(), &flags);
    bed.change_config(|config| config.replace(&server.url(), &guarded.url()));
    let refused = check("servers");
    assert_eq!(refused["level"], "fail", "{refused}");
    assert!(refused["remedy"].as_str().unwrap().contains("permissions"), "{refused}");
}

#[test]
fn a_sender_learns_of_each_recipient_and_of_a_reader_that_has_left_and_has_its_quota() {
    let (_server, bed) = one_host();
    bed.ok("mailbox add full --capacity 1");
    bed.ok("mailbox add tight --capacity 1");
    assert_eq!(bed.run("send --to full,tight -m first").stderr, "");
    member(&bed, "cora");
    let file = bed.project().join(".ensemble/roster/cora.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("state: up", "state: shutdown")).unwrap();
    let warning = "cora has left, and the message waits for it";
    let said = bed.run("send --to full,cora,tight -m x");
    said.ends(75).says([warning, "`full` is full", "`tight` is full"]);
    said.says(["reaches only those who lack it"]);
    let sent = objects(&bed.run("send --to full,cora -m x --json").stdout);
    assert_eq!([&sent[0]["state"], &sent[1]["state"]], ["refused", "stored"], "{sent:?}");
    assert!(sent[1]["warning"].as_str().unwrap().starts_with(warning), "{sent:?}");
    bed.add_config("sender_quota: {messages: 3}\n");
    bed.ok("mailbox add w1");
    for _ in 0..3 {
        bed.ok("send --to w1 -m x --as mad");
    }
    let refused = bed.run("send --to w1 -m x --as mad");
    assert_eq!((refused.code, &*refused.stdout), (75, ""), "{refused:?}");
    refused.says(["unread"]);
    bed.ok("send --to w1 -m x --as calm");
}
