//! One team on two hosts, over a cluster of three servers, with mail, a blackboard, requests, step queues, batches
//! and departures at the same time. Servers are killed one after the other, links are cut and slowed, and watchers,
//! commands, agents, supervisors and Dispatch are killed.
//!
//! | player | host | does |
//! |---|---|---|
//! | `ann`, `amy`, `bob`, `ben` | two each | send messages to all mailboxes, each with its own id, until the command has taken them; every fifth has large content |
//! | `m0`, `m1` | both | receive, and settle what they have received |
//! | `planner` | the second | asks for the approval of plans |
//! | `lead`, twice | both | decide the same requests, one by yes and one by no |
//! | coders, reviewers, planners | both | work off the blackboard under `ensemble agent supervise` |
//! | drivers, `w0` … `w3` | both | store steps and work them off (`steps/`) |
//! | `conductor`, Dispatch, four workers | both | hand out batches and work them off (`dispatch/`) |
//! | `joe`, `jim`, `sam`, `sue`, and their callers | both | are asked to leave by the other host, and come back (`departures/`) |
//!
//! Each player notes what the command answered (`journal.rs`). Once all is quiet, `checker.rs` compares the notes
//! with the servers, the logs and the repositories of both hosts. The disturbances last for `HOSTS_SECONDS` (10).
//! Each sender has at least `HOSTS_MESSAGES` (40), and the blackboard `HOSTS_TASKS` (6). `TORTURE_SEED` repeats the
//! choices. See tests/torture/README.md.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod chaos;
mod checker;
mod crew;
mod departures;
mod dispatch;
mod host;
mod journal;
mod net;
mod players;
mod steps;
mod tampered;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::children::signal;
use crate::git::git;
use crate::nats_support::Cluster;
use crate::postgres_support::Cluster as Database;
use crate::supervisors::is_hopeless;
use crate::support::{PATIENCE, Process, pause, printed_random, setting};
use chaos::Chaos;
use checker::{Facts, text};
use crew::Crew;
use departures::{Departures, LEAVERS, POOL};
use dispatch::{Batches, Program};
use host::{BUSY, Host, MAILBOXES, Ran};
use journal::Fact;
use net::Net;
use players::{NOTHING, Player, Stage};
use steps::{ORCHESTRATOR, Steps};
use tampered::is_found;

const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long nothing may change of what is left, once nothing is disturbed any more.
const QUIET_PATIENCE: Duration = Duration::from_secs(300);

#[test]
#[ignore = "long"]
fn two_hosts_lose_nothing_and_do_nothing_twice() {
    let seconds = Duration::from_secs(setting("HOSTS_SECONDS", 10));
    let tasks = setting("HOSTS_TASKS", 6);
    let mut random = printed_random("hosts");
    let Some(cluster) = Cluster::start() else { return };
    let net = Net::over(cluster, Database::start());
    let hosts = [Host::new("a", &net, 0), Host::new("b", &net, 1)];
    let stage = Stage::new(&hosts, setting("HOSTS_MESSAGES", 40));
    let mut crew = Crew::new(&hosts, tasks);
    let mut program = Program::start(&hosts);
    let mut chaos = Chaos::new(random.next_u64());
    let start = Instant::now();
    let facts = std::thread::scope(|scope| {
        let _given_up = stage.gives_up_with_this_thread();
        let players = players::begin(scope, &stage);
        while start.elapsed() < seconds || !chaos.has_done_all() {
            crew.tend();
            program.tend();
            chaos.act(&net, &hosts, (&mut crew, &mut program));
            std::thread::sleep(LOOK_INTERVAL);
        }
        chaos.end(&net);
        stage.over.store(true, Ordering::Relaxed);
        println!("{}; {:.0} s", chaos.told(), start.elapsed().as_secs_f64());
        let (mut changed, mut left) = (Instant::now(), String::new());
        let have_ended = || players.iter().all(|player| player.is_finished());
        while !(have_ended() && crew.is_over() && program.is_over()) {
            let now_left = format!("{}\n{}", stage.told(), crew.tasks_told());
            if now_left != left {
                (changed, left) = (Instant::now(), now_left);
            }
            if changed.elapsed() > QUIET_PATIENCE {
                left += &format!("\n{}\n{}", program.told(), crew.team.told());
                panic!("nothing has changed for {QUIET_PATIENCE:?}:\n{left}");
            }
            crew.tend();
            program.tend();
            std::thread::sleep(LOOK_INTERVAL);
        }
        players.into_iter().flat_map(|player| player.join().unwrap()).collect::<Vec<_>>()
    });
    crew.team.stop();
    program.stop();
    let facts = checker::gather(&hosts, facts);
    println!("{}; {:.0} s in all", facts.counts(), start.elapsed().as_secs_f64());
    let wrong = checker::violations(&facts);
    assert!(wrong.is_empty(), "{} violations: {wrong:#?}", wrong.len());
}
