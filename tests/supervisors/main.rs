//! Supervisors work off a board of tasks with dependencies, each with agents in worktrees of their own,
//! while supervisors and agents are killed at random: every task ends MERGED or BLOCKED, nobody ever works
//! where another one does, and nothing is left behind.
//!
//! `ENSEMBLE_SUPERVISORS` (4) and `ENSEMBLE_TASKS` (24) set the size; the full one is 8 and 200.

#[path = "../worktree/bed.rs"]
mod bed;
#[path = "../children/mod.rs"]
mod children;
mod judge;
mod roles;
mod stopped;

use std::time::{Duration, Instant};

use bed::{Bed, git};
use children::{Child, Dice};
use ensemble_core::board::{NewTask, State, Status};
use rustix::process::{Pid, Signal, kill_process};

/// How long a lease runs here, in seconds.
const LEASE_SECONDS: u64 = 3;
/// Between two looks at what others do.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        roles::play(&role);
    }
}

fn setting(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// The number in a task's name.
fn number(task: &str) -> u64 {
    task.trim_start_matches('t').parse().unwrap()
}

/// What cannot be done, whoever tries.
fn is_hopeless(task: &str) -> bool {
    number(task) % 13 == 12
}

fn is_over(state: &State) -> bool {
    state.tasks.iter().all(|task| matches!(task.status, Status::Merged | Status::Blocked))
}

/// A board whose leases are short, with tasks of which some depend on others.
fn prepare(tasks: u64) -> Bed {
    let bed = Bed::new();
    let text = std::fs::read_to_string(bed.board.path()).unwrap();
    let short = text.replace("lease_duration: 300", &format!("lease_duration: {LEASE_SECONDS}"));
    assert_ne!(short, text);
    std::fs::write(bed.board.path(), short).unwrap();
    bed.change(|board| {
        for at in 0..tasks {
            let id = format!("t{at}");
            let before = [at.checked_sub(3), at.checked_sub(7)].into_iter().flatten();
            let before = before.map(|at| format!("t{at}")).filter(|id| !is_hopeless(id));
            let before: Vec<_> = before.filter(|_| at % 3 != 0).map(|id| bed::name(&id)).collect();
            let task =
                NewTask::new(bed::name(&id), format!("write {id}"), "specs/x.md", "it is there");
            board.add_task(&task.after(before))?;
        }
        Ok(())
    });
    bed
}

/// Everything of the user's that must not change.
fn checkout(bed: &Bed) -> (String, Vec<u8>) {
    let status = git(bed.home.path(), &["status", "--porcelain=v2", "--branch"]);
    (status, std::fs::read(bed.home.path().join(".git/index")).unwrap())
}

struct Killer<'a> {
    bed: &'a Bed,
    supervisors: Vec<Child>,
    count: usize,
    dice: Dice,
    kills: (u64, u64),
    /// Who stands still, and until when.
    stopped: Vec<(Instant, Vec<u32>)>,
    stops: u64,
}

