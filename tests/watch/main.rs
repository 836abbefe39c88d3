//! Watchers as real processes: what they route, and whom they notify when files, agents, disks and they themselves fail.

#[path = "../support/panes/agent.rs"]
mod agent;
#[path = "../support/panes/herdr.rs"]
mod herdr;
#[path = "../support/panes/hosts.rs"]
mod hosts;
#[path = "../support/panes/stage.rs"]
mod stage;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tmux.rs"]
mod tmux_support;
#[path = "../support/watcher.rs"]
mod watcher;

mod alarms;
mod answers;
mod contract;
mod degraded;
mod departure;
mod directory;
mod ends;
mod exactly_once;
mod full_disk;
mod growth;
mod hostile;
mod nudge;
mod panics;
mod requests;
mod steps;
mod writers;
