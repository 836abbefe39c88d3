//! What a person sees and says is about the whole team: one situation in every view, one deadline for all agents.

use std::fs;
use std::process::Command;
use std::time::Duration;

use ensemble_core::event_log::RecordType;
use ensemble_core::message::Timestamp;

use super::Team;
use super::states::with_claude;
use crate::bed::{SaidText as _, land};
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
    needs(&status).join("\n").has(["coder waits for a person"]);
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

const CONFIG: &str = "readiness: {wait: 120}\nladder: {phase: 1, ceiling: 0}\n";

#[test]
fn an_ordinary_session_writes_every_type_of_event() {
    let team = Team::with(&["worker-1", "worker-2"], CONFIG);
    team.up();
    let (bed, queue) = (&team.bed, team.bed.project().join("queue"));
    let has = |kind: &str, count: usize| team.records(kind).len() == count;
    bed.write_file("task.md", "count the lines\n");
    team.wait_for_puppet("worker-1");
    // A pong that waits for its ping answers it, no matter what the puppet does with the line.
    let assign = |task: &str, worker: &str, takes: bool| {
        let child = bed.start(&format!("assign {worker} -f task.md --task {task}"));
        let ready = bed.project().join(".ensemble/ready");
        eventually("it is asked", || ready.join(format!("{worker}.ping")).exists());
        fs::write(ready.join(format!("{worker}@1.pong")), "").unwrap();
        if takes {
            eventually("it is delivered", || {
                queue.join(format!("mailbox/{worker}/new/{task}.1.yaml")).exists()
            });
            land(bed, &format!("ack/{task}.ack"), &format!("{worker}\n"));
        }
        child.wait_with_output().unwrap().status.code()
    };
    assert_eq!(assign("t-1", "worker-1", true), Some(0));
    land(bed, "reports/t-1-completed.yaml", "task_id: t-1\nworker_id: 1\nstatus: success\n...\n");
    eventually("a drop-box report ends its task", || has("task_complete", 1));
    bed.ok("report t-2 --status failed --reason x --lint off --as conductor");
    assert!(has("task_failed", 1));
    bed.ok("task review t-1 --start --as conductor");
    assert!(has("review_start", 1) && has("review_result", 0));
    for round in 1..=3 {
        let review =
            format!("task_id: t-1\nreviewer: worker-2\nstatus: needs_fix\nround: {round}\n...\n");
        land(bed, "reports/t-1-review.yaml", &review);
        eventually("a drop-box review is counted", || has("review_result", round));
    }
    assert!(has("review_start", 4) && has("loop_detected", 1));
    assert_eq!(assign("t-3", "worker-2", false), Some(1));
    bed.run("request shutdown worker-2 --as conductor --deadline 1s --wait 10m").ends(0);
    bed.ok("down --force");
    let all = || bed.json("log");
    let missing = || -> Vec<_> {
        let kinds: Vec<String> =
            all().iter().map(|r| r["type"].as_str().unwrap().to_owned()).collect();
        let seed = RecordType::SEED.into_iter();
        seed.filter(|kind| !kinds.iter().any(|known| known == kind.as_str())).collect()
    };
    eventually(&format!("no type is missing: {:?}", missing()), || missing().is_empty());
    assert!(has("task_complete", 1), "once for each end");
    bed.ok("log replay");
}
