//! Supervisors as real processes, with agents that are real processes, killed for real.

mod bed;
mod by_hand;
mod shared;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::driver;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Timestamp;
use ensemble_team::board::prompt::BoardRole;
use ensemble_team::board::{
    ActiveControl, Board, BoardOptions, ControlFile, NewHandoff, State, TaskStatus,
};
use ensemble_team::driver::supervise::{SuperviseOrder, SupervisorServices, supervise};
use ensemble_team::proto::agent;
use ensemble_team::proto::beat::LONG_OPERATION;
use ensemble_team::proto::task::TaskHolder;
use rustix::process::{Pid, Signal, kill_process};

use crate::children;
use crate::children::wait_until;
use crate::git::git;
use bed::{Bed, TESTER, name};

/// An agent that says that it runs, and continues until it is ended.
const FOREVER: &str = "echo $$ >> $H/pids; while :; do sleep 1; done";
/// Between two stamps of an agent on the board.
const STAMP_INTERVAL: Duration = Duration::from_secs(1);
/// The duration of a lease that expires in a test, in seconds: longer than a busy machine delays a beat.
const SHORT_LEASE: u64 = 8;

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        bed::play(&role);
    }
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn signal(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}

fn put(bed: &Bed, file: ControlFile) {
    let now = Timestamp::from_unix_millis(0);
    ActiveControl::put(&bed.file(".ensemble"), file, now, "wait").unwrap();
}

#[test]
fn an_agent_gets_its_prompt_its_worktree_and_its_numbers() {
    let bed = Bed::new(1, 300);
    let agent = "cat > $H/prompt; env > $H/env; pwd > $H/pwd; echo one >> $H/runs; sleep 600";
    let supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("runs", 1);
    let task = bed.until(1, TaskStatus::Claimed);
    let prompt = std::fs::read_to_string(bed.file("prompt")).unwrap();
    assert!(
        prompt.contains("=== ASSIGNED TASK ===") && prompt.contains("TASK ID: task-1"),
        "{prompt}"
    );
    let env = std::fs::read_to_string(bed.file("env")).unwrap();
    let registration = bed.state().agents[&name("coder-1")].epoch.unwrap();
    for line in [
        "ENSEMBLE_AGENT_ID=coder-1".to_owned(),
        "LIZA_AGENT_ID=coder-1".to_owned(),
        "ENSEMBLE_TASK_ID=task-1".to_owned(),
        format!("ENSEMBLE_AGENT_EPOCH={registration}"),
        format!("ENSEMBLE_TASK_EPOCH={}", task.lease_epoch.unwrap()),
    ] {
        assert!(env.lines().any(|l| l == line), "{line} is not in\n{env}");
    }
    let pwd = std::fs::read_to_string(bed.file("pwd")).unwrap();
    assert_eq!(Path::new(pwd.trim_end()), bed.worktrees.path_of(&task));
    assert_eq!(supervisor.stop(), "result Stopped");
    // Its task and its name are free, and none of its files is left.
    assert_eq!(bed.task(1).status, TaskStatus::Unclaimed);
    assert!(bed.state().agents.is_empty());
    assert!(!bed.file(".ensemble/supervise/coder-1.yaml").exists());
}

#[test]
fn a_prompt_can_be_an_argument_or_a_file() {
    let bed = Bed::new(1, 300);
    let agent = "echo \"$1\" > $H/argument; cp \"$2\" $H/copy; echo one >> $H/runs; sleep 600";
    let supervisor = bed.supervise_with("coder-1", BoardRole::Coder, agent, "prompt-argument");
    bed.lines("runs", 1);
    let argument = std::fs::read_to_string(bed.file("argument")).unwrap();
    let copy = std::fs::read_to_string(bed.file("copy")).unwrap();
    assert!(copy.contains("TASK ID: task-1"));
    assert_eq!(argument.trim_end(), format!("told: {copy}").trim_end());
    supervisor.stop();
}

#[test]
fn work_that_is_handed_in_is_followed_by_waiting_for_its_verdict() {
    let bed = Bed::new(2, 300);
    let agent = "echo one >> $H/runs; until [ -e $H/go ]; do sleep 0.05; done";
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("runs", 1);
    bed.submit(1);
    std::fs::write(bed.file("go"), "").unwrap();
    supervisor.hear("agent ended: exit 0");
    // The seed's rule: a coder with a task under review takes no other one.
    assert_eq!(bed.task(1).status, TaskStatus::ReadyForReview);
    assert_eq!(bed.task(2).status, TaskStatus::Unclaimed);
    assert!(bed.state().anomalies.is_empty());
    supervisor.stop();
}

