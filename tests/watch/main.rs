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

use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock as _, Lease, SystemClock};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};
use ensemble_core::requests::{NewRequest, Requests};
use ensemble_core::spool::{Settings, Spool, State};
use ensemble_core::watch::FsWatcher;
use ensemble_project::panes::PaneEntry;
use ensemble_project::{Project, panes};
use ensemble_team::board::{ActiveControl, Board, BoardOptions, ControlFile, NewAgent};
use ensemble_team::roster::Member;
use ensemble_team::steps::{ClaimRequest, STEPS_FILE, StepOptions, StepPlan, StepStore};
use rustix::process::Signal;
use serde_json::Value;

use support::{Bed, Mount, PATIENCE, eventually, eventually_true, name};
use tmux_support::TestServer;
use watcher::Watcher;

/// A project whose queue is watched.
fn watched_bed() -> (Bed, Watcher) {
    let bed = Bed::new();
    let watcher = Watcher::start(&bed);
    (bed, watcher)
}
