//! Supervisors as processes: `ensemble agent supervise` with an agent that is a shell script.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::children::signal;
use crate::supervisors::bed::{Bed, ISOLATED};
use crate::wall_clock::WallClock;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ensemble");
const AGENT: &str = include_str!("agent.sh");
/// Another one holds the name, or is just ending what its dead supervisor has left.
const BUSY: i32 = 75;

pub(crate) struct Member {
    pub(crate) id: String,
    role: &'static str,
    process: Child,
}

impl Member {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// All of them. What still runs is killed with this.
pub(crate) struct Team {
    home: PathBuf,
    /// The wall clock of all processes, if there is a C compiler.
    clock: Option<WallClock>,
    pub(crate) members: Vec<Member>,
    started: usize,
    /// How often a name was still in use.
    pub(crate) busy: usize,
}

impl Team {
    pub(crate) fn new(bed: &Bed) -> Self {
        let home = bed.path();
        let own = own(&home);
        std::fs::create_dir_all(own.join("working")).unwrap();
        std::fs::write(own.join("agent.sh"), AGENT).unwrap();
        std::fs::write(home.join("ensemble.yaml"), "durability: process\n").unwrap();
        let clock = WallClock::build(&own);
        Self { home, clock, members: Vec::new(), started: 0, busy: 0 }
    }

    /// Half coders, half reviewers, and a planner.
    pub(crate) fn begin(&mut self, count: u64) {
        self.start_new("planner");
        for at in 0..count {
            self.start_new(if at.is_multiple_of(2) { "coder" } else { "code-reviewer" });
        }
    }

    fn start_new(&mut self, role: &'static str) {
        self.started += 1;
        let id = format!("{role}-{}", self.started);
        self.start(id, role);
    }

    fn start(&mut self, id: String, role: &'static str) {
        let own = own(&self.home);
        let agent = own.join("agent.sh");
        let line = "--poll 200ms --restart-delay 100ms --hand-over-delay 100ms";
        let mut command = Command::new(PROGRAM);
        command
            .args(["agent", "supervise", "--role", role, "--id", &id])
            .args(line.split(' '))
            .args(["--", "sh", agent.to_str().unwrap(), role])
            .env_clear()
            .envs(ISOLATED)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &own)
            .env("ENSEMBLE", PROGRAM)
            .env("JOURNAL", own.join("journal"))
            .env("LOCKS", own.join("working"))
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().append(true).create(true).open(own.join("told")).unwrap());
        if let Some(clock) = &self.clock {
            command.envs(clock.variables());
        }
        self.members.push(Member { id, role, process: command.spawn().unwrap() });
    }

    /// `kill -9`, and another one for it: of the same name, or of a new one. Its process.
    pub(crate) fn kill(&mut self, at: usize, is_new: bool) -> u32 {
        let mut member = self.members.remove(at);
        member.process.kill().unwrap();
        member.process.wait().unwrap();
        match is_new {
            true => self.start_new(member.role),
            false => self.start(member.id.clone(), member.role),
        }
        member.pid()
    }

    /// None ends by itself, but one whose name is still in use; that is tried again.
    pub(crate) fn check(&mut self) {
        for at in (0..self.members.len()).rev() {
            let Some(status) = self.members[at].process.try_wait().unwrap() else { continue };
            let member = self.members.remove(at);
            assert_eq!(status.code(), Some(BUSY), "{} has ended:\n{}", member.id, self.told());
            self.busy += 1;
            self.start(member.id, member.role);
        }
    }

    /// Sets the wall clock of all of them, by this many seconds from the machine's.
    pub(crate) fn set_clock(&self, seconds: i64) -> bool {
        self.clock.as_ref().map(|clock| clock.set(seconds)).is_some()
    }

    pub(crate) fn stop(&mut self) {
        for member in &self.members {
            signal(member.pid(), Signal::TERM);
        }
        let told = own(&self.home).join("told");
        for mut member in self.members.drain(..) {
            let status = member.process.wait().unwrap();
            assert!(status.success(), "{} ended with {status}: {}", member.id, last(&told));
        }
    }

    pub(crate) fn told(&self) -> String {
        last(&own(&self.home).join("told"))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
        // Their agents.
        for pid in running(&self.home) {
            signal(pid, Signal::KILL);
        }
    }
}

/// A directory for the test's files, not beside the board, where supervisors react to every change.
pub(crate) fn own(home: &Path) -> PathBuf {
    home.join(".ensemble/test")
}

fn last(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Processes whose command line names the project.
pub(crate) fn running(home: &Path) -> Vec<u32> {
    let home = home.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| command_of(*pid).contains(home)).collect()
}

pub(crate) fn command_of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}
