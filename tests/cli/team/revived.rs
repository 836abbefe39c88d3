//! A watcher comes back by itself, mail starts its reader, and a session that was renamed or moved is the same team.

use std::collections::BTreeMap;
use std::fs;

use ensemble_core::durable::FileLock;
use ensemble_tmux::reaper::{ProcessFate, fate};
use serde_json::{Value, json};

use super::{Team, kill, of};
use crate::bed::{JsonMembers as _, SaidText as _, program, to_end};
use crate::tmux_support::eventually;

impl Team {
    pub(super) fn watcher(&self) -> Option<u32> {
        FileLock::holder(&self.bed.project().join(".ensemble/watch.lock"))
    }

    #[track_caller]
    fn lose_watcher(&self) -> u32 {
        let watcher = self.watcher().expect("a watcher");
        kill(watcher);
        eventually("no watcher runs", || self.watcher().is_none());
        let is_dead = || self.panes().iter().any(|pane| pane.is_sidecar && pane.dead);
        eventually("tmux has noticed", is_dead);
        watcher
    }
}

#[test]
fn a_watcher_that_was_killed_comes_back_with_the_next_verb_which_reads_no_table_of_locks() {
    let team = Team::with(&["conductor"], "");
    team.up();
    let hook = "echo '{}' | $E admin hook start --provider claude";
    for line in ["$E send --as operator --to conductor -m news", "$E status", "$E team", hook] {
        let before = team.lose_watcher();
        let ran = team.shell(line);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        eventually(line, || team.watcher().is_some_and(|now| now != before));
        let sidecars: Vec<_> = team.panes().into_iter().filter(|pane| pane.is_sidecar).collect();
        assert_eq!(sidecars.len(), 1, "it runs in its own window: {sidecars:#?}");
        assert_eq!(Some(sidecars[0].pid), team.watcher(), "{line}");
    }
    // Many at once start one.
    team.lose_watcher();
    let many = "for n in 1 2 3 4 5 6; do $E send --as operator --to conductor -m x & done; wait";
    assert_eq!(team.shell(many).code, 0);
    eventually("a watcher runs", || team.watcher().is_some());
    let sidecars = team.panes().into_iter().filter(|pane| pane.is_sidecar).count();
    assert_eq!(sidecars, 1);
    // While one process reads that table, each process of the machine that takes a lock waits.
    let trace = team.here("trace");
    for verb in ["send --as operator --to conductor -m x", "team", "status"] {
        let line = format!("strace -f -qq -e trace=openat -o {} $E {verb}", trace.display());
        let ran = team.shell(&line);
        let opened = std::fs::read_to_string(&trace).unwrap();
        assert!(ran.code == 0 && opened.contains("ensemble.yaml"), "{verb}: {ran:?}\n{opened}");
        assert!(!opened.contains("/proc/locks"), "{verb}: {opened}");
    }
}

#[test]
fn no_verb_starts_a_watcher_after_down_or_without_a_team() {
    let team = Team::with(&["conductor"], "");
    // Nothing is up yet.
    let said = team.bed.run("send --as operator --to conductor -m news").stderr;
    said.has(["`ensemble up conductor` starts it"]);
    team.up();
    team.bed.ok("down --force");
    for line in ["send --as operator --to conductor -m news", "status", "team", "inbox conductor"] {
        let ran = team.bed.run(line);
        assert!(ran.code == 0, "{line}: {ran:?}");
        assert_eq!(team.watcher(), None, "{line}");
        assert!(team.panes().is_empty(), "{line}");
    }
}

#[test]
#[ignore = "long"]
fn mail_starts_its_reader_until_the_limit_of_the_day() {
    let team = Team::with(&["worker-1"], "");
    let yaml = team.bed.project().join("ensemble.yaml");
    let reader = format!(
        "  reader: {{command: 'sh here/puppet.sh', env: {{HERE: {}, E: {}}}, start_on_mail: true, mail_starts_max: 1}}\n",
        team.here("").display(),
        program().display()
    );
    team.bed.ok("up worker-1");
    fs::write(&yaml, fs::read_to_string(&yaml).unwrap() + &reader).unwrap();
    // The watcher that runs has not read this; `up` starts another one.
    team.bed.ok("up worker-1");
    let sent = team.bed.run("send --to reader -m hello");
    sent.ends(0).says(["the watcher starts it for this message"]);
    team.wait_for_puppet("reader");
    assert_eq!(team.records("agent.mail_start").len(), 1);
    assert_eq!(team.order("reader", "$E recv --body").stdout, "hello");
    // It ends, and its limit is reached.
    let pane = team.pane("reader");
    let binding = team.server().bind(&pane.id).unwrap();
    kill(binding.pid);
    eventually("it is seen gone", || {
        let sent = team.bed.run("send --to reader -m again");
        sent.stderr.contains("as often as it may today (1)")
    });
    eventually("the person is asked", || {
        team.bed.ok("status").contains("mail waits for reader, which is not running")
    });
    assert_eq!(team.records("agent.mail_start").len(), 1);
}