#[test]
fn an_agent_that_cannot_be_started_blocks_its_task_with_the_reason() {
    let bed = Bed::new(1, 300);
    let prompts = bed.board.path().with_file_name("prompts");
    std::fs::create_dir_all(&prompts).unwrap();
    std::fs::write(prompts.join("coder.md"), "{{nope}}").unwrap();
    let supervisor = bed.supervise("coder-1", BoardRole::Coder, "exit 0");
    let reason = bed.until(1, TaskStatus::Blocked).blocked_reason.unwrap();
    assert!(reason.contains("progress: ") && reason.contains("`{{nope}}` is unknown"), "{reason}");
    supervisor.stop();
}

#[test]
fn the_fifth_crash_blocks_the_task_and_the_next_one_is_begun() {
    let bed = Bed::new(2, 300);
    let agent =
        "echo $ENSEMBLE_TASK_ID >> $H/runs; [ $ENSEMBLE_TASK_ID = task-2 ] && sleep 600; exit 3";
    let supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    let task = bed.until(1, TaskStatus::Blocked);
    assert_eq!(
        bed.lines("runs", 6)[..],
        ["task-1", "task-1", "task-1", "task-1", "task-1", "task-2"]
    );
    assert_eq!(task.blocked_reason.as_deref(), Some("5 agents crashed at it without progress"));
    assert_eq!(task.blocked_questions.len(), 1);
    let anomalies = bed.state().anomalies;
    // One loop is one anomaly, and so is the blocked task.
    let kinds: Vec<&str> = anomalies.iter().map(|anomaly| anomaly.kind.as_str()).collect();
    assert_eq!(kinds, ["retry_loop", "task_blocked"]);
    assert_eq!(anomalies[0].details["count"], 5);
    supervisor.stop();
}

#[test]
fn a_block_that_cannot_be_written_is_written_later() {
    let bed = Bed::new(1, 300);
    // While this directory is in the place of the lock, nothing can be written to the board.
    let lock = bed.file(".ensemble/state.yaml.lock");
    let agent = format!("rm -f {0}; mkdir {0}; exit 3", lock.display());
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, &agent);
    supervisor.hear("cannot block `task-1`");
    assert_eq!(bed.task(1).status, TaskStatus::Claimed);
    std::fs::remove_dir(&lock).unwrap();
    let task = bed.until(1, TaskStatus::Blocked);
    assert!(task.blocked_reason.is_some_and(|reason| reason.contains("without progress")));
    supervisor.stop();
}

#[test]
fn an_agent_that_is_killed_is_replaced() {
    let bed = Bed::new(1, 300);
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, FOREVER);
    let first = bed.lines("pids", 1)[0].clone();
    signal(&first, Signal::KILL);
    supervisor.hear("killed by signal 9");
    let pids = bed.lines("pids", 2);
    assert!(lives(&pids[1]));
    let task = bed.task(1);
    assert_eq!((task.status, task.iteration), (TaskStatus::Claimed, Some(2)));
    supervisor.stop();
    assert!(!lives(&pids[1]));
}

#[test]
fn the_next_supervisor_ends_the_agent_of_a_killed_one_first() {
    let bed = Bed::new(1, 300);
    // An agent with a daemon that leaves its group.
    let agent =
        "(setsid sh -c 'echo $$ >> $H/daemons; sleep 600' &) ; echo $$ >> $H/pids; sleep 600";
    let first = bed.supervise("coder-1", BoardRole::Coder, agent);
    let (agent_1, daemon_1) = (bed.lines("pids", 1)[0].clone(), bed.lines("daemons", 1)[0].clone());
    let registration = bed.state().agents[&name("coder-1")].epoch;
    first.kill();
    assert!(lives(&agent_1) && lives(&daemon_1), "they still run");
    let second = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("pids", 2);
    let daemon_2 = bed.lines("daemons", 2)[1].clone();
    assert!(!lives(&agent_1) && !lives(&daemon_1));
    assert!(bed.state().agents[&name("coder-1")].epoch > registration);
    assert_eq!(bed.task(1).status, TaskStatus::Claimed);
    assert_eq!(bed.records("supervise.recovered").len(), 1);
    assert!(lives(&daemon_2));
    second.stop();
    assert!(!lives(&daemon_2), "a daemon ends with its agent");
}

