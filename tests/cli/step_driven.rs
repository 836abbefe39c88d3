//! `ensemble step run`: its wake-ups, and agents that cannot be nudged at once.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_team::steps::{Completion, CompletionStatus, StepKey, StepOptions, StepStore};

use crate::bed::{Bed, Running, SaidText as _};
use crate::tmux_support::{TestServer, eventually};

const STEPS: u32 = 30;
/// Far less time than that many looks without an event take, which are 5 s apart at least. Far more
/// than that many steps take, also on a machine that pauses now and then.
const SOON: Duration = Duration::from_secs(75);

fn plan(bed: &Bed, agent: &str, steps: u32) {
    let step = format!("  - {{agent: {agent}, goal: g}}\n");
    let plan = format!("task_id: t\nsteps:\n{}", step.repeat(steps as usize));
    bed.write_file("plan.yaml", plan);
    bed.ok("step add -f plan.yaml");
}

/// A worker as an MCP server is one: it keeps the database open, so that no file is ever closed.
#[test]
fn a_write_to_the_database_by_another_process_wakes_the_driver() {
    let bed = Bed::new();
    plan(&bed, "w1", STEPS);
    let options = StepOptions::new(&bed.project()).with_durability(Durability::Process);
    let store = StepStore::open(&bed.project().join(".ensemble/steps.db"), options).unwrap();
    let mut driver = Running(bed.start("step run t --json --timeout 10m"));
    let mut lines = BufReader::new(driver.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("\"step_index\":1"));
    let began = Instant::now();
    let w1 = Name::new("w1").unwrap();
    for index in 1..=STEPS {
        let report =
            Completion::new(StepKey::new("t", index), w1.clone(), CompletionStatus::Success);
        store.submit(&report, &w1, None).unwrap();
        let expected = match index {
            STEPS => "\"event\":\"done\"".to_owned(),
            _ => format!("\"step_index\":{}", index + 1),
        };
        next().has([&expected]);
    }
    assert!(began.elapsed() < SOON, "{:?}: it has looked by itself only", began.elapsed());
}

#[test]
fn a_run_that_was_killed_is_a_need_once_no_agent_works_on_its_steps() {
    let bed = Bed::new();
    plan(&bed, "w1", 2);
    let mut driver = Running(bed.start("step run t --json --timeout 10m"));
    let mut lines = BufReader::new(driver.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"step_index\":1"));
    drop(driver);
    let is_need = || bed.run("status --json").stdout.contains("ensemble step run t");
    assert!(!is_need(), "w1 works on the first step");
    let report =
        b"{\"task_id\": \"t\", \"step_index\": 1, \"agent\": \"w1\", \"status\": \"success\"}";
    assert_eq!(bed.run_with("step submit --as w1", report).code, 0);
    assert!(is_need());
    assert_eq!(bed.run("step run t --wait 1ms").code, 3);
    let notes = fs::read_dir(bed.project().join(".ensemble/step-runs")).unwrap();
    assert_eq!(notes.count(), 1, "its caller knows that it has ended: the lock alone is left");
}

#[test]
fn a_full_mailbox_keeps_no_other_agent_from_its_prompt() {
    let bed = Bed::new();
    bed.ok("mailbox add full --capacity 1");
    bed.ok("send --to full -m unread");
    let steps = "[{agent: full, goal: g}, {agent: w1, goal: g}]";
    bed.write_file("plan.yaml", format!("task_id: t\nparallel: 2\nsteps: {steps}\n"));
    bed.ok("step add -f plan.yaml");
    bed.run("step run t --wait 1ms").ends(3).says(["mailbox `full` is full"]);
    assert_eq!(bed.json("inbox w1").len(), 1);
}

#[test]
fn an_agent_that_is_busy_is_nudged_once_it_is_not() {
    let bed = Bed::new();
    plan(&bed, "w1", 1);
    let dir = tempfile::tempdir().unwrap();
    let (bin, here) = (dir.path().join("bin"), dir.path().join("here"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&here).unwrap();
    for program in ["claude", "bash"] {
        symlink("/bin/sh", bin.join(program)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fake_agent.sh");
    let (claude, script) = (bin.join("claude"), script.display().to_string());
    let command =
        format!("exec '{}' '{script}' claude busy '{}'", claude.display(), here.display());
    let tmux = TestServer::start_in(dir, &command);
    eventually("it runs", || here.join("running").exists());
    eventually("it is busy", || tmux.screen("%0").iter().any(|line| line.contains("Tomfoolering")));
    let socket = tmux.server.socket().display().to_string();
    bed.ok(&format!("mailbox bind w1 --pane %0 --provider claude --tmux-socket {socket}"));

    let mut driver = Running(bed.start("step run t --timeout 10m"));
    let mut said = BufReader::new(driver.0.stderr.take().unwrap()).lines();
    said.next().unwrap().unwrap().has(["w1 is not nudged yet"]);
    let events = || fs::read_to_string(here.join("events")).unwrap_or_default();
    assert!(!events().contains("ensemble"), "{}", events());
    tmux.human(&["Escape"]);
    eventually("it is nudged", || events().contains("SUBMIT ensemble: 1 message for w1"));
    // Its mail is read now, so nothing more is typed.
    bed.ok("recv --as w1");
    let report =
        b"{\"task_id\": \"t\", \"step_index\": 1, \"agent\": \"w1\", \"status\": \"success\"}";
    assert_eq!(bed.run_with("step submit --as w1", report).code, 0);
    assert!(driver.0.wait().unwrap().success());
    assert_eq!(events().matches("SUBMIT").count(), 1, "{}", events());
}
