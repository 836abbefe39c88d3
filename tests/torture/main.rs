//! Queues, boards and their watcher under kills, stops, power cuts and faults of the machine; README.md describes the tests.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tmux.rs"]
mod tmux_support;
#[path = "../support/wall_clock.rs"]
mod wall_clock;
#[path = "../support/watcher.rs"]
mod watcher;

mod crowd;
mod faults;
mod power_cut;
