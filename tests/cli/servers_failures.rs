//! One failure stays one failure, through the command and its watcher.

#[allow(dead_code, unreachable_pub, reason = "this test uses a part of it")]
#[path = "../support/nats/link.rs"]
mod link;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::bad_parts::break_part;
use crate::bed::{Bed, JsonMembers as _, SaidText as _, watch};
use crate::conversation::member;
use crate::nats_server::{Server, free_port, fresh_team};
use crate::servers::{one_host, set_patience};
use crate::tmux_support::eventually;
use link::Link;

#[test]
fn a_full_mailbox_does_not_make_the_host_deaf() {
    let (_server, bed) = one_host();
    bed.ok("mailbox add aaa --capacity 1");
    bed.ok("mailbox add w9");
    bed.ok("send --to aaa -m first");
    let _watcher = watch(&bed);
    bed.write_file("queue/tasks/aaa-task.yaml", "task_id: aaa\ndescription: x\n...\n");
    let troubles = || {
        let status = bed.json("status").pop().unwrap();
        status["watcher"]["status"]["servers"]["troubles"].to_string()
    };
    eventually("the watcher meets the full mailbox", || troubles().contains("aaa"));
    // Nor do one that the servers refuse, and one that cannot be read here.
    std::fs::create_dir(bed.mailbox("steps")).unwrap();
    bed.ok("mailbox add bad");
    eventually("it is known here", || bed.mailbox("bad/new").exists());
    break_part(&bed.mailbox("bad/new"), "wrong");
    eventually("the watcher meets it", || troubles().contains("mailbox bad here"));
    assert!(bed.ok("status").contains("mailbox bad here"), "a person sees it, too");
    bed.write_file("queue/tasks/w9-task.yaml", "task_id: w9\ndescription: x\n...\n");
    eventually("other mail arrives", || !bed.json("inbox w9").is_empty());
    let status = bed.json("status").pop().unwrap();
    assert_eq!(status["watcher"]["status"]["servers"]["connected"], true, "{status}");
    let tries = bed.json("log").iter().filter(|record| record["type"] == "mailbox.full").count();
    assert!(tries < 20, "it is not tried without a pause: {tries}");
    bed.ok("recv --as aaa");
    eventually("the mail follows once there is room", || {
        bed.json("inbox aaa").iter().any(|row| row["state"] == "queued")
    });
}

#[test]
fn what_the_outbox_could_not_send_is_among_the_dead_letters() {
    let (server, bed) = one_host();
    bed.ok("mailbox add w1");
    server.kill();
    set_patience(&bed, 2);
    bed.run("send --to typo -m lost --id t-1").ends(0);
    assert!(bed.run("status").stdout.contains("1 message to send"), "without a watcher");
    server.run();
    server.answers();
    set_patience(&bed, 120);
    // The next message takes the outbox along.
    bed.send("after");
    let letters = bed.json("dead list");
    assert_eq!(letters.len(), 1, "{letters:?}");
    letters[0].fits(json!({ "id": "t-1", "place": "outbox" }));
    assert!(bed.ok("dead show t-1").contains("lost"));
    bed.ok("mailbox add typo");
    bed.ok("dead retry t-1");
    bed.send("again");
    assert_eq!(bed.ok("recv --as typo --body"), "lost");
    assert!(bed.json("dead list").is_empty());
}

