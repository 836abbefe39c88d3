//! Agents that leave: willingly, unwillingly, not at all; and a team that goes down and comes back.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ensemble_core::durable::FileLock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::hooked::hooked;
use super::{Team, holds, kill, of};
use crate::bed::{Bed, end, objects, program};
use crate::tmux_support::eventually;

/// Says no to every request for its shutdown, and works on.
const STUBBORN: &str = r#"
while :; do
    mail=$("$ENSEMBLE" recv --wait 60s --json 2>/dev/null) || continue
    id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
    case $mail in *shutdown_request*) "$ENSEMBLE" request answer "${id%.*}" --reject --reason 'not yet' ;; esac
    "$ENSEMBLE" settle "$id" >/dev/null
    echo "$id" >>"$DEMO/stubborn.read"
done
"#;

/// Hears nothing, ignores what can be ignored, and has children here and elsewhere.
const DEAF: &str = r#"
trap '' TERM HUP
: >"$DEMO/deaf.pids"
sleep 100000 & echo $! >>"$DEMO/deaf.pids"
(setsid sh -c 'echo $$ >>"$DEMO/deaf.pids"; exec sleep 100000' &)
echo $$ >>"$DEMO/deaf.pids"
while :; do wait; done
"#;

fn six() -> Team {
    let bed = Bed::empty();
    bed.ok("init");
    let here = bed.project().join("here");
    let work = here.join("work");
    fs::create_dir_all(&work).unwrap();
    fs::write(work.join("a.rs"), "one\ntwo\n").unwrap();
    fs::write(work.join("b.md"), "three\n").unwrap();
    let task =
        |id, files| format!("  - {{id: {id}, instruction: count the lines, files: \"{files}\"}}\n");
    let (rust, docs) = (task("count-rust", "*.rs"), task("count-docs", "*.md"));
    let instruction = format!("type: start_workers\nworker_count: 2\ntasks:\n{rust}{docs}...\n");
    fs::write(here.join("instruction.yaml"), instruction).unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo");
    for script in ["conductor", "dispatch", "worker"] {
        fs::copy(demo.join(format!("{script}.sh")), here.join(format!("{script}.sh"))).unwrap();
    }
    fs::write(here.join("stubborn.sh"), STUBBORN).unwrap();
    fs::write(here.join("deaf.sh"), DEAF).unwrap();
    let mut text = "durability: process\nteam: {name: crew}\nagents:\n".to_owned();
    for (name, command) in [
        ("conductor", "conductor.sh"),
        ("dispatch", "dispatch.sh"),
        ("worker-1", "worker.sh worker-1"),
        ("worker-2", "worker.sh worker-2"),
        ("stubborn", "stubborn.sh"),
        ("deaf", "deaf.sh"),
    ] {
        text += &format!(
            "  {name}: {{command: 'sh here/{command}', env: {{ENSEMBLE: {}, QUEUE: {}, \
             DEMO: {}, WORK: {}}}}}\n",
            program().display(),
            bed.project().join("queue").display(),
            here.display(),
            work.display()
        );
    }
    bed.write_file("ensemble.yaml", text);
    Team { bed }
}

