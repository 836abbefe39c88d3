//! While the servers cannot be asked, no view shows this host's directory instead, and each says why.

use std::fs;
use std::time::{Duration, SystemTime};

use ensemble_nats::NatsTransport;
use serde_json::{Value, json};

use super::{bed_on, configure, set_patience};
use crate::bed::{Bed, SaidText as _, objects};
use crate::live::Screen;
use crate::nats_server::{Server, fresh_team};
use crate::tmux_support::eventually;

/// How long a verb waits for servers that are known to be away.
const PATIENCE_SECONDS: u64 = 3;

/// A mailbox on the servers in which a message waits, and this host's directory with another one.
fn bed_with_mail(server: &Server, team: &str) -> Bed {
    let bed = bed_on(server, team);
    bed.ok("mailbox add w1");
    bed.send("waiting");
    bed
}

fn status(bed: &Bed) -> Vec<Value> {
    objects(&bed.run("status --json").stdout)
}

#[test]
fn views_say_that_the_servers_are_away_and_recover() {
    let server = Server::start();
    let team = fresh_team();
    let bed = bed_with_mail(&server, &team);
    server.kill();
    set_patience(&bed, PATIENCE_SECONDS);
    let shown = bed.run("status");
    assert!(shown.stdout.lines().next().unwrap().contains("SERVERS AWAY"), "{shown:?}");
    shown.shows(["the servers are away, so mail and requests are not known", "start the servers"]);
    shown.stdout.lacks(["empty"]);
    let rows = status(&bed);
    assert!(rows.iter().all(|row| row.get("mailbox").is_none()), "{rows:?}");
    let last = rows.last().unwrap();
    assert!(last["servers_away"]["why"].is_string(), "{last}");
    assert_eq!(last["needs"][0]["need"], "servers", "{last}");
    let since = &last["servers_away"]["since"];
    assert!(since.is_string(), "no watcher runs, and yet: {last}");
    assert_eq!(&status(&bed).last().unwrap()["servers_away"]["since"], since);
    bed.run("team").ends(75).says(["the servers are away"]);
    assert!(bed.run("tmux-status").stdout.contains("servers are away"));
    let doctor = bed.run("doctor");
    doctor.stdout.lacks(["needs you    nothing"]);
    doctor.shows(["start the servers"]);
    doctor.stdout.begins("fail  servers ");
    assert!(doctor.stdout.contains("mail is on servers"), "not this host's mailboxes: {doctor:?}");
    let metrics = bed.run("log export prometheus").stdout;
    metrics.lacks(["ensemble_mailbox_messages{"]);
    let first = metrics.lines().find(|line| !line.starts_with('#'));
    assert_eq!(first, Some("ensemble_servers_up 0"), "{metrics}");
    server.run();
    server.answers();
    let rows = status(&bed);
    assert!(rows.iter().any(|row| row["mailbox"] == "w1" && row["waiting"] == 1), "{rows:?}");
    assert_eq!(rows.last().unwrap()["servers_away"], Value::Null);
    assert!(!bed.project().join(".ensemble/servers.yaml").exists(), "it is over");
    assert!(bed.run("log export prometheus").stdout.contains("ensemble_servers_up 1"));
}

#[test]
fn an_old_report_is_not_shown_as_current_and_a_mistyped_team_is_an_error_and_not_created() {
    let server = Server::start();
    let bed = bed_with_mail(&server, &fresh_team());
    let agent = json!({
        "name": "coder-a", "role": "coder", "provider": "claude", "mailbox": "coder-a",
        "generation": 1, "member": "up", "state": "idle", "why": "holds nothing", "since": null,
    });
    let report = json!({ "machine": "desk", "watched": true, "agents": [agent] });
    let at = "2026-01-15T09:30:00.000Z";
    let pulled = json!({ "host": "desk", "at": at, "is_silent": false, "report": report });
    fs::create_dir_all(bed.project().join(".ensemble/servers/hosts")).unwrap();
    bed.write_file(".ensemble/servers/hosts/desk.json", pulled.to_string());
    let state = || bed.object("team coder-a")["state"].clone();
    assert_eq!(state(), "idle");
    // No watcher has pulled for a while.
    let file = bed.project().join(".ensemble/servers/hosts/desk.json");
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(state(), "unknown");
    let mistyped = fresh_team();
    configure(&bed, &server, &mistyped);
    set_patience(&bed, PATIENCE_SECONDS);
    for line in ["recv --as w1", "inbox w1", "send --to w1 -m lost"] {
        let ran = bed.run(line);
        assert_eq!(ran.code, 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains("the server has no team of this name"), "{line}: {ran:?}");
    }
    for line in ["task list", "board show", "task show t1", "pause", "board prompt --role coder"] {
        let ran = bed.run(line);
        assert!(ran.stderr.contains("the server has no team of this name"), "{line}: {ran:?}");
    }
    for line in ["team", "log", "why w1", "request list", "dead list", "report t1 --summary x"] {
        let _ = bed.run(line);
    }
    bed.run("status").stdout.has(["the server has no team of this name", "nats.team"]);
    bed.run("doctor").shows(["nats.team"]);
    let options = server.options(&mistyped).without_creating();
    let created = NatsTransport::connect(&options);
    assert!(created.is_err_and(|error| error.to_string().contains("has no team")));
    bed.ok("mailbox add w1");
    assert_eq!(bed.run("send --to w1 -m found").code, 0);
}

#[test]
fn a_live_view_that_was_opened_while_the_servers_were_away_recovers() {
    let server = Server::start();
    let team = fresh_team();
    let bed = bed_with_mail(&server, &team);
    server.kill();
    set_patience(&bed, PATIENCE_SECONDS);
    let screen = Screen::start(&bed.project(), "top", (100, 20));
    eventually("it says that they are away", || screen.text().contains("SERVERS AWAY"));
    let text = screen.text();
    text.lacks(["nothing needs you", "unread"]);
    server.run();
    eventually("it shows what is there", || {
        let text = screen.text();
        text.contains("1 unread") && !text.contains("SERVERS AWAY")
    });
    server.kill();
    eventually("it says that they are away again", || screen.text().contains("SERVERS AWAY"));
}

#[test]
fn a_wrong_password_and_servers_that_do_not_listen_have_different_remedies() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("server.conf");
    fs::write(&config, "authorization: {user: ensemble, password: right}\n").unwrap();
    let port = crate::nats_server::free_port();
    let _server = Server::at(home.path(), port, &["-c".to_owned(), config.display().to_string()]);
    let bed = Bed::empty();
    bed.ok("init");
    let help = |transport: &str| {
        let text = format!("transport: {transport}\nnats: {{patience: {PATIENCE_SECONDS}}}\n");
        bed.write_file("ensemble.yaml", text);
        let need = status(&bed).last().unwrap()["needs"][0].clone();
        assert_eq!(need["need"], json!("servers"), "{need}");
        let words = need["text"].as_str().unwrap().matches("authorization violation").count();
        assert!(words < 2, "{need}");
        need["help"].as_str().unwrap().to_owned()
    };
    help(&format!("nats://ensemble:wrong@127.0.0.1:{port}")).has(["password"]);
    let silent = help(&format!("nats://127.0.0.1:{}", crate::nats_server::free_port()));
    silent.has(["start the servers"]);
}