#[test]
fn a_task_of_a_dead_supervisor_can_be_claimed_by_another_one() {
    let bed = Bed::new(1, SHORT_LEASE);
    let first = bed.supervise("coder-1", BoardRole::Coder, FOREVER);
    let orphan = bed.lines("pids", 1)[0].clone();
    let second = bed.supervise("coder-2", BoardRole::Coder, FOREVER);
    first.kill();
    // Its lease expires; its agent is ended before the lease is revoked.
    let pids = bed.lines("pids", 2);
    assert!(!lives(&orphan) && lives(&pids[1]));
    let task = bed.until(1, TaskStatus::Claimed);
    assert_eq!(task.assigned_to, Some(name("coder-2")));
    assert!(!bed.state().agents.contains_key(&name("coder-1")));
    // Nor is a beat of it left.
    wait_until("its beats are swept", || {
        let names = std::fs::read_dir(bed.file(".ensemble/leases")).unwrap();
        !names.flatten().any(|file| file.file_name().to_string_lossy().starts_with("coder-1@"))
    });
    second.stop();
}

#[test]
fn an_agent_that_stands_still_loses_its_lease_and_is_replaced() {
    let bed = Bed::new(1, SHORT_LEASE);
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, FOREVER);
    let first = bed.lines("pids", 1)[0].clone();
    // Stopped with its `sleep`, which ends by itself: the last sign of life for long.
    signal(&first, Signal::STOP);
    supervisor.hear("the agent was ended");
    let pids = bed.lines("pids", 2);
    assert!(!lives(&first) && lives(&pids[1]));
    let history = bed.task(1).history;
    assert!(history.iter().any(|line| line.event == "coder_claim_released"), "{history:?}");
    supervisor.stop();
}

#[test]
fn a_hand_over_starts_a_fresh_agent_with_the_notes() {
    let bed = Bed::new(1, 300);
    let agent = "cat > $H/prompt; echo one >> $H/runs; until [ -e $H/go ]; do sleep 0.05; done; rm $H/go; exit 42";
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    bed.lines("runs", 1);
    let epoch = bed.until(1, TaskStatus::Claimed).lease_epoch.unwrap();
    let holder = TaskHolder { by: name("coder-1"), epoch };
    let notes = NewHandoff {
        summary: "half of it".to_owned(),
        next_action: "the other half".to_owned(),
        more: serde_json::Map::new(),
    };
    bed.change(|board| board.hand_off(&name("task-1"), &holder, &notes));
    std::fs::write(bed.file("go"), "").unwrap();
    supervisor.hear("hand-over");
    bed.lines("runs", 2);
    let prompt = std::fs::read_to_string(bed.file("prompt")).unwrap();
    assert!(prompt.contains("the other half"), "{prompt}");
    assert!(bed.state().anomalies.is_empty());
    // Without a word it is an anomaly.
    std::fs::write(bed.file("go"), "").unwrap();
    bed.lines("runs", 3);
    let anomalies = bed.state().anomalies;
    let pattern = anomalies[0].details["error_pattern"].as_str().unwrap();
    assert!(pattern.contains("exit 42 without hand-over notes"), "{pattern}");
    supervisor.stop();
}

/// Writes new stamps into the only entry of the board, as seed 001 says: under its lock, for this many
/// seconds.
fn stamp(bed: &Bed, seconds: u32) {
    let script = "cd \"$0\" && flock state.yaml.lock sh -c '
        at() { date -u -d \"@$(($(date +%s) + $1))\" +%Y-%m-%dT%H:%M:%S.$(date +%3N)Z; }
        sed \"s/\\(heartbeat: \\).*/\\1\\\"$(at 0)\\\"/;s/\\(lease_expires: \\).*/\\1\\\"$(at $0)\\\"/\" state.yaml >new &&
            mv new state.yaml' $1";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(bed.file(".ensemble")).arg(seconds.to_string());
    assert!(shell.status().unwrap().success());
}

#[test]
#[ignore = "long"]
fn an_agent_that_stands_still_lives_as_long_as_it_stamps_its_entry_on_the_board() {
    let bed = Bed::new(1, SHORT_LEASE);
    // It uses no processor; the stamps are written by another process for it.
    let agent = "echo $$ >> $H/pids; exec sleep 600";
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    let pid = bed.lines("pids", 1)[0].clone();
    let claimed = bed.task(1).lease_epoch;
    let (begun, mut stamped) = (Instant::now(), None);
    wait_until("three leases have passed", || {
        if stamped.is_none_or(|at: Instant| at.elapsed() > STAMP_INTERVAL) {
            stamp(&bed, SHORT_LEASE as u32);
            stamped = Some(Instant::now());
        }
        assert_eq!((bed.task(1).status, bed.task(1).lease_epoch), (TaskStatus::Claimed, claimed));
        begun.elapsed() > Duration::from_secs(3 * SHORT_LEASE)
    });
    assert!(lives(&pid));
    assert!(bed.records("lease.extended_long").is_empty());

    // A later end asks for a long operation, once.
    stamp(&bed, 600);
    let record = || bed.records("lease.extended_long").pop();
    wait_until("it is extended for long", || record().is_some());
    let line = "Extended lease for long operation: the agent extended its lease on the board";
    assert_eq!(record().unwrap().data["line"], line);

    // Short ones again, and then none.
    stamp(&bed, SHORT_LEASE as u32);
    supervisor.hear("the agent was ended");
    assert!(!lives(&pid));
    supervisor.stop();
}

#[test]
fn nothing_is_claimed_while_paused_and_nothing_spawned_after_a_claim() {
    let bed = Bed::new(1, 300);
    for file in [ControlFile::Pause, ControlFile::Checkpoint] {
        put(&bed, file);
    }
    let agent = "echo one >> $H/runs; until [ -e $H/go ]; do sleep 0.05; done; exit 1";
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, agent);
    supervisor.hear("CHECKPOINT");
    assert_eq!(bed.task(1).status, TaskStatus::Unclaimed);
    ActiveControl::remove(&bed.file(".ensemble"), ControlFile::Pause).unwrap();
    ActiveControl::remove(&bed.file(".ensemble"), ControlFile::Checkpoint).unwrap();
    bed.lines("runs", 1);
    // A running agent continues; no new one starts.
    put(&bed, ControlFile::Pause);
    std::fs::write(bed.file("go"), "").unwrap();
    supervisor.hear("agent ended");
    supervisor.hear("PAUSE");
    assert_eq!(bed.lines("runs", 1).len(), 1);
    assert_eq!(bed.task(1).status, TaskStatus::Claimed);
    ActiveControl::remove(&bed.file(".ensemble"), ControlFile::Pause).unwrap();
    bed.lines("runs", 2);
    supervisor.stop();
}

