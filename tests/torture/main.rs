//! Many processes on one queue, one board and one table of steps; killed, stopped and started again at
//! random, and so are the watcher and the tmux server with the agent's pane. Every operation is noted
//! before and after it, and a checker proves or refutes the history afterwards.
//!
//! `TORTURE_SECONDS` (6), `TORTURE_SEED`; see docs/torture.md.

#![allow(unreachable_pub, reason = "modules of one test program")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../tmux_support/mod.rs"]
mod tmux_support;
#[path = "../support/watcher.rs"]
mod watcher;

mod arena;
mod checker;
mod journal;
mod players;
mod tampered;

use std::time::{Duration, Instant};

use arena::Arena;
use support::setting;

#[test]
fn a_child_process_plays_its_role() {
    if let Some(role) = support::role() {
        players::play(&role);
    }
}

#[test]
fn whatever_is_killed_stopped_or_restarted_the_history_is_sound() {
    let seconds = Duration::from_secs(setting("TORTURE_SECONDS", 6));
    let (mut arena, start) = (Arena::new(), Instant::now());
    arena.start();
    // So much at least, however slow the machine is.
    while start.elapsed() < seconds || arena.troubles() < 20 {
        arena.trouble();
    }
    let (history, disk) = arena.finish();
    println!(
        "{} in {:.1} s; noted: {}",
        arena.told(),
        start.elapsed().as_secs_f64(),
        arena::counts(&history)
    );
    let wrong = checker::violations(&history, &disk);
    assert!(wrong.is_empty(), "{} violations: {wrong:#?}", wrong.len());
    arena.judge_the_rest();
}