#[test]
fn a_host_with_limited_rights_reads_the_logs_of_others_and_reports_its_agents() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("server.conf");
    let few = r#"{publish: {allow: [">"], deny: ["enslog.team.few"]}}"#;
    let text = format!(
        "authorization {{ users = [\n  {{user: all, password: a}}\n  {{user: few, password: f, permissions: {few}}}\n] }}\n"
    );
    std::fs::write(&config, &text).unwrap();
    let flags = ["-c".to_owned(), config.display().to_string()];
    let server = Server::at(home.path(), free_port(), &flags);
    let hosts = [("all", "all:a"), ("bad", "all:a"), ("few", "few:f")];
    let [all, other, few] = hosts.map(|(host, user)| {
        let bed = Bed::empty();
        let url = format!("nats://{user}@127.0.0.1:{}", server.port);
        let config =
            format!("transport: {url}\nnats: {{team: team, host: {host}, patience: 120}}\n");
        bed.write_file("ensemble.yaml", config);
        bed.ok("init");
        bed
    });
    let log_of_bad = |bed: &Bed| bed.project().join(".ensemble/servers/logs/bad");
    let bad = log_of_bad(&few);
    std::fs::create_dir_all(&bad).unwrap();
    let set_mode = |mode| std::fs::set_permissions(&bad, Permissions::from_mode(mode)).unwrap();
    set_mode(0o500);
    let _others = [watch(&all), watch(&other)];
    eventually("the log of the third host is there", || log_of_bad(&all).is_dir());
    all.ok("log record later.done --as w1");
    let _watcher = watch(&few);
    eventually("it reads on past a log that it cannot write", || {
        !few.run("log --type later.done --json").stdout.is_empty()
    });
    set_mode(0);
    let own = few.run("log");
    set_mode(0o700);
    assert!(own.code == 0 && !own.stdout.is_empty(), "it hides no other log: {own:?}");
    eventually("it writes that log, too", || std::fs::read_dir(&bad).unwrap().next().is_some());

    // Nor does the name of an agent that it may not free any more keep its next agent unknown.
    member(&few, "reader-1");
    let known = all.project().join(".ensemble/servers/hosts/few.json");
    let knows = |agent: &str| std::fs::read_to_string(&known).is_ok_and(|it| it.contains(agent));
    eventually("the other host knows its agent", || knows("reader-1"));
    let frees = r#""enslog.team.few", "$KV.*.members.>""#;
    std::fs::write(&config, text.replace(r#""enslog.team.few""#, frees)).unwrap();
    server.restart();
    std::fs::remove_file(few.project().join(".ensemble/roster/reader-1.yaml")).unwrap();
    member(&few, "reader-2");
    eventually("the other host knows the next one", || knows("reader-2"));
}

#[test]
fn no_team_starts_on_servers_before_2_10() {
    let server = Server::start();
    for (version, is_refused) in [("2.9.25", true), ("2.10.0", false)] {
        let bed = Bed::empty();
        let link = Link::claiming(server.port, Some(version));
        bed.write_file(
            "ensemble.yaml",
            format!(
                "transport: nats://127.0.0.1:{}\nnats: {{team: {}, patience: 120}}\nagents: {{w1: {{provider: shell, command: cat}}}}\n",
                link.port,
                fresh_team()
            ),
        );
        bed.ok("init");
        bed.ok("mailbox add w1");
        let why =
            format!("nats-server {version} is too old, because one before 2.10 that is killed");
        let doctor = bed.run("doctor");
        assert_eq!(doctor.stdout.starts_with("fail  servers "), is_refused, "{doctor:?}");
        assert_eq!(doctor.stdout.contains(&why), is_refused, "{doctor:?}");
        for start in
            ["up", "claude", "agent start w2 --provider shell --command cat", "agent restart w1"]
        {
            if is_refused {
                let said = bed.fails(1, start);
                assert!(said.contains(&why) && said.contains("2.10 or newer"), "{start}: {said}");
                assert!(!bed.project().join(".ensemble/tmux.sock").exists(), "{start}");
            }
        }
    }
}

#[test]
fn a_certificate_without_its_key_is_a_mistake_of_the_configuration() {
    let (_server, bed) = one_host();
    bed.add_config("  certificate: host.pem\n");
    bed.fails(2, "recv --as w1").has(["nats.certificate", "key"]);
}

#[test]
fn a_move_names_what_it_keeps() {
    let server = Server::start();
    let bed = Bed::new();
    let url = server.url();
    bed.ok("send --to w1 --id task-7 -m first");
    bed.ok(&format!("admin migrate --to servers --servers {url}"));
    let files = bed.read_file("ensemble.yaml");
    bed.write_file("ensemble.yaml", format!("{files}transport: {url}\nnats: {{patience: 120}}\n"));
    bed.ok("recv --as w1");
    bed.ok("settle --as w1 task-7");
    bed.write_file("ensemble.yaml", &files);
    bed.ok("send --to w1 --id task-7 -m second");
    let kept = bed.run(&format!("admin migrate --to servers --servers {url} --json"));
    kept.ends(1).shows(["task-7"]).says(["task-7"]);
    assert!(bed.ok("dead show task-7").contains("second"), "its content is still here");
}
