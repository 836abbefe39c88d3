//! Everything at once on one project, with 12 agents and more of all kinds, in real tmux and git. They use mail, a
//! blackboard, steps, requests and batches, while agents, supervisors, the watcher and Dispatch are killed and
//! stopped, the disk fills up, and the wall clock is set. A person pauses the team and asks agents to leave.
//!
//! | agent | comes by | works on |
//! |---|---|---|
//! | `conductor` | `up`, a pane | plans and requests |
//! | `worker-1`, `worker-2` | `up`, a pane | mail and batches |
//! | `worker-3` | `spawn`, a pane | the same |
//! | `worker-4` | `join`, a pane of another tmux server | the same |
//! | `coder-1` | `up`, a supervisor in a pane | the blackboard |
//! | `coder-2`, `reviewer-1`, `planner-1` | `supervise`, without a pane | the blackboard |
//! | `box-1` | examples/worker.sh | mail, with nothing but `mv` |
//! | `mcp-1` | `ensemble mcp` | mail |
//! | `tara`, `devon` | a script, without a pane | steps |
//!
//! Each agent notes what it begins and hands in (`journal.rs`); `checker.rs` proves or refutes the whole.
//! `WHOLE_SECONDS` (15) is how long the disturbances last, `TORTURE_SEED` repeats the choices; `WHOLE_KEEP=1` keeps
//! the project. See tests/torture/README.md.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod aftermath;
mod cast;
mod chaos;
mod checker;
mod client;
mod journal;
mod processes;
mod stage;
mod tampered;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_core::sim::SimRng;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::steps::{StepOptions, StepStore};
use rustix::process::Signal;

use crate::children::signal;
use crate::git::git;
use crate::support;
use crate::support::{printed_random, setting};
use cast::Cast;
use chaos::Chaos;
use checker::{Facts, Message};
use journal::{Line, Trouble};
use processes::{is_of, signal_all};
use stage::{LEASE_SECONDS, Stage, now};
use work::{Kind, Work, Works};

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn a_child_process_plays_its_role() {
    if support::role().as_deref() == Some(client::ROLE) {
        client::play();
    }
}

#[test]
#[ignore = "long"]
fn all_work_ends_or_is_told_of_whatever_happens() {
    let seconds = Duration::from_secs(setting("WHOLE_SECONDS", 15));
    let mut random = printed_random("whole");
    let stage = Stage::new();
    let mut cast = Cast::new(&stage, random.next_u64());
    let mut chaos = Chaos::new(random.next_u64());
    let mut works = Works::new(random.next_u64());
    let start = Instant::now();
    cast.begin(&stage);
    while start.elapsed() < seconds || !chaos.has_done_all() {
        cast.tend(&stage);
        works.offer(&stage, chaos.is_disk_full());
        chaos.act(&stage, &mut cast);
        std::thread::sleep(LOOK_INTERVAL);
    }
    chaos.end(&stage);
    let counts = format!("{}; {}; {}", chaos.told(), cast.told(), works.told());
    println!("{counts}; {:.0} s", start.elapsed().as_secs_f64());
    let facts = aftermath::finish(&stage, &mut cast, &works);
    println!("{}; {:.0} s in all", checker::counts(&facts), start.elapsed().as_secs_f64());
    let wrong = checker::violations(&facts);
    let kept = stage.keep();
    assert!(wrong.is_empty(), "{} violations, see {kept}: {wrong:#?}", wrong.len());
}
