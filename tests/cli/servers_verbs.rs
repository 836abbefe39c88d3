//! Each verb works on the servers, says that it is about this host, or is refused in one sentence.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bed::{Bed, SaidText as _, end, objects, watch};
use crate::conversation::member;
use crate::nats_server::{Server, free_port, fresh_team};
use crate::servers::{bed_on, one_host, set_patience, two_hosts};
use crate::tmux_support::eventually;

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
    assert_eq!(
        (&check("servers")["level"], &check("server time")["level"]),
        (&"ok".into(), &"ok".into())
    );
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
fn a_sender_has_its_quota_on_the_servers() {
    let (_server, bed) = one_host();
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

#[test]
fn a_sender_learns_of_each_recipient_and_of_a_reader_that_has_left() {
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
}
