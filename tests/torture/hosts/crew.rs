//! Those who work off the blackboard: on each host a coder and a reviewer under `ensemble agent supervise`, and a
//! planner on the first. Their agents are those of tests/torture/supervisors.

use crate::supervisors::team::{Agent, Team};

use super::*;

/// Between two looks of a person at what the circuit breaker has found.
const LOOK_AT_CHECKPOINT: Duration = Duration::from_secs(2);
/// Place and role of each.
const MEMBERS: [(usize, &str); 5] =
    [(0, "planner"), (0, "coder"), (0, "code-reviewer"), (1, "coder"), (1, "code-reviewer")];

pub struct Crew<'a> {
    hosts: &'a [Host; 2],
    pub team: Team<'a>,
    /// Tasks whose agent was killed once: more would be the task's fault by the rules of the board.
    spared: BTreeSet<String>,
    /// When the person last checked for a checkpoint.
    looked_at: Instant,
}

pub fn tasks(host: &Host) -> Vec<Value> {
    let listed = host.ok("task list --json");
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl<'a> Crew<'a> {
    /// A blackboard with this many tasks, some of which depend on others, and those who work on it.
    pub fn new(hosts: &'a [Host; 2], tasks: u64) -> Self {
        for at in 0..tasks {
            let before = at.checked_sub(3).map(|at| format!("t{at}"));
            let before = before.filter(|id| at % 3 != 0 && !is_hopeless(id));
            let after = before.map_or_else(String::new, |id| format!(" --after {id}"));
            hosts[usize::try_from(at % 2).unwrap()]
                .ok(&format!("task add t{at} -d count --spec README --done-when there{after}"));
        }
        let program = |at: usize| hosts[at].command::<&str>(&[]);
        let mut team = Team::new(hosts[0].own().join("crew"), "500ms", program);
        MEMBERS.into_iter().for_each(|(at, role)| team.start_new(at, role));
        Self { hosts, team, spared: BTreeSet::new(), looked_at: Instant::now() }
    }

    pub fn tend(&mut self) {
        self.see_to_checkpoint();
        self.team.tend();
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

    /// Kills an agent that works at a task of which none was killed before.
    pub fn kill_agent(&mut self) -> bool {
        let mut agents = self.team.agents().into_iter();
        let is_killed =
            |agent: &Agent| !self.spared.contains(&agent.task) && signal(agent.pid, Signal::KILL);
        let killed = agents.find(is_killed);
        killed.is_some_and(|agent| self.spared.insert(agent.task))
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
}
