//! Credentials for each host and agent, as docs/guides/hosts.md sets them up: each command of its table is run
//! with each of them.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::bed::{Bed, watch};
use crate::conversation::member;
use crate::mcp_client::Mcp;
use crate::nats_server::{Server, cluster_program, free_port, program};
use crate::tmux_support::eventually;

const PORT: &str = "4222";
const LEAF_LINK: &str = "7422";
/// The directory of each, as the page names them, in the order of the table's columns.
const USERS: [&str; 3] = ["hub", "b", "box"];

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/hosts.md");
    std::fs::read_to_string(path).unwrap()
}

fn file(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("<!-- file: {name} -->")).expect("the page shows it");
    let (_, rest) = rest.split_once("```").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn table(page: &str) -> Vec<(String, Vec<bool>)> {
    let (_, rest) = page.split_once("<!-- credentials -->").unwrap();
    let (table, _) = rest.split_once("<!-- end of credentials -->").unwrap();
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let command = cells.next()?.trim_end_matches('`').to_owned();
        let may = cells.filter(|cell| !cell.is_empty()).map(|cell| match cell {
            "yes" => true,
            "no" => false,
            other => panic!("{command}: `{other}` is neither yes nor no"),
        });
        Some((command.clone(), may.collect()))
    });
    rows.collect()
}

/// The server that the page describes, which keeps its messages below `home`, and its ports for clients and leaf nodes.
fn server(page: &str, program: &Path, home: &Path) -> (Server, u16) {
    let config = home.join("server.conf");
    let leaves = free_port();
    // The test passes the storage directory on the command line instead.
    let text = file(page, "server.conf")
        .replace("store_dir: data, ", "")
        .replace(LEAF_LINK, &leaves.to_string());
    std::fs::write(&config, text).unwrap();
    let (config, log) = (config.display().to_string(), log_of(home).display().to_string());
    let arguments = ["-c", &config, "-l", &log].map(str::to_owned);
    (Server::by(program, home, free_port(), &arguments), leaves)
}

fn log_of(home: &Path) -> PathBuf {
    home.join("server.log")
}

/// Runs the commands of the table with the credentials of each, at the server with this port.
fn try_all(page: &str, port: u16) -> [Bed; 3] {
    let beds = USERS.map(|user| {
        let bed = Bed::empty();
        let config = file(page, &format!("{user}/ensemble.yaml"));
        let config = config.replace(PORT, &port.to_string()) + "durability: process\n";
        bed.write_file("ensemble.yaml", config);
        bed.write_file("plan.md", "1. count\n");
        bed.ok("init");
        bed
    });
    beds[0].add_mailboxes(&["lead", "worker-1", "worker-3", "worker-9"]);
    beds[0].ok("request plan --to lead --as worker-1 --id plan-1 -f plan.md");
    let rows = table(page);
    assert!(rows.len() > 10, "the table is read");
    for (command, may) in &rows {
        assert_eq!(may.len(), beds.len(), "{command}");
        // The hub last: what it does changes what the others find.
        for (at, bed) in beds.iter().enumerate().rev() {
            let ran = bed.run(command);
            let is_done = [0, 3].contains(&ran.code);
            let is_denied = ran.code == 1 && ran.stderr.contains("denied");
            assert!(is_done || is_denied, "{}: `{command}`: {ran:?}", USERS[at]);
            assert_eq!(is_done, may[at], "{}: `{command}`: {ran:?}", USERS[at]);
        }
    }
    beds
}

/// The programs of servers: the system's, which may not say what it permits, and a current one that does.
fn programs() -> impl Iterator<Item = (PathBuf, bool)> {
    let current = cluster_program().map(|program| (program, true));
    [(PathBuf::from(program()), false)].into_iter().chain(current)
}

#[test]
fn each_may_do_what_the_guide_says_and_nothing_else() {
    for (program, says_rules) in programs() {
        each_does_what_it_may(&program, says_rules);
    }
}

fn each_does_what_it_may(program: &Path, says_rules: bool) {
    let page = page();
    let home = tempfile::tempdir().unwrap();
    let (server, _) = server(&page, program, home.path());
    let beds = try_all(&page, server.port);
    // What was handed in is sent, though its sender cannot see what happens to it.
    let ran =
        beds[2].run("send --to worker-1 --as worker-9 --id seen -m x --until settled --wait 1s");
    assert_eq!((ran.code, ran.stdout.trim()), (1, "seen"), "{ran:?}");
    ran.says(["denied"]);
    // An agent and a mailbox that the server refuses keep the host from nothing else.
    std::fs::create_dir_all(beds[1].mailbox("worker-7")).unwrap();
    member(&beds[1], "worker-7");
    // The server says what it would deny, and is not asked for it.
    let _watchers = [watch(&beds[0]), watch(&beds[1])];
    beds[0].ok("send --to worker-3 -m hello");
    beds[1].ok("recv --as worker-3 --wait 10s");
    let log = std::fs::read_to_string(log_of(home.path())).unwrap();
    let denied: Vec<&str> = log.lines().filter(|line| line.contains("Violation")).collect();
    assert!(denied.is_empty() || !says_rules, "{denied:#?}");
    let report = beds[0].project().join(".ensemble/servers/hosts/b.json");
    eventually("the hub hears of the agents of the host", || {
        std::fs::read_to_string(&report).is_ok_and(|text| text.contains("worker-7"))
    });
    eventually("the host knows the mailboxes", || beds[1].mailbox("worker-1").is_dir());
}

#[test]
fn a_leaf_node_lets_each_do_the_same() {
    for (program, _) in programs() {
        each_does_the_same_behind_a_leaf_node(&program);
    }
}

fn each_does_the_same_behind_a_leaf_node(program: &Path) {
    let page = page();
    let home = tempfile::tempdir().unwrap();
    let (_server, leaves) = server(&page, program, home.path());
    // Its users are those of the server, with the names that subjects have after its mapping.
    let config = file(&page, "server.conf");
    let (_, users) = config.split_once("users: ").unwrap();
    let users =
        &users.replace("\"$JS.API.", "\"$JS.hub.API.").replace("\"$KV.", "\"$JS.hub.API.$KV.");
    let leaf = file(&page, "../c/leaf.conf").replace(LEAF_LINK, &leaves.to_string());
    let (leaf, _) = leaf.split_once("users: ").unwrap();
    let leaf = leaf.replace("no_auth_user: agents\n", "") + "users: " + users;
    let leaf_home = tempfile::tempdir().unwrap();
    let config = leaf_home.path().join("leaf.conf");
    std::fs::write(&config, leaf).unwrap();
    let leaf = Server::leaf(program, leaf_home.path(), free_port(), &config);
    let [hub, ..] = try_all(&page, leaf.port);
    // By tools, too.
    hub.ok("mailbox add worker-7");
    hub.ok("send --to worker-7 --id letter -m hello");
    let mut agent = Mcp::of(&hub, "worker-7");
    let got = agent.object("recv_wait", &json!({ "timeout_seconds": 60 }));
    assert_eq!(got["message"]["id"], "letter", "{got}");
    agent.object("settle", &json!({ "id": "letter" }));
    assert!(hub.json("inbox worker-7").is_empty());
}
