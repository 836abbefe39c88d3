//! Random disturbances of a team: kills, stops and clock jumps.

use std::collections::BTreeSet;

use crate::children::Dice;
use crate::supervisors::team::Agent;

use super::*;

/// How long a stopped agent continues before its supervisor does.
const HEAD_START: Duration = Duration::from_secs(1);
/// So often agents are killed at one task: fewer than count as a fault of the task.
const KILLS_A_TASK: u64 = 2;
/// The longest jump of the wall clock, in seconds.
const JUMP_MAX: u64 = 7 * 24 * 3600;

pub(crate) struct Killer<'a> {
    pub(crate) team: Team<'a>,
    /// The wall clock of all processes, if there is a C compiler.
    clock: Option<&'a WallClock>,
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

impl<'a> Killer<'a> {
    pub(crate) fn new(team: Team<'a>, clock: Option<&'a WallClock>, seed: u64) -> Self {
        Self {
            team,
            clock,
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
        let chosen = self.dice.below(self.team.members.len() as u64);
        let is_new = self.dice.below(2) == 0;
        let pid = self.team.kill(chosen, is_new);
        self.stopped.retain(|(_, stopped)| *stopped != pid);
        self.killed.insert(pid)
    }

    fn set_clock(&mut self) -> bool {
        let seconds = self.dice.below(2 * JUMP_MAX) as i64 - JUMP_MAX as i64;
        self.jumps += u64::from(self.clock.map(|clock| clock.set(seconds)).is_some());
        true
    }

    fn kill_an_agent(&mut self) -> bool {
        let spared = |task: &str| self.at_task.get(task).is_some_and(|n| *n >= KILLS_A_TASK);
        let Some(agent) = self.team.agents().into_iter().find(|agent| !spared(&agent.task)) else {
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
        let found = self.team.agents().into_iter().find(|agent| {
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
