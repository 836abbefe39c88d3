//! `ensemble agent supervise` works off a board of tasks with dependencies: real git, real processes,
//! agents that are shell scripts. Agents and supervisors are killed with `kill -9` or stopped past
//! their leases at random. The wall clock of all of them is set back and forth by days. Every
//! task ends MERGED or BLOCKED with a reason. No agent works in another agent's worktree, nothing
//! is left behind, and the user's checkout is unchanged.
//!
//! A small library loaded before the C library (`support/clock.c`) sets the clock. It needs no privileges
//! and leaves the machine's own clock alone. It needs `cc` and a 64-bit Linux with a dynamic
//! linker. It cannot simulate a suspended machine (the boottime clock): the tests of `proto/lease`
//! and `proto/beat` cover that.
//!
//! `ENSEMBLE_SUPERVISORS` (4) and `ENSEMBLE_TASKS` (16) set the size; the full one is 8 and 200.
//! `TORTURE_SEED` repeats the choices.

#[path = "../../team/worktree/bed.rs"]
mod bed;
mod judge;
mod killer;
mod plans;
pub(crate) mod team;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_core::event_log::read_all;
use ensemble_team::board::{BoardTask, NewTask, State, TaskStatus};
use rustix::process::Signal;

use crate::children::signal;
use crate::support::setting;
use crate::wall_clock::WallClock;
use bed::{Bed, ISOLATED, git};
use killer::Killer;
use team::{Team, running};

/// How long a lease runs here, in seconds.
const LEASE_SECONDS: u64 = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const BOARD_INTERVAL: Duration = Duration::from_secs(1);
/// How long what comes after the last task may take.
const PATIENCE: Duration = Duration::from_secs(120);
const SEED: u64 = 0x5eed;
/// A directory for the test's files, not beside the board, where supervisors react to every change.
const OWN: &str = ".ensemble/test";
const PROGRAM: &str = env!("CARGO_BIN_EXE_ensemble");

fn program(home: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .envs(ISOLATED)
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .env("ENSEMBLE", PROGRAM)
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Tasks that no agent can do: the agent says so, or crashes. As in agent.sh.
pub(crate) fn is_hopeless(task: &str) -> bool {
    let number: u64 = task.trim_start_matches('t').parse().unwrap();
    number % 13 == 12 || number % 17 == 15
}

/// The planner also unblocks the tasks that it blocks.
fn is_over(state: &State) -> bool {
    state.tasks.iter().all(|task| match is_hopeless(task.id.as_str()) {
        true => task.status == TaskStatus::Blocked,
        false => task.status == TaskStatus::Merged,
    })
}

/// A board whose leases are short, with tasks of which some depend on others.
fn prepare(tasks: u64) -> Bed {
    let bed = Bed::new();
    let text = std::fs::read_to_string(bed.board.path()).unwrap();
    let short = text.replace("lease_duration: 300", &format!("lease_duration: {LEASE_SECONDS}"));
    assert_ne!(short, text);
    std::fs::write(bed.board.path(), short).unwrap();
    bed.change(|board| {
        for at in 0..tasks {
            let id = format!("t{at}");
            let before = [at.checked_sub(3), at.checked_sub(7)].into_iter().flatten();
            let before = before.map(|at| format!("t{at}")).filter(|id| !is_hopeless(id));
            let before: Vec<_> = before.filter(|_| at % 3 != 0).map(|id| bed::name(&id)).collect();
            let task =
                NewTask::new(bed::name(&id), format!("write {id}"), "specs/x.md", "it is there");
            board.add_task(&task.after(before))?;
        }
        Ok(())
    });
    bed
}

/// Everything of the user's that must not change.
fn checkout(bed: &Bed) -> (String, Vec<u8>, String) {
    let status = git(bed.home.path(), &["status", "--porcelain=v2", "--branch"]);
    let readme = std::fs::read_to_string(bed.home.path().join("README")).unwrap();
    (status, std::fs::read(bed.home.path().join(".git/index")).unwrap(), readme)
}

/// Waits until it is so, while supervisors continue.
fn wait_until(bed: &Bed, killer: &mut Killer<'_>, what: &str, is_so: impl Fn(&Killer<'_>) -> bool) {
    let start = Instant::now();
    while !is_so(killer) {
        assert!(start.elapsed() < PATIENCE, "not {what}:\n{}", judge::told(bed, killer));
        killer.team.tend();
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[test]
#[ignore = "long"]
fn supervisors_and_agents_that_are_killed_finish_the_board() {
    let (supervisors, tasks) = (setting("ENSEMBLE_SUPERVISORS", 4), setting("ENSEMBLE_TASKS", 16));
    let seed = setting("TORTURE_SEED", SEED);
    println!("TORTURE_SEED={seed}");
    let bed = prepare(tasks);
    let (home, own) = (bed.path(), bed.path().join(OWN));
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(home.join("ensemble.yaml"), "durability: process\n").unwrap();
    let clock = WallClock::build(&own);
    let by_clock = |_| {
        let mut command = program(&home);
        command.envs(clock.iter().flat_map(WallClock::variables)).env("HOME", home.join(OWN));
        command
    };
    let mut killer = Killer::new(Team::new(own, "200ms", by_clock), clock.as_ref(), seed);
    // The user is in the middle of something.
    std::fs::write(bed.home.path().join("mine"), "staged").unwrap();
    git(bed.home.path(), &["add", "mine"]);
    std::fs::write(bed.home.path().join("README"), "changed").unwrap();
    let before = checkout(&bed);
    let start = Instant::now();
    killer.team.start_new(0, "planner");
    for at in 0..supervisors {
        killer.team.start_new(0, if at.is_multiple_of(2) { "coder" } else { "code-reviewer" });
    }
    let patience = PATIENCE + Duration::from_secs(15 * tasks);
    let mut asked = start;
    // Reading a large board takes longer than listing processes.
    while asked.elapsed() < BOARD_INTERVAL || !is_over(&bed.board.read().unwrap()) {
        if asked.elapsed() >= BOARD_INTERVAL {
            asked = Instant::now();
        }
        assert!(start.elapsed() < patience, "not over:\n{}", judge::told(&bed, &killer));
        killer.team.tend();
        if killer.acts() < tasks {
            killer.act();
        }
        killer.let_go(false);
        std::thread::sleep(LOOK_INTERVAL);
    }
    let seconds = start.elapsed().as_secs_f64();
    killer.let_go(true);

    // The living supervisors clean up by themselves: no repair command runs here.
    wait_until(&bed, &mut killer, "without the dead", |killer| {
        let state = bed.board.read().unwrap();
        state.agents.keys().all(|id| killer.team.members.iter().any(|m| m.id == id.as_str()))
    });
    let trees = bed.trees();
    wait_until(&bed, &mut killer, "in order", |_| trees.recover(false).unwrap().is_empty());
    killer.team.stop();
    wait_until(&bed, &mut killer, "alone", |_| running(&home).is_empty());
    let found = judge::judge(&bed, &killer);
    assert_eq!(checkout(&bed), before, "the checkout of the user");
    assert!(!killer.killed.is_empty() && killer.killed_agents > 0, "{found}");
    println!("{supervisors} supervisors, {tasks} tasks: {found}; {seconds:.1} s");
}