impl Killer<'_> {
    fn spawn(&mut self) {
        self.count += 1;
        let role = if self.supervisors.len().is_multiple_of(2) { "coder" } else { "code-reviewer" };
        self.spawn_as(role, self.supervisors.len());
    }

    fn spawn_as(&mut self, role: &str, at: usize) {
        let agent = format!("{role}-{}", self.count);
        let home = self.bed.path();
        let child = Child::spawn(&["supervisor", home.to_str().unwrap(), &agent, role]);
        self.supervisors.insert(at, child);
    }

    fn kill_a_supervisor(&mut self) {
        let at = self.dice.below(self.supervisors.len() as u64) as usize;
        self.supervisors.remove(at).kill();
        self.count += 1;
        self.spawn_as(if at.is_multiple_of(2) { "coder" } else { "code-reviewer" }, at);
        self.kills.0 += 1;
    }

    /// An agent that works now, perhaps of this supervisor.
    fn agent(&self, of: Option<u32>) -> Option<u32> {
        let journal = roles::journal(&self.bed.path());
        journal.iter().rev().take(40).find_map(|line| {
            let pid: u32 = line.strip_prefix("begin ")?.rsplit(' ').next()?.parse().ok()?;
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent: u32 = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
            let is_one = String::from_utf8_lossy(&command).contains("supervisors");
            (is_one && of.is_none_or(|of| of == parent)).then_some(pid)
        })
    }

    /// Says whether there was one.
    fn kill_an_agent(&mut self) -> bool {
        let is_killed = self.agent(None).is_some_and(|pid| signal(pid, Signal::KILL));
        self.kills.1 += u64::from(is_killed);
        is_killed
    }

    /// A supervisor and its agent stand still for longer than a lease runs; whether there were both.
    fn stop_both(&mut self) -> bool {
        let pids = self.supervisors.iter().map(Child::pid).collect::<Vec<_>>();
        let found = pids.into_iter().find_map(|pid| Some((pid, self.agent(Some(pid))?)));
        let Some((supervisor, agent)) = found else { return false };
        let until = Instant::now() + 2 * Duration::from_secs(LEASE_SECONDS);
        self.stopped.push((until, vec![agent, supervisor]));
        self.stops += 1;
        // The agent last: it is still the child of this supervisor then.
        signal(supervisor, Signal::STOP) && signal(agent, Signal::STOP)
    }

    fn let_go(&mut self, all: bool) {
        let now = Instant::now();
        self.stopped.retain(|(until, pids)| {
            let is_over = all || now >= *until;
            if is_over {
                pids.iter().for_each(|pid| {
                    let _ = signal(*pid, Signal::CONT);
                });
            }
            !is_over
        });
    }
}

fn signal(pid: u32, signal: Signal) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

#[test]
fn supervisors_and_agents_that_are_killed_finish_the_board() {
    let (supervisors, tasks) = (setting("ENSEMBLE_SUPERVISORS", 4), setting("ENSEMBLE_TASKS", 24));
    let bed = prepare(tasks);
    // In the middle of something.
    std::fs::write(bed.home.path().join("mine"), "staged").unwrap();
    git(bed.home.path(), &["add", "mine"]);
    std::fs::write(bed.home.path().join("README"), "changed").unwrap();
    let before = checkout(&bed);
    let start = Instant::now();
    let mut killer = Killer {
        bed: &bed,
        supervisors: Vec::new(),
        count: 0,
        dice: Dice(0x5eed),
        kills: (0, 0),
        stopped: Vec::new(),
        stops: 0,
    };
    (0..supervisors).for_each(|_| killer.spawn());
    let patience = Duration::from_secs(120 + 15 * tasks);
    let mut next = start + Duration::from_millis(500);
    let (kills, mut wanted) = (tasks / 2, 1);
    while !is_over(&bed.board.read().unwrap()) {
        assert!(start.elapsed() < patience, "{}", judge::told(&bed));
        killer.let_go(false);
        if Instant::now() >= next && killer.kills.0 + killer.kills.1 + killer.stops < kills {
            let is_done = match wanted {
                0 => {
                    killer.kill_a_supervisor();
                    true
                }
                1 => killer.kill_an_agent(),
                _ => killer.stop_both(),
            };
            if is_done {
                next = Instant::now() + Duration::from_millis(200 + killer.dice.below(900));
                wanted = killer.dice.below(3);
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    let seconds = start.elapsed().as_secs_f64();
    killer.let_go(true);
    for supervisor in killer.supervisors.drain(..) {
        supervisor.was_killed();
    }
    let (killed_supervisors, killed_agents) = killer.kills;
    bed.trees().recover(true).unwrap();
    let found = judge::judge(&bed);
    assert_eq!(checkout(&bed), before, "the checkout of the user");
    println!(
        "{supervisors} supervisors, {tasks} tasks: {found}; {killed_supervisors} supervisors and \
         {killed_agents} agents killed, {} stopped past their leases, {seconds:.1} s",
        killer.stops
    );
}
