//! Up, up again, one that died, one that is added, one that existed before.

use std::fs;

use ensemble_tmux::reaper::{ProcessFate, fate};
use serde_json::{Value, json};

use super::{Team, holds, kill, of};
use crate::bed::{JsonMembers as _, SaidText as _, objects, polls, words, write_program};
use crate::tmux_support::eventually;

fn pids(objects: &[Value]) -> Vec<(Value, Value)> {
    let agents = objects.iter().filter(|object| object["agent"].is_string());
    agents.map(|object| (object["agent"].clone(), object["pid"].clone())).collect()
}

#[test]
fn an_agent_that_cannot_be_started_keeps_no_other_from_starting() {
    let team = Team::new();
    // The second of three.
    let place = team.bed.mailbox("worker-1");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "not a mailbox").unwrap();
    team.bed.run("up").ends(1).says(["mailbox/worker-1"]);
    team.wait_for_puppet("conductor");
    team.wait_for_puppet("worker-2");
    fs::remove_file(&place).unwrap();
    let second = team.up();
    assert_eq!(of(&second, "worker-1")["how"], "started", "{second:#?}");
}

#[test]
fn up_twice_changes_nothing() {
    let team = Team::new();
    let first = team.up();
    first[0].fits(json!({ "session_state": "started", "watcher_state": "started" }));
    assert_eq!(first.len(), 4);
    for name in ["conductor", "worker-1", "worker-2"] {
        assert_eq!(of(&first, name)["how"], "started", "{first:#?}");
        assert_eq!(of(&first, name)["generation"], 1);
        team.wait_for_puppet(name);
    }
    assert_eq!(of(&first, "conductor")["role"], "conductor");
    assert_eq!(of(&first, "worker-1")["role"], "worker");
    let panes = team.panes();
    let files = |team: &Team| {
        ["roster", "panes"].map(|dir| {
            let dir = team.bed.project().join(".ensemble").join(dir);
            ["conductor", "worker-1", "worker-2"]
                .map(|name| fs::read_to_string(dir.join(format!("{name}.yaml"))).unwrap())
        })
    };
    let before = files(&team);
    let second = team.up();
    second[0].fits(json!({ "session_state": "running", "watcher_state": "running" }));
    assert!(second[1..].iter().all(|object| object["how"] == "running"), "{second:#?}");
    assert_eq!(pids(&first), pids(&second));
    assert_eq!(files(&team), before);
    let ids = |panes: &[ensemble_tmux::tmux::PaneSigns]| -> Vec<(String, u32)> {
        panes.iter().map(|pane| (pane.id.clone(), pane.pid)).collect()
    };
    assert_eq!(ids(&panes), ids(&team.panes()));
    assert_eq!(team.records("agent.up").len(), 3);
}

#[test]
fn only_who_has_died_is_started_again_and_mail_is_kept() {
    let team = Team::new();
    let first = team.up();
    team.bed.ok("send --as operator --to worker-1 --id kept -m unread");
    let mail = team.bed.mailbox("worker-1/new/kept.yaml");
    let before = fs::read(&mail).unwrap();
    kill(u32::try_from(of(&first, "worker-1")["pid"].as_u64().unwrap()).unwrap());
    eventually("the pane is dead", || team.pane("worker-1").dead);
    let gone = team.wait_for_state("worker-1", "gone");
    // `team` looks at the pane itself; a sender learns what the watcher has seen.
    eventually("a sender learns that it is not running", || {
        let said = team.bed.run("send --to worker-1 -m x").stderr;
        said.contains("worker-1 is not running, and the message waits for it")
    });
    gone.fits(json!({ "recorded": "up", "unread": 1 }));
    let second = team.up();
    let again = of(&second, "worker-1");
    again.fits(json!({ "how": "restarted", "generation": 2 }));
    assert_eq!(again["pane"], of(&first, "worker-1")["pane"], "in its own pane");
    assert_ne!(again["pid"], of(&first, "worker-1")["pid"]);
    for name in ["conductor", "worker-2"] {
        assert_eq!(of(&second, name)["how"], "running");
        assert_eq!(of(&second, name)["pid"], of(&first, name)["pid"]);
    }
    assert_eq!(fs::read(&mail).unwrap(), before);
    // It knows who it is, and takes its mail without `--as`.
    team.order("worker-1", "$E recv --json").ends(0).shows(["\"kept\""]);
    assert_eq!(team.order("worker-1", "echo $ENSEMBLE_GENERATION").stdout, "2\n");
}

