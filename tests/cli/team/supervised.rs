//! Supervised agents are members like others: their supervisor speaks for them, and nothing is typed into
//! its terminal.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Team, holds, kill};
use crate::bed::{
    Bed, JsonMembers as _, SaidText as _, end, git, objects, program, terminate, to_end,
    write_program,
};
use crate::tmux_support::eventually;

/// Far less than the deadline of a shutdown request, after which the agent is ended by force.
const SOON: Duration = Duration::from_secs(60);

/// Saves its prompt, waits for the file `go`, and submits its work.
const AGENT: &str = r#"
cat >"$HERE/prompt-$ENSEMBLE_TASK_ID"
until [ -e "$HERE/go" ]; do sleep 0.1; done
echo work >>done.txt
git add --all
git commit --quiet -m work
"$E" task submit "$ENSEMBLE_TASK_ID"
"#;

fn status(bed: &Bed, task: &str) -> String {
    let task = ensemble_core::message::Name::new(task).unwrap();
    bed.board().task(&task).unwrap().status.as_str().to_owned()
}

/// A team of one supervised coder, a worker and a board. The regular look comes too late for any test.
fn team() -> Team {
    team_with("sh HERE/agent.sh")
}

/// The same with another command; `HERE` stands for the team's directory of scripts.
fn team_with(command: &str) -> Team {
    let supervise = |here: &str| {
        let command = command.replace("HERE", here);
        format!(
            "  coder-1: {{role: coder, command: '{} agent supervise --role coder --poll 1s -- {command}', env: \
             {{HERE: {here}, E: {}}}}}\npoll_interval: 900\n",
            program().display(),
            program().display()
        )
    };
    let team = Team::with(&["worker-1"], "");
    let here = team.bed.project().join("here");
    fs::write(here.join("agent.sh"), AGENT).unwrap();
    let noting = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$HERE/args\"\n{AGENT}");
    write_program(here.join("claude"), noting);
    team.bed.add_config(&supervise(here.to_str().unwrap()));
    git(&team.bed.project(), "init --quiet -b main");
    git(&team.bed.project(), "config user.name test");
    git(&team.bed.project(), "config user.email test@example.org");
    git(&team.bed.project(), "commit --quiet --allow-empty -m begin");
    git(&team.bed.project(), "branch integration");
    team.bed.ok("board init");
    team.up();
    team
}

fn add(team: &Team, task: &str) {
    team.bed.ok(&format!("task add {task} -d count --spec s.md --done-when works"));
}

fn screen(team: &Team, name: &str) -> String {
    let socket = team.bed.project().join(".ensemble/tmux.sock");
    let mut tmux = std::process::Command::new("tmux");
    tmux.arg("-S").arg(socket).args(["capture-pane", "-p", "-S", "-", "-t", &team.pane(name).id]);
    to_end(&mut tmux).stdout
}

#[test]
fn an_idle_supervised_agent_agrees_to_its_shutdown_at_once() {
    let team = team();
    team.wait_for_evidence("coder-1", "idle", "supervised: no agent runs");
    let begun = Instant::now();
    let asked = team.bed.run("request shutdown coder-1 --as operator --wait 110s");
    asked.ends(0).shows(["approved by coder-1", "it has no work"]);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let row = team.member("coder-1");
    assert_eq!((&row["state"], &row["ended"]["how"]), (&"shutdown".into(), &"approved".into()));
    assert!(team.bed.board().agents.is_empty());
    // Its question was settled.
    let done = fs::read_dir(team.bed.mailbox("coder-1/done")).unwrap().count();
    assert_eq!(done, 1, "the question");
}

