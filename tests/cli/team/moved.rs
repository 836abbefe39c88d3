//! A person renames the team's session and moves its windows: the team is the same.

use std::collections::BTreeMap;

use ensemble_tmux::reaper::{ProcessFate, fate};
use serde_json::{Value, json};

use super::{Team, of};
use crate::bed::{JsonMembers as _, SaidText as _, to_end};
use crate::tmux_support::eventually;

const AGENTS: [&str; 3] = ["conductor", "worker-1", "worker-2"];

fn processes(team: &Team) -> BTreeMap<String, (u32, bool)> {
    let panes = team.panes();
    let named = panes.iter().filter_map(|pane| {
        let (name, _) = pane.member.as_ref()?;
        Some((name.to_string(), (pane.pid, pane.dead)))
    });
    named.collect()
}

/// Brings the team up again, which must find it running.
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
