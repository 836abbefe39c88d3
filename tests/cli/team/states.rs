//! The state of each member, from what a real pane, a real queue and the roster show.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::Team;
use crate::bed::{JsonMembers as _, words};
use crate::tmux_support::eventually;

const CODER: &str = "agent start coder --provider claude --command";

pub(super) fn with_claude(view: &str) -> Team {
    let team = Team::with(&["conductor"], "hooks: {providers: []}\n");
    let bin = team.here("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["claude", "bash"] {
        symlink("/bin/sh", bin.join(program)).unwrap();
    }
    let dir = team.here("claude");
    fs::create_dir(&dir).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fake_agent.sh");
    let command = format!(
        "{} {} claude {view} {}",
        bin.join("claude").display(),
        script.display(),
        dir.display()
    );
    team.up();
    let mut spawn = team.bed.command(&[&words(CODER)[..], &[&command]].concat());
    assert!(spawn.output().unwrap().status.success());
    eventually("it runs", || dir.join("running").exists());
    team
}

#[test]
#[ignore = "long"]
fn what_an_agent_shows_is_its_state() {
    for (view, state, said) in [
        ("ready", "idle", "ready"),
        ("busy", "working", "busy"),
        ("busy-draft", "working", "draft"),
        ("permission", "blocked", "permission"),
        ("trust", "blocked", "trust"),
        ("login", "blocked", "login"),
        ("limited", "limited", "resets "),
    ] {
        let team = with_claude(view);
        // A screen that is half drawn may show the same state by other evidence.
        team.wait_for_evidence("coder", state, said);
        // Holding something does not change what can be seen.
        team.bed.ok("send --as operator --to coder --task task-1 -m work");
        assert_eq!(team.member("coder")["unread"], 1);
    }
}

/// An earlier watcher has typed a line, and the mail has arrived by another way.
#[test]
fn an_unsent_line_is_taken_back_and_a_persons_words_are_not() {
    let team = with_claude("ready");
    team.wait_for_state("coder", "idle");
    let line = "ensemble: 2 messages for coder. Run: ensemble recv --as coder";
    let pane = team.pane("coder").id;
    let keys = |keys: &[&str]| {
        let command = [&["send-keys", "-t", &pane], keys].concat();
        team.server().run(&command).unwrap();
    };
    let screen =
        || team.server().run(&["capture-pane", "-p", "-J", "-t", &pane]).unwrap().join("\n");
    let leave = || {
        let mark = format!("1 {line}");
        team.server().run(&["set-option", "-p", "-t", &pane, "@ensemble_typed", &mark]).unwrap();
        keys(&["-l", "--", line]);
    };
    leave();
    eventually("it is taken back", || {
        fs::read(team.here("claude/received")).unwrap().contains(&0x7f)
    });
    eventually("it is gone", || !screen().contains("ensemble: 2"));
    // A person has typed behind another one before the watcher looks.
    let count =
        || fs::read(team.here("claude/received")).unwrap().iter().filter(|b| **b == 0x7f).count();
    let taken_back = count();
    let mark = format!("1 {line}");
    team.server().run(&["set-option", "-p", "-t", &pane, "@ensemble_typed", &mark]).unwrap();
    keys(&["-l", "--", &format!("{line}fix the login bug")]);
    let row = team.wait_for_state("coder", "blocked");
    assert!(row["why"].as_str().unwrap().contains("with your words behind it"), "{row}");
    assert!(team.bed.ok("team").contains("coder waits for a person"), "{}", team.bed.ok("team"));
    assert!(screen().contains("fix the login bug"), "{}", screen());
    assert_eq!(count(), taken_back, "nothing was taken from a person");
}