#[test]
fn a_window_that_was_closed_is_opened_again_and_so_is_the_session() {
    let team = Team::new();
    team.up();
    let pane = team.pane("worker-2");
    team.server().kill_pane(&pane.id).unwrap();
    team.wait_for_state("worker-2", "gone");
    assert_eq!(of(&team.up(), "worker-2")["how"], "started");
    assert_ne!(team.pane("worker-2").pid, pane.pid);
    // The whole server.
    team.bed.ok("send --as operator --to worker-1 -m unread");
    team.server().kill_server().unwrap();
    for name in ["conductor", "worker-1", "worker-2"] {
        team.wait_for_state(name, "gone");
    }
    eventually("the watcher has ended, too", || team.watcher().is_none());
    let shown = team.bed.run("team").stdout;
    assert!(shown.contains(" are gone: "), "those of one cause are one need: {shown}");
    team.bed.ok("tmux-status").has([" and "]);
    let said = team.bed.run("send --as operator --to worker-1 -m more").stderr;
    said.has(["worker-1 is not running, and the message waits for it"]);
    let again = team.up();
    assert_eq!(again[0]["session_state"], "started");
    assert!(again[1..].iter().all(|object| object["how"] == "started"), "{again:#?}");
    assert_eq!(team.member("worker-1")["unread"], 2);
}

#[test]
fn what_cannot_be_started_is_refused_with_its_reason() {
    let config = "  lost: {directory: nowhere}\n  odd: {env: {ENSEMBLE_AGENT_PASS: mine}}\n  \
                  strange: {provider: emacs}\n";
    let team = Team::with(&["conductor"], config);
    for (name, said) in
        [("lost", "nowhere"), ("odd", "ENSEMBLE_AGENT_PASS"), ("strange", "emacs"), ("who", "who")]
    {
        let ran = team.bed.run(&format!("up {name}"));
        assert!(ran.code != 0 && ran.stderr.contains(said), "{name}: {ran:?}");
    }
    assert!(team.panes().is_empty(), "nothing was started");
    team.bed.ok("up conductor");
}

#[test]
fn nothing_secret_stands_on_a_command_line_and_a_spawned_agent_belongs_to_the_team() {
    let team = Team::with(&["conductor"], "");
    team.up();
    let pass = team.order("conductor", "echo $ENSEMBLE_AGENT_PASS").stdout.trim().to_owned();
    assert_eq!(pass.len(), 32, "{pass:?}");
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&pass));
    }
    for file in ["roster/conductor.yaml", "panes/conductor.yaml"] {
        assert!(!holds(&team.bed.project().join(".ensemble").join(file), &pass), "{file}");
    }
    // Another window of the session does not inherit it, nor does the watcher.
    let other = team.server().run(&["show-environment", "-t", "=crew:"]).unwrap().join("\n");
    other.lacks(["AGENT_PASS"]);
    let mut command = team.bed.command(
        &[
            &words("agent start tester --role coder --json --command")[..],
            &["sleep 1000", "--env", "A=b c"],
        ]
        .concat(),
    );
    let output = crate::bed::ran(command.output().unwrap());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let line = team.member("tester");
    line.fits(json!({ "role": "coder", "state": "idle", "provider": "shell" }));
    let environ = fs::read(format!("/proc/{}/environ", line["pid"])).unwrap();
    let environ = String::from_utf8_lossy(&environ);
    assert!(environ.split('\0').any(|variable| variable == "A=b c"), "{environ}");
    team.bed.fails(1, "agent start tester").has(["up already"]);
    // `up` keeps it, and starts it again as it was.
    kill(u32::try_from(line["pid"].as_u64().unwrap()).unwrap());
    eventually("the pane is dead", || team.pane("tester").dead);
    assert_eq!(of(&team.up(), "tester")["how"], "restarted");
    assert_eq!(team.member("tester")["role"], "coder");
    assert!(team.bed.mailbox("tester/new").is_dir());
    // What ends at once is an error that says so, and no reason to keep others from running.
    let failed = team.shell("$E agent start broken --command 'exit 7'; echo $?; $E team broken");
    assert!(
        failed.stderr.contains("ended at once") || failed.stdout.contains("gone"),
        "{failed:?}"
    );
    team.wait_for_state("broken", "gone");
}

#[test]
fn a_pane_that_was_there_before_joins() {
    let team = Team::new();
    team.up();
    let (socket, lead) =
        ("--tmux-socket .ensemble/tmux.sock", "exec sh -c 'while read l; do :; done'");
    let id = team.open_window(lead);
    let join = |name: &str| format!("agent join {name} --pane {id} {socket}");
    team.bed.ok(&(join("lead") + " --role conductor"));
    let lead = json!({ "state": "idle", "role": "conductor", "pane": id, "generation": 1 });
    team.member("lead").fits(lead);
    assert!(team.bed.ok(&join("lead")).contains("already"));
    team.bed.fails(1, &join("second")).has(["belongs to lead"]);
    team.bed.fails(1, &join("worker-1")).has(["worker-1 is up in pane"]);
    let config = fs::read_to_string(team.bed.project().join("ensemble.yaml")).unwrap();
    team.bed.write_file("ensemble.yaml", format!("{config}  second: {{pane: '{id}'}}\n"));
    team.bed.run("up second").ends(1).says(["belongs to lead"]);
    team.bed.write_file("ensemble.yaml", config);
    // A member cannot take another name.
    let refused = team.order("worker-1", &format!("$E agent join lead --pane {id} {socket}"));
    refused.ends(1).says(["this is worker-1"]);
    // What it ran ends: it is gone, and `up` can only say so.
    team.server().kill_pane(&id).unwrap();
    team.wait_for_state("lead", "gone");
    team.bed.run("up").ends(1).says(["lead has joined is gone"]);
}

