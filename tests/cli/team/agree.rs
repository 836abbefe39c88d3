//! What a person sees and says is about the whole team: one situation in every view, one deadline for all agents.

use std::process::Command;
use std::time::Duration;

use ensemble_core::message::Timestamp;

use super::Team;
use super::states::with_claude;
use crate::live::Screen;
use crate::tmux_support::eventually;

fn shown(printed: &str, agent: &str) -> String {
    let rows = printed.lines().filter(|line| !line.contains("-> `"));
    let mut rows = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&agent)).unwrap_or_else(|| panic!("{printed}"));
    row[2].to_owned()
}

#[test]
fn status_team_and_the_live_view_say_the_same_while_the_state_changes() {
    let team = with_claude("ready");
    team.wait_for_evidence("coder", "idle", "ready");
    let is_idle = |team: &Team| {
        let all = team.records("agent.state");
        all.iter().any(|record| record["agent"] == "coder" && record["to"] == "idle")
    };
    eventually("the watcher has seen it, and looks again in half a minute", || is_idle(&team));
    let top = Screen::start(&team.bed.project(), "top", (110, 30));
    top.shows("coder");
    assert_eq!(shown(&team.bed.ok("status"), "coder"), "idle");
    // It asks for a permission: no file changes.
    let mut keys = Command::new("tmux");
    keys.arg("-S").arg(team.server().socket());
    keys.args(["send-keys", "-t", &team.pane("coder").id, "C-^"]);
    assert!(keys.status().unwrap().success());
    eventually("it asks", || team.member("coder")["state"] == "blocked");
    let (status, table) = (team.bed.ok("status"), team.bed.ok("team"));
    assert_eq!(shown(&table, "coder"), "blocked");
    let needs = |printed: &str| -> Vec<String> {
        let all = printed.lines().filter_map(|line| line.split_once("  -> `"));
        // Without its age, which a need has from its first second on.
        all.map(|(need, _)| need.split(" (").next().unwrap().to_owned()).collect()
    };
    assert_eq!(needs(&status), needs(&table));
    assert!(
        needs(&status).iter().any(|need| need.contains("coder waits for a person")),
        "{status}"
    );
    top.shows("coder waits for a person");
}

#[test]
fn a_deadline_of_down_is_that_of_all_agents_together() {
    let team = Team::with(&["conductor", "worker-1"], "");
    team.up();
    for name in ["conductor", "worker-1"] {
        team.wait_for_puppet(name);
    }
    team.bed.run("down --deadline 3s").ends(0);
    let asked = team.bed.json("request list");
    let at = |request: &serde_json::Value, field: &str| -> Timestamp {
        request[field].as_str().unwrap().parse().unwrap()
    };
    let had = asked.iter().map(|it| at(it, "deadline_at").since(at(it, "created_at")));
    let had: Vec<Duration> = had.collect();
    assert_eq!(had, [Duration::from_secs(3), Duration::ZERO], "the Conductor is asked last");
    assert_eq!(team.bed.ok("inbox"), "mailbox operator is empty\n", "it has shown the answers");
}