const AGENTS: [&str; 3] = ["conductor", "worker-1", "worker-2"];

fn processes(team: &Team) -> BTreeMap<String, (u32, bool)> {
    let panes = team.panes();
    let named = panes.iter().filter_map(|pane| {
        let (name, _) = pane.member.as_ref()?;
        Some((name.to_string(), (pane.pid, pane.dead)))
    });
    named.collect()
}

#[track_caller]
fn is_found(team: &Team, session: &str) -> Vec<Value> {
    let before = processes(team);
    assert_eq!(before.len(), AGENTS.len(), "{before:?}");
    let again = team.up();
    again[0].fits(json!({
        "session": session, "session_state": "running", "watcher_state": "running",
    }));
    for name in AGENTS {
        assert_eq!(of(&again, name)["how"], "running", "{again:#?}");
    }
    assert_eq!(processes(team), before);
    assert_eq!(team.records("agent.remains").len(), 0);
    again
}

#[test]
fn a_renamed_session_and_moved_windows_are_the_same_team() {
    let team = Team::new();
    team.up();
    for name in AGENTS {
        team.wait_for_puppet(name);
    }
    let run = |arguments: &[&str]| team.server().run(arguments).unwrap();
    let id = |name: &str| team.pane(name).id;
    run(&["rename-session", "-t", "=crew", "re named"]);
    is_found(&team, "re named");
    // Another session of the old name is a person's own.
    run(&["new-session", "-d", "-s", "crew", "exec sleep 1000"]);
    run(&["move-window", "-s", &id("worker-1"), "-t", "crew:9"]);
    run(&["join-pane", "-d", "-s", &id("worker-2"), "-t", &id("conductor")]);
    is_found(&team, "re named");
    run(&["break-pane", "-d", "-s", &id("worker-2")]);
    is_found(&team, "re named");
    // Mail and orders arrive as before.
    team.order("worker-1", "$E agent whoami --json").shows(["\"worker-1\""]);
    // One that ends starts again where it is, and a new one in the team's session.
    super::kill(team.pane("worker-1").pid);
    eventually("the pane is dead", || team.pane("worker-1").dead);
    assert_eq!(of(&team.up(), "worker-1")["how"], "restarted");
    let start = ["agent", "start", "tester", "--command", "exec sleep 1000"];
    assert_eq!(to_end(&mut team.bed.command(&start)).code, 0);
    let home = team.pane("conductor").session;
    assert_eq!(team.pane("tester").session, home);

    let ended = processes(&team);
    assert_eq!(ended.len(), AGENTS.len() + 1, "{ended:?}");
    team.bed.ok("down --force").has(["session re named closed, watcher stopped"]);
    for (name, (pid, _)) in ended {
        assert_ne!(fate(pid), ProcessFate::Lives, "{name}");
    }
    let left = team.server().panes().unwrap();
    let sessions: Vec<&str> = left.iter().map(|pane| pane.session.as_str()).collect();
    assert_eq!(sessions, ["crew"], "only the person's own pane is left: {left:#?}");
}

#[test]
fn a_team_seen_through_a_second_session_leaves_nothing_behind() {
    let team = Team::with(&["conductor"], "");
    team.up();
    team.wait_for_puppet("conductor");
    let before = processes(&team);
    team.server().run(&["new-session", "-d", "-t", "crew", "-s", "beside"]).unwrap();
    team.server().run(&["rename-session", "-t", "=crew", "other"]).unwrap();
    assert_eq!(of(&team.up(), "conductor")["how"], "running");
    assert_eq!(processes(&team), before);
    let socket = team.server().socket().to_owned();
    team.bed.ok("down --force").has(["session other closed"]);
    assert!(!socket.exists(), "{}", socket.display());
    assert!(team.panes().is_empty());
}