#[test]
fn agents_that_run_already_are_found_and_taken_into_the_team() {
    let team = Team::with(&["worker-1"], "");
    team.up();
    let socket = "--tmux-socket .ensemble/tmux.sock";
    assert_eq!(team.bed.ok(&format!("agent adopt {socket} --json")), "");
    assert!(team.bed.ok(&format!("agent adopt {socket}")).contains("no pane has an agent"));
    // A shell of a person from which an agent was started, and an agent alone.
    let claude = team.here("claude");
    write_program(&claude, "#!/bin/sh\nwhile read l; do :; done\n");
    let lines =
        [format!("sh -c '{0}; {0}'", claude.display()), format!("exec {}", claude.display())];
    let panes = lines.map(|line| team.open_window(&line));
    let list = || objects(&team.bed.ok(&format!("agent adopt {socket} --json")));
    eventually("both are found", || list().len() == 2);
    assert!(list().iter().all(|it| it["provider"] == "claude" && it["agent"].is_null()));
    team.bed.ok(&format!("agent adopt {socket}")).has([&panes[0], "adopt PANE"]);
    let refused = team.order("worker-1", &format!("$E agent adopt --all {socket}"));
    refused.ends(1).says(["this is worker-1"]);
    // Two by their panes, of which the second cannot have its mailbox, then the rest.
    let place = team.bed.mailbox("claude-2");
    fs::write(&place, "").unwrap();
    let told = team.bed.run(&format!("agent adopt {} {} {socket}", panes[1], panes[0]));
    told.ends(1).shows(["send --to claude"]);
    fs::remove_file(&place).unwrap();
    assert_eq!(team.member("claude")["pane"], panes[1].as_str());
    team.bed.fails(1, &format!("agent adopt {} {socket}", panes[1])).has(["belongs to claude"]);
    team.bed.fails(3, &format!("agent adopt %999 {socket}"));
    let twice = team.bed.run(&format!("agent adopt {0} {0} {socket}", panes[0]));
    twice.ends(1).says(["belongs to claude-2"]);
    team.bed.ok(&format!("agent adopt --all {socket}"));
    team.member("claude-2").fits(json!({ "pane": panes[0].as_str(), "provider": "claude" }));
    assert_eq!(list().iter().filter(|it| it["agent"].is_null()).count(), 0);
    team.bed.ok("send --to claude-2 -m hello");
}

#[test]
fn a_pane_id_that_is_used_again_is_another_pane() {
    let team = Team::with(&["conductor"], "");
    team.up();
    let before = team.member("conductor");
    // A new server counts from the same number again.
    team.server().kill_server().unwrap();
    for session in ["one", "two"] {
        team.server().new_session(session, "sleep 1000", 80, 24).unwrap();
    }
    let panes = team.server().panes().unwrap();
    assert!(panes.iter().any(|pane| before["pane"] == pane.id.as_str()), "{panes:?}");
    let line = team.member("conductor");
    line.fits(json!({ "state": "gone", "recorded": "up" }));
    assert!(line["why"].as_str().unwrap().contains("another"), "{line}");
    let again = team.up();
    assert_eq!(of(&again, "conductor")["how"], "started");
    assert_ne!(of(&again, "conductor")["pane"], before["pane"]);
}

#[test]
fn attaching_shows_the_agents_window() {
    let team = Team::new();
    team.up();
    // In its own terminal, within another tmux server.
    let command = format!(
        "cd {} && exec {} agent attach worker-2",
        team.bed.project().display(),
        crate::bed::program().display()
    );
    let terminal = crate::tmux_support::TestServer::start(&command);
    let shown = || {
        let clients =
            ["list-clients", "-F", "#{client_control_mode} #{session_name} #{window_name}"];
        team.server().run(&clients).unwrap().contains(&"0 crew worker-2".to_owned())
    };
    eventually("a client is attached", shown);
    drop(terminal);
    for (term, name) in [("nope-256", "`nope-256`"), ("", "not set")] {
        let said = team.bed.run_in(&[("TERM", term)], "agent attach worker-2");
        let helps = "hint: `TERM=xterm-256color ensemble agent attach worker-2`";
        said.ends(1).says([&format!("TERM is {name}"), helps]);
    }
    for verb in ["agent attach", "agent inspect", "mailbox unbind"] {
        let said = team.bed.fails(3, &format!("{verb} wroker-1"));
        said.has(["no agent `wroker-1` has a pane here: did you mean worker-1?"]);
    }
    let pane = team.pane("worker-1");
    team.server().kill_pane(&pane.id).unwrap();
    team.bed.fails(3, "agent attach worker-1").has(["the pane is gone"]);
}

