//! Random disturbances of a team: kills, stops and clock jumps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::children::{Dice, signal};
use crate::supervisors::LEASE_SECONDS;
use crate::supervisors::judge::journal;
use crate::supervisors::team::{Team, command_of};

/// How long a stopped agent continues before its supervisor does.
const HEAD_START: Duration = Duration::from_secs(1);
/// So often agents are killed at one task: fewer than count as a fault of the task.
const KILLS_A_TASK: u64 = 2;
/// The longest jump of the wall clock, in seconds.
const JUMP_MAX: u64 = 7 * 24 * 3600;

/// An agent that works now, by its own word.
struct Agent {
    task: String,
    pid: u32,
    supervisor: u32,
}

pub(crate) struct Killer {
    home: PathBuf,
    pub(crate) team: Team,
    dice: Dice,
    /// Stopped processes and the time of their continuation.
    stopped: Vec<(Instant, u32)>,
    /// How often agents were killed at a task.
    at_task: BTreeMap<String, u64>,
    pub(crate) killed: BTreeSet<u32>,
    /// Agents and supervisors that paused at some time.
    pub(crate) stood: BTreeSet<u32>,
    pub(crate) killed_agents: u64,
    pub(crate) stops: u64,
    pub(crate) jumps: u64,
    next: Instant,
    wanted: u64,
}

impl Killer {
    pub(crate) fn new(home: PathBuf, team: Team, seed: u64) -> Self {
        Self {
            home,
            team,
            dice: Dice(seed),
            stopped: Vec::new(),
            at_task: BTreeMap::new(),
            killed: BTreeSet::new(),
            stood: BTreeSet::new(),
            killed_agents: 0,
            stops: 0,
            jumps: 0,
            next: Instant::now() + Duration::from_millis(500),
            wanted: 0,
        }
    }

    pub(crate) fn acts(&self) -> u64 {
        self.killed.len() as u64 + self.killed_agents + self.stops + self.jumps
    }

    pub(crate) fn act(&mut self) {
        self.let_go(false);
        if Instant::now() < self.next {
            return;
        }
        let is_done = match self.wanted {
            0 => self.kill_an_agent(),
            1 => self.kill_a_supervisor(),
            2 => self.set_clock(),
            what => self.stop(what),
        };
        if is_done {
            self.next = Instant::now() + Duration::from_millis(50 + self.dice.below(400));
            // Each once, then at random.
            let all_met = self.acts() >= 4;
            self.wanted = if all_met { self.dice.below(6) } else { self.wanted + 1 };
        }
    }

    fn kill_a_supervisor(&mut self) -> bool {
        let at = self.dice.below(self.team.members.len() as u64) as usize;
        let is_new = self.dice.below(2) == 0;
        let pid = self.team.kill(at, is_new);
        self.stopped.retain(|(_, stopped)| *stopped != pid);
        self.killed.insert(pid)
    }

    fn set_clock(&mut self) -> bool {
        let seconds = self.dice.below(2 * JUMP_MAX) as i64 - JUMP_MAX as i64;
        self.jumps += u64::from(self.team.set_clock(seconds));
        true
    }

    fn agents(&self) -> Vec<Agent> {
        let lines = journal(&self.home);
        let of_line = |line: &String| {
            let words: Vec<&str> = line.strip_prefix("begin ")?.split(' ').collect();
            let [task, _, pid, supervisor] = words[..] else { return None };
            let (pid, supervisor) = (pid.parse().ok()?, supervisor.parse().ok()?);
            // The number may be another process's by now, and even a supervisor's, whose command line names the script.
            let command = command_of(pid);
            let is_ours = command.starts_with("sh\0") && command.contains(self.home.to_str()?);
            is_ours.then(|| Agent { task: task.to_owned(), pid, supervisor })
        };
        lines.iter().rev().take(60).filter_map(of_line).collect()
    }

    fn kill_an_agent(&mut self) -> bool {
        let spared = |task: &str| self.at_task.get(task).is_some_and(|n| *n >= KILLS_A_TASK);
        let Some(agent) = self.agents().into_iter().find(|agent| !spared(&agent.task)) else {
            return false;
        };
        let is_killed = signal(agent.pid, Signal::KILL);
        if is_killed {
            *self.at_task.entry(agent.task).or_default() += 1;
            self.killed_agents += 1;
        }
        is_killed
    }

    /// An agent, its supervisor, or both pause for longer than a lease runs.
    fn stop(&mut self, what: u64) -> bool {
        let is_member = |pid| self.team.members.iter().any(|member| member.pid() == pid);
        let is_free = |pid| self.stopped.iter().all(|(_, stopped)| *stopped != pid);
        let found = self.agents().into_iter().find(|agent| {
            is_member(agent.supervisor) && is_free(agent.supervisor) && is_free(agent.pid)
        });
        let Some(Agent { pid, supervisor, .. }) = found else { return false };
        let until = Instant::now() + 2 * Duration::from_secs(LEASE_SECONDS);
        // The agent last: it is still the child of this supervisor then.
        if what != 3 {
            signal(supervisor, Signal::STOP);
            self.stood.insert(supervisor);
            self.stopped.push((until + HEAD_START, supervisor));
        }
        if what != 4 && signal(pid, Signal::STOP) {
            self.stood.insert(pid);
            self.stopped.push((until, pid));
        }
        self.stops += 1;
        true
    }

    pub(crate) fn let_go(&mut self, all: bool) {
        let now = Instant::now();
        self.stopped.retain(|(until, pid)| {
            let is_over = all || now >= *until;
            if is_over {
                signal(*pid, Signal::CONT);
            }
            !is_over
        });
    }
}