#[test]
fn a_busy_supervised_agent_finishes_its_task_first_and_claims_nothing() {
    let team = team();
    add(&team, "t1");
    let row = team.wait_for_state("coder-1", "working");
    eventually("it holds t1", || team.member("coder-1")["tasks"] == serde_json::json!(["t1"]));
    row.fits(json!({ "came": "started", "way_in": "prompt" }));
    // The watcher says the same, and so do status and the page.
    eventually("the watcher has seen it", || {
        team.records("agent.state").iter().any(|r| r["agent"] == "coder-1" && r["to"] == "working")
    });
    let status_object: Value = team.bed.json("status").pop().unwrap();
    assert_eq!(status_object["holds"]["coder-1"][0]["task_id"], "t1");
    assert!(team.bed.ok("log report -o -").contains("t1"), "the page shows what is held");

    let asker = team.bed.start("request shutdown coder-1 --as operator --wait 110s");
    eventually("it has heard of the request", || {
        screen(&team, "coder-1").contains("it finishes `t1` first and claims nothing")
    });
    add(&team, "t2");
    fs::write(team.here("go"), "").unwrap();
    end(asker).ends(0).shows(["t1 is finished"]);
    assert_eq!(status(&team.bed, "t1"), "READY_FOR_REVIEW");
    assert_eq!(status(&team.bed, "t2"), "UNCLAIMED");
}

#[test]
fn near_the_deadline_a_busy_supervised_agent_hands_its_task_over() {
    let team = team();
    add(&team, "t1");
    team.wait_for_state("coder-1", "working");
    let asked = team.bed.run("request shutdown coder-1 --as operator --deadline 40s --wait 110s");
    asked.ends(0).shows(["t1 is handed over"]);
    assert_eq!(status(&team.bed, "t1"), "UNCLAIMED");
    let notes = team.bed.board().handoff;
    let notes = notes.values().next().expect("notes for the next agent");
    assert!(notes["summary"].as_str().unwrap().contains("shut down by operator"), "{notes:?}");
}

#[test]
fn mail_stands_in_the_next_prompt_and_nothing_is_typed_into_the_terminal() {
    let team = team();
    team.wait_for_evidence("coder-1", "idle", "supervised");
    let text = ["send", "--to", "coder-1", "-m", "please use base 2", "--as", "operator"];
    let sent = to_end(&mut team.bed.command(&text));
    sent.ends(0);
    eventually("the watcher has not typed it", || {
        team.records("nudge.deferred").iter().any(|r| r["reason"] == "supervised")
    });
    add(&team, "t1");
    let prompt = team.here("prompt-t1");
    eventually("the agent has its prompt", || holds(&prompt, "Later mail:"));
    let text = fs::read_to_string(&prompt).unwrap();
    text.has(["=== MAIL ===", "\n```\nplease use base 2\n```\n"]);
    let id = sent.stdout.trim();
    text.has(["message from operator, who runs this team, "]);
    text.has([&format!("REPLY: ensemble reply {id} \"TEXT\"\n")]);
    eventually("it is settled", || team.bed.mailbox(&format!("coder-1/done/{id}.yaml")).exists());
    assert!(team.records("nudge.sent").iter().all(|record| record["agent"] != "coder-1"));
    screen(&team, "coder-1").lacks(["ensemble recv", "message for"]);
    // Typed lines stay away also when mail comes while the agent works.
    team.bed.ok("send --to coder-1 -m again --as operator");
    assert_eq!(team.wait_for_state("coder-1", "working")["tasks"], serde_json::json!(["t1"]));
}

#[test]
fn a_supervised_program_with_hooks_gets_ours_and_its_tools() {
    let team = team_with("HERE/claude --model x");
    add(&team, "t1");
    team.wait_for_state("coder-1", "working");
    eventually("the agent runs", || team.here("prompt-t1").exists());
    let args = fs::read_to_string(team.here("args")).unwrap();
    let [settings, servers, model, name] = args.lines().collect::<Vec<_>>()[..] else {
        panic!("{args}")
    };
    assert_eq!((model, name), ("--model", "x"));
    let settings = fs::read_to_string(settings.strip_prefix("--settings=").unwrap()).unwrap();
    settings.has([" hook stop --provider claude"]);
    fs::read_to_string(servers.strip_prefix("--mcp-config=").unwrap()).unwrap().has(["\"mcp\""]);
    fs::write(team.here("go"), "").unwrap();
    eventually("it is handed in", || status(&team.bed, "t1") == "READY_FOR_REVIEW");
}

