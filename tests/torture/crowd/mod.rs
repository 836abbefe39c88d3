//! Many processes work on one queue, one board and one table of steps. The test kills, stops and
//! restarts them at random, and also the watcher and the tmux server with the agent's pane. It sets
//! the wall clock of all of them, by up to ten years, and moves the queue away and back. Each process
//! notes every operation before and after it, and a checker then proves or refutes the history.
//!
//! `TORTURE_SECONDS` (6), `TORTURE_SEED`; see tests/torture/README.md.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod arena;
mod checker;
mod journal;
mod players;
mod tampered;

use crate::support;
use std::time::{Duration, Instant};

use crate::support::setting;
use arena::Arena;

#[test]
fn a_child_process_plays_its_role() {
    if let Some(role) = support::role() {
        players::play(&role);
    }
}

#[test]
fn the_history_is_sound_under_kills_stops_and_restarts() {
    let seconds = Duration::from_secs(setting("TORTURE_SECONDS", 6));
    let (mut arena, start) = (Arena::new(), Instant::now());
    arena.start();
    // So much at least, however slow the machine is.
    while start.elapsed() < seconds || arena.troubles() < 30 {
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
