//! Those who work off the blackboard: on each host a coder and a reviewer under `ensemble agent supervise`, and a
//! planner on the first. Their agents are those of tests/torture/supervisors.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::children::signal;
use crate::hosts::host::{BUSY, Host};
use crate::supervisors::is_hopeless;

/// Between two looks of a person at what the circuit breaker has found.
const LOOK_AT_CHECKPOINT: Duration = Duration::from_secs(2);
const AGENT: &str = include_str!("../supervisors/agent.sh");
/// Place and role of each.
const MEMBERS: [(usize, &str); 5] =
    [(0, "planner"), (0, "coder"), (0, "code-reviewer"), (1, "coder"), (1, "code-reviewer")];

struct Member {
    name: String,
    at: usize,
    role: &'static str,
    process: Child,
}

pub struct Crew<'a> {
    hosts: &'a [Host; 2],
    /// What the agents of both hosts write.
    own: PathBuf,
    members: Vec<Member>,
    /// Tasks whose agent was killed once: more would be the task's fault by the rules of the board.
    spared: BTreeSet<String>,
    started: u64,
    /// When the person last checked for a checkpoint.
    looked_at: Instant,
}

/// Whether the process with this number is still the agent of that time: numbers are used again.
fn is_agent_of(pid: &str, task: &str, epoch: &str) -> bool {
    let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (command, environ) = (read("cmdline"), read("environ"));
    let environ = String::from_utf8_lossy(&environ);
    let has = |variable: String| environ.split('\0').any(|one| one == variable);
    command.starts_with(b"sh\0")
        && has(format!("ENSEMBLE_TASK_ID={task}"))
        && has(format!("ENSEMBLE_TASK_EPOCH={epoch}"))
}