#[test]
fn the_end_of_an_agent_is_seen_at_once() {
    let team = team();
    team.wait_for_puppet("worker-1");
    team.wait_for_evidence("coder-1", "idle", "supervised");
    let is_gone = |name: &str| {
        team.records("agent.state").iter().any(|r| r["agent"] == name && r["to"] == "gone")
    };
    for name in ["worker-1", "coder-1"] {
        assert!(!is_gone(name));
        kill(team.pane(name).pid);
        // The regular look comes after 15 minutes.
        eventually(&format!("the watcher has seen the end of {name}"), || is_gone(name));
        team.wait_for_state(name, "gone");
    }
}

#[test]
fn a_supervisor_outside_of_the_panes_is_a_row_and_answers_too() {
    let bed = Bed::new();
    bed.begin_repository();
    bed.ok("board init");
    bed.add_task("t1");
    let line = "agent supervise --role coder --id coder-1 --poll 1s -- sleep 600";
    let mut supervisor = bed.start(line);
    let row = || bed.json("team").into_iter().find(|row| row["agent"] == "coder-1");
    let mut last = Value::Null;
    eventually("its row says that it works", || {
        let ran = bed.run("team coder-1 --json");
        last = objects(&ran.stdout).pop().unwrap_or_default();
        last["state"] == "working" && last["tasks"] == serde_json::json!(["t1"])
    });
    last.fits(json!({ "came": "supervised", "role": "coder", "supervisor": supervisor.id() }));
    // Its name is its own.
    bed.fails(1, "send --to w1 -m x --as coder-1").has(["only its own pane may use that name"]);
    let asked = bed.run("request shutdown coder-1 --deadline 20s --wait 100s");
    asked.ends(0).shows(["t1 is handed over"]);
    assert_eq!(supervisor.wait().unwrap().code(), Some(0));
    assert_eq!(row().unwrap()["state"], "shutdown");

    // A board agent without a supervisor is a row, too, and its name is not guarded.
    bed.ok("agent register --role coder --as bob");
    bed.ok("task claim t1 --as bob");
    let bob = bed.object("team bob");
    bob.fits(json!({ "state": "working", "came": "registered" }));
    assert_eq!(bed.object("agent whoami --as bob")["holds"][0]["task_id"], "t1");

    // A killed supervisor is gone, and the next one takes the name over.
    let mut killed = bed.start("agent supervise --role coder --id coder-1 -- sleep 600");
    eventually("it is up", || row().unwrap()["state"] == "idle");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(row().unwrap()["state"], "gone");
    let next = bed.start("agent supervise --role coder --id coder-1 -- sleep 600");
    eventually("the next one is up", || row().unwrap()["state"] == "idle");
    terminate(next);
    assert_eq!(row().unwrap()["ended"]["how"], "exited");
}

#[test]
fn a_worker_stops_no_other_agent_unless_the_configuration_says_so() {
    let team = Team::new();
    team.bed.ok("board init");
    team.up();
    for (line, act) in [
        ("$E down", "take the team down"),
        ("$E request shutdown worker-2", "ask another agent to shut down"),
        ("$E request shutdown --all", "ask another agent to shut down"),
        ("$E board abort", "abort the sprint"),
        ("$E resume", "let the team continue"),
    ] {
        team.order("worker-1", line).ends(1).says([&format!("may not {act}: `authority")]);
    }
    assert_eq!(team.records("authority.refused").len(), 5);
    // A request that is put down by hand is withdrawn by the watcher.
    let ran = team.order(
        "worker-1",
        "mkdir -p queue/tmp/byhand && printf 'kind: shutdown\\nrequest_id: byhand\\nfrom: worker-1\\nto: worker-2\\n\
         created_at: 2026-01-01T00:00:00Z\\ndeadline_seconds: 99999999\\nat_expiry: force\\ncontent: go\\n' >queue/tmp/byhand/request.yaml && mv queue/tmp/byhand queue/requests/byhand",
    );
    ran.ends(0);
    eventually("it is withdrawn", || {
        team.bed.object("request list byhand")["state"] == "cancelled"
    });
    let comment = team.bed.object("request list byhand")["comment"].to_string();
    comment.has(["may not ask another agent to shut down"]);

    // The conductor may, and whom the configuration names.
    team.order("conductor", "$E request shutdown worker-2 --deadline 1s --wait 100s").ends(0);
    team.bed.add_config("authority: {abort: [worker-1]}\n");
    assert_eq!(team.order("worker-1", "$E board abort").code, 0);
}