#[test]
fn the_schema_is_that_of_the_configuration() {
    let team = Team::with(&[], "  x: {}\n");
    let printed = team.bed.ok("admin schema config");
    let schema: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    for key in ["team", "agents", "identity", "ladder", "routes"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    assert_eq!(team.bed.read_file(".ensemble/ensemble.schema.json"), printed);
}

/// Codex leaves a server in its own session, which serves the next Codex with the old pass.
#[test]
fn what_a_killed_agent_has_left_is_ended_before_its_next_start() {
    let team = Team::with(&["worker-1", "worker-2"], "");
    let daemon = |name: &str| {
        let left = team.here(&format!("{name}.daemon"));
        // It ignores a hang-up and a request to end.
        let script =
            "trap \"\" HUP TERM; echo $$ >$HERE/$ENSEMBLE_AGENT_ID.daemon; exec sleep 1000";
        let line = format!("setsid -f sh -c '{script}' >/dev/null 2>&1 </dev/null");
        assert_eq!(team.order(name, &line).code, 0);
        eventually("the daemon runs", || {
            fs::read_to_string(&left).is_ok_and(|pid| pid.ends_with('\n'))
        });
        fs::read_to_string(&left).unwrap().trim().parse::<u32>().unwrap()
    };
    team.up();
    let (left, other) = (daemon("worker-1"), daemon("worker-2"));
    super::kill(team.pane("worker-1").pid);
    eventually("the pane is dead", || team.pane("worker-1").dead);
    assert_eq!(fate(left), ProcessFate::Lives, "it has outlived its agent");
    team.up();
    assert_ne!(fate(left), ProcessFate::Lives, "a process of the earlier generation is left");
    assert_eq!(fate(other), ProcessFate::Lives, "another agent's process was ended");
    let records = team.records("agent.remains");
    assert_eq!(records.len(), 1, "{records:?}");
    records[0].fits(json!({ "found": 1, "survivors": 0 }));
    team.bed.ok("down --force");
    assert_ne!(fate(other), ProcessFate::Lives, "`down` leaves a process");
}

#[test]
fn without_an_inotify_instance_up_starts_a_watcher_that_polls_and_says_so() {
    let team = Team::with(&["worker-1"], "poll_interval: 1\n");
    let limit = "echo 0 > /proc/sys/user/max_inotify_instances";
    let apart = |command: &str| {
        let script = format!("{limit} && {command}");
        team.shell(&format!("unshare --user --map-root-user sh -c '{script}'"))
    };
    let trial = apart("true");
    if trial.code != 0 {
        println!("skipped: no user namespace without inotify: {}", trial.stderr);
        return;
    }
    let up = apart("exec \"$E\" up");
    up.ends(0);
    let says = up.stderr.contains("warning: the watcher polls: no inotify instance left");
    assert!(says || polls(), "{up:?}");
    team.wait_for_puppet("worker-1");
    assert!(team.bed.ok("status").contains("the watcher polls: no inotify instance left"));
    assert_eq!(apart("exec \"$E\" down --force").code, 0);
}

#[test]
fn a_team_starts_whatever_the_persons_tmux_does_and_a_copy_leaves_it_alone() {
    let team = Team::new();
    let home = team.bed.project().parent().unwrap().to_owned();
    fs::write(home.join(".tmux.conf"), "set -g exit-unattached on\nset -g destroy-unattached on\n")
        .unwrap();
    assert_eq!(of(&team.up(), "worker-1")["how"], "started");
    assert!(!team.pane("worker-1").dead);
    team.wait_for_puppet("worker-1");
    let copy = team.bed.project().with_file_name("copy");
    let mut command = std::process::Command::new("cp");
    assert!(command.arg("-a").args([&team.bed.project(), &copy]).status().unwrap().success());
    let there = format!("--queue {}", copy.join("queue").display());
    let members = team.bed.json(&format!("{there} team"));
    assert!(members.iter().all(|member| member["recorded"] == "shutdown"), "{members:#?}");
    let down = team.bed.run(&format!("{there} down --force"));
    assert_eq!(down.code, 0, "{}", down.stderr);
    for name in ["conductor", "worker-1", "worker-2"] {
        assert!(!team.pane(name).dead, "{name} runs for the original");
    }
}