#[test]
fn a_script_works_while_it_holds_something_and_mail_that_it_does_not_take_comes_first() {
    let team = Team::with(&["worker-1"], "");
    team.up();
    let idle = team.wait_for_state("worker-1", "idle");
    assert_eq!(idle["tasks"], serde_json::json!([]));
    // `team` looks for itself; the watcher may not have looked yet.
    let recorded = |about: serde_json::Value| {
        let about = about.as_object().expect("fields");
        let all = team.records("agent.state");
        all.iter().any(|record| about.iter().all(|(field, value)| record[field] == *value))
    };
    let is_idle = serde_json::json!({ "agent": "worker-1", "to": "idle" });
    eventually("the watcher has seen it idle", || recorded(is_idle.clone()));
    team.bed.ok("send --as operator --to worker-1 --id work --task task-7 -m work");
    assert_eq!(team.order("worker-1", "$E recv").code, 0);
    let working = team.member("worker-1");
    working.fits(json!({ "state": "working", "why": "holds task-7", "tasks": ["task-7"] }));
    let works = serde_json::json!({ "agent": "worker-1", "from": "idle", "to": "working" });
    eventually("the watcher has seen it work", || recorded(works.clone()));
    eventually("since when", || team.member("worker-1")["since"].is_string());
    assert!(team.member("worker-1")["last_sign_of_life"].is_string());
    assert_eq!(team.order("worker-1", "$E settle work").code, 0);
    assert_eq!(team.member("worker-1")["state"], "idle");
    team.wait_for_puppet("worker-1");
    team.wait_for_state("worker-1", "idle");
    let shown = || team.bed.ok("team");
    assert!(!shown().contains("NEEDS YOU"), "{}", shown());
    let id = crate::reading::id_of_a_minute_ago();
    team.bed.ok(&format!("send --as operator --to worker-1 --id {id} -m work"));
    let warned = "NEEDS YOU: 1 · 1 agent\n!  mail waits for worker-1, which is idle";
    assert!(shown().contains(warned), "{}", shown());
    let line = team.member("worker-1");
    line.fits(json!({ "overdue": true, "watcher_running": true }));
    assert!(line["waited_seconds"].as_u64() >= Some(60), "{line}");
}

#[test]
fn who_has_asked_for_a_decision_waits_for_it() {
    let team = Team::with(&["conductor", "worker-1"], "");
    team.up();
    let asked = team.order("worker-1", "echo the plan >plan.md; $E request plan plan.md --json");
    asked.ends(0);
    let asked: serde_json::Value = serde_json::from_str(asked.stdout.trim()).unwrap();
    let id = asked["request_id"].as_str().unwrap();
    let line = team.wait_for_state("worker-1", "waiting");
    assert_eq!(line["why"], "waits for conductor to decide on its plan approval");
    // Holding something does not make it work: it waits.
    team.bed.ok("send --as operator --to worker-1 -m other");
    assert_eq!(team.order("worker-1", "$E recv").code, 0);
    assert_eq!(team.member("worker-1")["state"], "waiting");
    // It cannot approve its own plan under another name, and the conductor can.
    let own = team.order("worker-1", &format!("$E request answer {id} --approve --as conductor"));
    own.ends(1).says(["this is worker-1"]);
    assert_eq!(team.order("conductor", &format!("$E request answer {id} --approve")).code, 0);
    assert_eq!(team.wait_for_state("worker-1", "working")["unread"], 1);
}

#[test]
fn who_was_shut_down_is_not_gone_and_who_left_is() {
    let team = Team::new();
    team.up();
    // As the driver of a shutdown records it.
    let roster = ensemble_team::roster::Roster::open(&team.bed.project().join(".ensemble"));
    let name = ensemble_core::message::Name::new("worker-1").unwrap();
    let pane = team.pane("worker-1");
    team.server().kill_pane(&pane.id).unwrap();
    assert_eq!(team.member("worker-1")["state"], "gone");
    roster
        .change(&name, |member| {
            let mut member = member.expect("a member");
            member.state = ensemble_team::roster::MemberState::Shutdown;
            member.ended = Some(ensemble_team::roster::MemberEnd::new(
                member.since,
                ensemble_team::roster::EndCause::Approved,
            ));
            Ok(Some(member))
        })
        .unwrap();
    team.member("worker-1").fits(json!({ "state": "shutdown", "why": "approved" }));
    // Its name is free for a process outside of the team now.
    assert_eq!(team.bed.run("recv --as worker-1").code, 3);
    // A new start is a new generation.
    let again = team.up();
    assert_eq!(super::of(&again, "worker-1")["generation"], 2);
    assert_eq!(team.member("worker-1")["state"], "idle");
}

#[test]
fn a_shell_in_an_agents_place_is_no_agent() {
    let team = Team::with(&["conductor"], "");
    team.up();
    let mut spawn =
        team.bed.command(&[&words(CODER)[..], &["exec bash --norc --noprofile -i"]].concat());
    assert!(spawn.output().unwrap().status.success());
    // An early look sees the shell that starts it.
    team.wait_for_evidence("coder", "gone", "bash runs in its pane");
}