pub fn tasks(host: &Host) -> Vec<Value> {
    let listed = host.ok("task list --json");
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl<'a> Crew<'a> {
    /// A blackboard with this many tasks, some of which depend on others, and those who work on it.
    pub fn new(hosts: &'a [Host; 2], tasks: u64) -> Self {
        let own = hosts[0].own().join("crew");
        std::fs::create_dir_all(own.join("locks")).unwrap();
        std::fs::write(own.join("agent.sh"), AGENT).unwrap();
        for at in 0..tasks {
            let before = at.checked_sub(3).map(|at| format!("t{at}"));
            let before = before.filter(|id| at % 3 != 0 && !is_hopeless(id));
            let after = before.map_or_else(String::new, |id| format!(" --after {id}"));
            hosts[usize::try_from(at % 2).unwrap()]
                .ok(&format!("task add t{at} -d count --spec README --done-when there{after}"));
        }
        let spared = BTreeSet::new();
        let looked_at = Instant::now();
        let mut crew = Self { hosts, own, members: Vec::new(), spared, started: 0, looked_at };
        for (at, role) in MEMBERS {
            crew.start_new(at, role);
        }
        crew
    }

    fn start_new(&mut self, at: usize, role: &'static str) {
        self.started += 1;
        self.start(format!("{role}-{}", self.started), at, role);
    }

    fn start(&mut self, name: String, at: usize, role: &'static str) {
        let agent = self.own.join("agent.sh");
        let line = format!(
            "agent supervise --role {role} --name {name} --poll 500ms --restart-delay 100ms \
             --hand-over-delay 100ms -- sh {} {role}",
            agent.display()
        );
        let told = File::options().append(true).create(true).open(self.own.join("told")).unwrap();
        let process = self.hosts[at]
            .command(&line.split_whitespace().collect::<Vec<_>>())
            .env("JOURNAL", self.own.join("journal"))
            .env("LOCKS", self.own.join("locks"))
            .stdout(Stdio::null())
            .stderr(told)
            .spawn()
            .unwrap();
        self.members.push(Member { name, at, role, process });
    }

    /// None ends by itself, but one whose name is still in use, or who cannot reach the servers at its start.
    pub fn tend(&mut self) {
        self.see_to_checkpoint();
        for at in (0..self.members.len()).rev() {
            let Some(status) = self.members[at].process.try_wait().unwrap() else { continue };
            let member = self.members.remove(at);
            assert_eq!(status.code(), Some(BUSY), "{} has ended:\n{}", member.name, self.last());
            self.start(member.name, member.at, member.role);
        }
    }

    /// The circuit breaker stops the team once some tasks have failed in the same way, as hopeless ones do. Plays the
    /// person who then lets it continue.
    fn see_to_checkpoint(&mut self) {
        let there = self.hosts[0].project.join(".ensemble/servers/board/CHECKPOINT");
        if there.exists() && self.looked_at.elapsed() > LOOK_AT_CHECKPOINT {
            // If this fails, the file still exists at the next look.
            let _ = self.hosts[0].verb(&["resume"]);
            self.looked_at = Instant::now();
        }
    }

    /// `kill -9`, and another one for it: of the same name, or of a new one.
    pub fn kill(&mut self, chosen: u64, is_new: bool) {
        let at = usize::try_from(chosen % self.members.len() as u64).unwrap();
        let mut member = self.members.remove(at);
        member.process.kill().unwrap();
        member.process.wait().unwrap();
        match is_new {
            true => self.start_new(member.at, member.role),
            false => self.start(member.name, member.at, member.role),
        }
    }

    /// Kills an agent that works at a task of which none was killed before.
    pub fn kill_agent(&mut self) -> bool {
        for line in self.journal().iter().rev() {
            let words: Vec<&str> = line.split(' ').collect();
            let ["begin", task, epoch, pid, _] = words[..] else { continue };
            if !self.spared.contains(task)
                && is_agent_of(pid, task, epoch)
                && signal(pid.parse().unwrap(), Signal::KILL)
            {
                self.spared.insert(task.to_owned());
                return true;
            }
        }
        false
    }

    pub fn journal(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.own.join("journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Whether nothing more happens on the blackboard by itself, and supervisors have removed what merges leave.
    pub fn is_over(&self) -> bool {
        tasks(&self.hosts[0]).iter().all(|task| {
            let id = task["id"].as_str().unwrap_or_default();
            match is_hopeless(id) {
                true => task["status"] == "BLOCKED",
                false => task["status"] == "MERGED" && self.worktrees(id).is_empty(),
            }
        })
    }

    fn worktrees(&self, task: &str) -> Vec<PathBuf> {
        let paths = self.hosts.iter().map(|host| host.project.join(".worktrees").join(task));
        paths.filter(|path| path.symlink_metadata().is_ok()).collect()
    }

    pub fn tasks_told(&self) -> String {
        let told = |task: &serde_json::Value| {
            let left = self.worktrees(task["id"].as_str().unwrap_or_default());
            format!("{} {} {} {left:?}", task["id"], task["status"], task["assigned_to"])
        };
        tasks(&self.hosts[0]).iter().map(told).collect::<Vec<_>>().join("\n")
    }

    pub fn told(&self) -> String {
        let journal = self.journal();
        let last = journal[journal.len().saturating_sub(20)..].join("\n");
        format!("{last}\n{}", self.last())
    }

    fn last(&self) -> String {
        let text = std::fs::read_to_string(self.own.join("told")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub fn stop(&mut self) {
        for member in &self.members {
            signal(member.process.id(), Signal::TERM);
        }
        for mut member in std::mem::take(&mut self.members) {
            let status = member.process.wait().unwrap();
            assert!(status.success(), "{} ended with {status}:\n{}", member.name, self.last());
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
        // Their agents.
        for line in self.journal() {
            let pid = line.split(' ').nth(3).and_then(|pid| pid.parse().ok());
            let here = self.own.display().to_string();
            let is_ours = |pid: &u32| {
                let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command).contains(&here)
            };
            if let Some(pid) = pid.filter(is_ours) {
                signal(pid, Signal::KILL);
            }
        }
    }
}