#[test]
fn a_reviewers_leases_outlast_the_tests_of_a_merge() {
    let bed = Bed::new(1, 60);
    bed.approve(1);
    let mut supervisor = bed.supervise(TESTER, BoardRole::CodeReviewer, FOREVER);
    let record = || bed.records("lease.extended_long").pop();
    wait_until("it expects to be long", || record().is_some());
    assert_eq!(record().unwrap().data["line"], "Extended lease for long operation: merge task-1");
    let long = SystemClock.wall().plus(LONG_OPERATION / 2);
    wait_until("it has said so", || bed.beaten_until(TESTER).unwrap() > long);
    std::fs::write(bed.file("pass"), "").unwrap();
    supervisor.hear("merged `task-1`");
    assert_eq!(bed.task(1).status, TaskStatus::Merged);
    // Fifteen minutes instead of one, and again one when it has ended.
    let is_usual = || bed.beaten_until(TESTER).unwrap() < long;
    wait_until("its leases are as usual", is_usual);
    supervisor.stop();
}

#[test]
fn abort_ends_the_agent_and_its_supervisor() {
    let bed = Bed::new(1, 300);
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, FOREVER);
    let agent = bed.lines("pids", 1)[0].clone();
    put(&bed, ControlFile::Abort);
    assert_eq!(supervisor.hear("result"), "result Aborted");
    assert!(!lives(&agent));
    assert_eq!(bed.task(1).status, TaskStatus::Unclaimed);
    assert!(bed.state().agents.is_empty());
}

#[test]
fn a_task_that_is_blocked_by_its_planner_ends_its_agent() {
    let bed = Bed::new(1, 300);
    let mut supervisor = bed.supervise("coder-1", BoardRole::Coder, FOREVER);
    let agent = bed.lines("pids", 1)[0].clone();
    let question = ["which?".to_owned()];
    bed.change(|board| board.block(&name("task-1"), None, "the spec is wrong", &question));
    supervisor.hear("the agent was ended");
    assert!(!lives(&agent));
    assert_eq!(bed.state().agents[&name("coder-1")].current_task, None);
    supervisor.stop();
}

#[test]
fn a_planner_is_woken_once_for_the_same_reasons() {
    let bed = Bed::new(0, 300);
    let agent = "cat >> $H/prompts; echo one >> $H/runs";
    let mut supervisor = bed.supervise("planner-1", BoardRole::Planner, agent);
    supervisor.hear("agent ended: exit 0");
    let discovery = ensemble_team::board::NewDiscovery {
        id: name("leak"),
        by: "coder-1".to_owned(),
        during: None,
        description: "it leaks".to_owned(),
        severity: None,
        is_immediate: true,
        recommendation: None,
    };
    bed.change(|board| board.discover(&discovery));
    assert_eq!(bed.lines("runs", 2).len(), 2, "once for the empty board, once for the discovery");
    let prompts = std::fs::read_to_string(bed.file("prompts")).unwrap();
    assert!(prompts.contains("INITIAL_PLANNING") && prompts.contains("IMMEDIATE_DISCOVERY"));
    assert_eq!(supervisor.stop(), "result Stopped");
}
