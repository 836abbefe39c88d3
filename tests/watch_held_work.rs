//! What an agent holds, by what the watcher sees of its pane: the real watcher, a real tmux server.

#[path = "tmux_support/mod.rs"]
mod tmux_support;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::{Clock as _, Lease, SystemClock};
use ensemble_core::event_log::{NullRecorder, read_all};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Settings, Spool, State};
use ensemble_project::Project;
use ensemble_project::panes::{self, PaneEntry};
use ensemble_team::roster::Member;
use serde_json::Value;
use tmux_support::{TestServer, eventually};

/// The watcher as a process; ended when this is dropped.
struct Watcher(Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Bed {
    tmux: TestServer,
    project: Project,
    spool: Spool,
}

fn worker() -> Name {
    Name::new("worker-1").unwrap()
}

impl Bed {
    /// A worker in a pane that runs a command, with leases of `lease_seconds` and one message that it holds.
    fn new(command: &str, lease_seconds: u64) -> (Self, Lease) {
        let tmux = TestServer::start(command);
        let queue = tmux.dir.path().join("project/queue");
        let project = Project::discover(Some(&queue)).unwrap();
        project.ensure_state().unwrap();
        let config = project.root().join("ensemble.yaml");
        std::fs::write(config, "durability: process\npoll_interval: 1\n").unwrap();
        let spool = Spool::create(&queue, project.spool_options(Arc::new(NullRecorder))).unwrap();
        let settings = Settings::default().with_lease_seconds(lease_seconds);
        spool.add_mailbox(&worker(), &settings).unwrap();
        let bed = Self { tmux, project, spool };
        bed.bind();
        bed.spool.publish(&Envelope::new(worker(), "work\n").with_task("t-1")).unwrap();
        let lease = bed.take();
        (bed, lease)
    }

    fn bind(&self) {
        let binding = self.tmux.server.bind("%0").unwrap();
        let provider = "shell".to_owned();
        let entry = PaneEntry::new(worker(), worker(), provider, binding);
        panes::write(&self.project.panes(), &entry).unwrap();
        let roster = self.project.roster();
        roster
            .change(&worker(), |_| {
                let (role, since) = (Name::new("worker")?, SystemClock.wall());
                let mut member = Member::new(worker(), role, "shell", since);
                member.binding = Some(entry.binding.clone());
                Ok(Some(member))
            })
            .unwrap();
    }

    fn take(&self) -> Lease {
        self.spool.receive(&worker(), &worker()).unwrap().unwrap().lease
    }

    fn watch(&self) -> Watcher {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ensemble-watch"));
        command.arg("--queue").arg(&self.project.queue);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        // Where the system has no inotify instance left, it says so first.
        assert!(said.any(|line| line.contains("watching")), "it does not watch");
        Watcher(child)
    }

    fn records(&self, kind: &str) -> Vec<Value> {
        let Ok(records) = read_all(&self.project.logs()) else { return Vec::new() };
        records
            .filter(|record| record.kind.as_str() == kind)
            .map(|r| Value::Object(r.data))
            .collect()
    }

    fn state(&self, lease: &Lease) -> State {
        self.spool.state(&worker(), &lease.id).unwrap().unwrap()
    }
}

#[test]
fn the_lease_of_a_working_agent_is_extended_and_runs_out_once_it_is_idle() {
    let (bed, lease) = Bed::new("trap : INT; while :; do read -r line && $line; done", 4);
    bed.tmux.human(&["sleep 100000", "Enter"]);
    let _watcher = bed.watch();
    // Four times its lease, and it is still the same delivery.
    eventually("the lease is extended again and again", || {
        bed.spool.observe(&worker()).unwrap().first().is_some_and(|held| held.sequence >= 8)
    });
    assert_eq!(bed.state(&lease), State::Acked { holder: worker(), epoch: 1 });
    let kept = bed.records("lease.kept");
    assert_eq!((kept.len(), &kept[0]["evidence"]), (1, &"runs sleep".into()));
    assert!(bed.records("nudge.sent").is_empty(), "it is not nudged about what it holds");
    bed.tmux.human(&["C-c"]);
    eventually("the lease of an idle agent runs out", || {
        matches!(bed.state(&lease), State::Queued { epoch: 1, .. })
    });
}

#[test]
fn what_an_agent_held_comes_back_at_once_when_its_pane_is_gone() {
    // Its lease would run for a day.
    let (bed, lease) = Bed::new("exec sleep 100000", 86_400);
    let second = Name::new("other").unwrap();
    bed.spool.add_mailbox(&second, &Settings::default()).unwrap();
    bed.spool.publish(&Envelope::new(second.clone(), "work\n")).unwrap();
    let foreign = bed.spool.receive(&second, &worker()).unwrap().unwrap().lease;
    let conductor = Name::new("conductor").unwrap();
    bed.spool.add_mailbox(&conductor, &Settings::default()).unwrap();
    let _watcher = bed.watch();
    eventually("it is seen working", || !bed.records("lease.kept").is_empty());
    bed.tmux.server.run(&["new-window", "-d", "sleep 100000"]).unwrap();
    bed.tmux.server.kill_pane("%0").unwrap();
    eventually("the watcher sees the end", || !bed.records("lease.holder_gone").is_empty());
    assert!(matches!(bed.state(&lease), State::Queued { epoch: 1, .. }));
    let state = bed.spool.state(&second, &foreign.id).unwrap();
    assert!(matches!(state, Some(State::Queued { epoch: 1, .. })), "{state:?}");
    let gone = bed.records("lease.holder_gone").remove(0);
    assert_eq!(gone["agent"], "worker-1");
    assert_eq!(gone["messages"].as_array().unwrap().len(), 2);
    assert_eq!(gone["messages"][0]["attempt"], 1);
    let mut told = None;
    eventually("the conductor is told", || {
        told = bed.spool.receive(&conductor, &conductor).unwrap();
        told.is_some()
    });
    let told = told.unwrap().envelope;
    assert_eq!(told.kind.as_str(), "board.alarm");
    assert!(told.body.contains("alarm: agent_gone"), "{}", told.body);
    assert!(told.body.contains(lease.id.as_str()) && told.body.contains("`ensemble up worker-1`"));
    // A person who acts for it keeps an ordinary lease.
    let by_hand = bed.take();
    assert_eq!(by_hand.epoch, 2);
    assert!(bed.spool.extend(&by_hand, Duration::from_secs(60)).is_ok());
    bed.spool.settle(&by_hand).unwrap();
}