fn deaf_pids(team: &Team) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(team.here("deaf.pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("the deaf one and its children run", || read().len() == 3);
    read()
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn of_this_team(team: &Team) -> Vec<String> {
    let mark = format!("ENSEMBLE_QUEUE={}", team.bed.project().join("queue").display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

/// Once a team went down: at most the watcher, which does nothing any more, is about to end.
#[track_caller]
fn no_process_is_left(team: &Team) {
    let left = of_this_team(team);
    assert!(left.iter().all(|line| line.contains(" watch ")), "{left:?}");
    eventually("the watcher has ended", || of_this_team(team).is_empty());
}

#[test]
#[ignore = "long"]
fn a_team_of_six_works_shrinks_goes_down_and_comes_back() {
    let team = six();
    assert_eq!(team.up().len(), 7);
    let summary = team.bed.project().join("queue/reports/completion-summary.yaml");
    eventually("the work is done", || holds(&summary, "2 of 2 tasks (100%) are done"));

    // One says no and works on.
    let pid = team.pane("stubborn").pid;
    let no = team.bed.run("request shutdown stubborn --as operator --wait 10m");
    no.ends(1).says(["not yet"]);
    team.bed.ok("send --as operator --to stubborn --id more -m work");
    eventually("it reads on", || holds(&team.here("stubborn.read"), "more"));
    assert_eq!((team.pane("stubborn").pid, lives(pid)), (pid, true));

    // One does not respond and is killed with its children, and its mail is returned.
    let pids = deaf_pids(&team);
    team.bed.ok("send --as conductor-of-old --to deaf --id unread -m hello");
    let gone = team.bed.run("request shutdown deaf --as operator --deadline 1s --wait 10m");
    gone.ends(0).shows(["deaf has gone"]);
    assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
    assert_eq!(team.member("deaf")["state"], "shutdown");
    let released = team.records("worker_release");
    assert_eq!((released.len(), &released[0]["worker_id"]), (1, &Value::from("deaf")));
    assert_eq!(released[0]["how"], "forced");
    assert!(!team.bed.ok("dead list --json").contains(".request"), "questions are no dead letters");

    // It comes back alone, and this time its mail waits for it.
    fs::remove_file(team.here("deaf.pids")).unwrap();
    assert_eq!(of(&team.bed.json("up deaf"), "deaf")["generation"], 2);
    let pids = deaf_pids(&team);
    team.bed.ok("send --as operator --to deaf --id waits -m hello");

    // An agent that rejects keeps the agents that it needs. Long enough for those that answer,
    // which are woken first.
    let down = team.bed.run("down --deadline 15s --json");
    down.ends(1);
    let fates = objects(&down.stdout);
    for (agent, state) in [
        ("worker-1", "gone"),
        ("worker-2", "gone"),
        ("deaf", "gone"),
        ("stubborn", "stayed"),
        ("dispatch", "unasked"),
        ("conductor", "unasked"),
    ] {
        assert_eq!(of(&fates, agent)["state"], state, "{fates:#?}");
    }
    down.says(["still there: "]);
    assert_eq!(of(&fates, "worker-1")["detail"], "approved");
    assert!(lives(pid) && pids.iter().all(|pid| !lives(*pid)));

    // Nothing is left.
    let server = team.server().pid().unwrap();
    let down = team.bed.run("down --force");
    assert_eq!((down.code, down.stderr.as_str()), (0, ""), "{down:?}");
    no_process_is_left(&team);
    assert!(!team.server().socket().exists());
    eventually("the server, which answers no more, has ended", || !lives(server));
    assert!(team.bed.json("team").iter().all(|member| member["state"] == "shutdown"));
    assert_eq!(team.bed.json("team").len(), 6);

    // The same team, with its mail.
    let up = team.up();
    assert_eq!(up.len(), 7);
    assert!(up[1..].iter().all(|agent| agent["how"] == "started"), "{up:#?}");
    assert_eq!(team.member("deaf")["unread"], 1);
    assert!(team.bed.mailbox("deaf/new/waits.yaml").exists());
    team.bed.ok("down --force");
    no_process_is_left(&team);
}

#[test]
fn down_from_within_a_pane_takes_that_pane_along() {
    let team = Team::new();
    team.up();
    for name in ["conductor", "worker-1", "worker-2"] {
        team.wait_for_puppet(name);
    }
    team.order("conductor", "$E down --force").ends(0).shows(["the team is shutting down"]);
    let log = team.bed.project().join(".ensemble/down.log");
    eventually("it is down", || holds(&log, "session crew closed"));
    // The process that wrote the line was started by the conductor, and ends now.
    eventually("no process is left", || of_this_team(&team).is_empty());
}

#[test]
fn a_foreign_program_in_the_session_is_not_closed_unasked() {
    let team = Team::with(&["worker-1"], "");
    team.up();
    let pane = team.pane("worker-1").id;
    team.server().split(&pane, "exec sleep 100000").unwrap();
    let down = team.bed.run("down --deadline 0");
    down.ends(1).says(["something runs in"]);
    assert_eq!(team.member("worker-1")["state"], "shutdown");
    assert!(team.panes().iter().any(|pane| !pane.dead && pane.member.is_none()));
    team.bed.ok("down --force");
    assert!(!team.server().socket().exists());
}

/// As on a full disk: what cannot be stored must not keep the agents running.
#[test]
fn force_ends_a_team_whose_shutdown_cannot_be_stored() {
    let team = Team::with(&["worker-1"], "");
    team.up();
    team.wait_for_puppet("worker-1");
    let pid = team.pane("worker-1").pid;
    let requests = team.bed.project().join("queue/requests");
    fs::remove_dir_all(&requests).unwrap();
    fs::write(&requests, "").unwrap();
    let down = team.bed.run("down --force");
    down.ends(0).says(["could not be recorded"]);
    assert!(!lives(pid) && !team.server().socket().exists());
    fs::remove_file(&requests).unwrap();
    fs::create_dir(&requests).unwrap();
    team.bed.ok("down");
    assert_eq!(team.member("worker-1")["state"], "shutdown");
}

#[test]
fn an_agent_that_is_started_while_its_team_leaves_is_asked_as_well() {
    let team = Team::with(&["worker-1"], "");
    team.up();
    team.wait_for_puppet("worker-1");
    let state = team.bed.project().join(".ensemble");
    let row = state.join("roster/worker-1.yaml");
    let started = fs::read_to_string(&row).unwrap().replace("generation: 1", "generation: 2");
    let lock = FileLock::acquire(&state.join("locks/up.lock"), Duration::ZERO).unwrap();
    let down = team.bed.start("down --force");
    eventually("it has left", || team.member("worker-1")["state"] == "shutdown");
    fs::write(&row, started).unwrap();
    drop(lock);
    let down = end(down);
    assert_eq!((down.code, down.stdout.matches("worker-1").count()), (0, 2), "{down:?}");
    assert_eq!(team.member("worker-1")["state"], "shutdown");
}

/// The generation that was asked determines whom the decision is about, and not a wall clock.
#[test]
fn a_clock_that_was_set_back_since_the_start_forgets_no_shutdown() {
    let team = Team::new();
    team.up();
    team.wait_for_puppet("worker-1");
    let roster = team.bed.project().join(".ensemble/roster/worker-1.yaml");
    let text = fs::read_to_string(&roster).unwrap();
    let (before, rest) = text.split_once("since: \"2").unwrap();
    fs::write(&roster, format!("{before}since: \"3{rest}")).unwrap();
    let pid = team.pane("worker-1").pid;
    let request = team.bed.object("request shutdown worker-1 --as operator");
    let id = request["request_id"].as_str().unwrap();
    assert_eq!(team.order("worker-1", &format!("$E request answer {id} --approve")).code, 0);
    eventually("it has gone", || team.member("worker-1")["state"] == "shutdown" && !lives(pid));
}

#[test]
fn an_agent_that_dies_or_has_gone_is_not_waited_for() {
    let team = Team::with(&["worker-1"], "poll_interval: 1\n");
    team.up();
    team.wait_for_puppet("worker-1");
    let asked = team.bed.object("request shutdown worker-1 --as operator --deadline 1h");
    assert_eq!(asked["state"], "pending");
    kill(team.pane("worker-1").pid);
    let id = asked["request_id"].as_str().unwrap();
    eventually("its shutdown is carried out", || {
        team.bed.object(&format!("request list {id}"))["state"] == "expired"
            && team.member("worker-1")["state"] == "shutdown"
    });
    assert_eq!(team.records("worker_release")[0]["how"], "forced");
    team.bed.ok("down --force");
    team.up();
    team.wait_for_puppet("worker-1");
    kill(team.pane("worker-1").pid);
    team.wait_for_state("worker-1", "gone");
    // Far below its deadline of two minutes.
    team.bed.run("request shutdown worker-1 --as operator --wait 60s").ends(0);
    assert_eq!(team.member("worker-1")["state"], "shutdown");
    team.bed.ok("down --force");
}

#[test]
#[ignore = "long"]
fn a_shutdown_that_was_killed_anywhere_is_finished_by_the_next_attempt() {
    let line = "request shutdown deaf --as operator --id leave-now --force --wait 10m";
    let mut kills = 0;
    for call in ["pidfd_send_signal", "sendto", "renameat2", "renameat", "unlinkat", "write"] {
        let mut number = 1;
        loop {
            let team = six();
            // It need not be killed, which would take five seconds each time.
            fs::write(team.here("deaf.sh"), DEAF.replace("trap '' TERM HUP", ":")).unwrap();
            team.bed.ok("up deaf");
            let pids = deaf_pids(&team);
            team.bed.ok("send --as operator --to deaf --id unread -m hello");
            // No other process may finish it.
            let panes = team.panes();
            let watcher = panes.iter().find(|pane| pane.is_sidecar);
            let watcher = watcher.unwrap_or_else(|| panic!("{call} {number}: {panes:#?}")).pid;
            kill(watcher);
            eventually("no watcher runs", || !lives(watcher));
            let was_killed = team.is_killed_at(line, call, number);
            kills += u32::from(was_killed);
            let place = format!("{call} {number}");
            let again = team.bed.run(line);
            assert_eq!(again.code, 0, "{place}: {again:?}");
            assert!(pids.iter().all(|pid| !lives(*pid)), "{place}");
            assert_eq!(team.member("deaf")["state"], "shutdown", "{place}");
            assert!(team.panes().iter().all(|pane| pane.member.is_none()), "{place}");
            assert!(!team.records("worker_release").is_empty(), "{place}");
            assert!(team.bed.ok("dead list").contains("unread"), "{place}");
            let request = team.bed.object("request list leave-now");
            assert_eq!(request["state"], "expired", "{place}: {request}");
            team.bed.ok("admin fsck");
            team.bed.ok("down --force");
            if !was_killed {
                break;
            }
            number += 1 + number / 2;
        }
    }
    println!("a shutdown was killed {kills} times");
    assert!(kills > 15, "the harness kills too little: {kills}");
}

#[test]
fn an_interrupted_down_takes_back_what_it_has_asked() {
    let team = hooked(&[("one", "claude")], "");
    let down = team.bed.start("down --deadline 10m");
    eventually("it asks", || !team.bed.json("request list --pending").is_empty());
    kill_process(Pid::from_raw(down.id().cast_signed()).unwrap(), Signal::INT).unwrap();
    let ended = end(down);
    ended.ends(1);
    for said in
        ["asked one to shut down; agents that have not answered in", "one stay, and the request is"]
    {
        ended.says([said]);
    }
    assert!(team.bed.json("request list --pending").is_empty());
    assert_eq!(team.member("one")["state"], "idle");
}
