//! `ensemble demo --scenario two-hosts`: one team on two "hosts" that share nothing but servers and a git remote.
//!
//! ```text
//! host-a: dispatch, planner-1, reviewer-1, tester      host-b: worker-1, worker-2, coder-1, builder
//!         └── tasks ──> nats-server  ──> workers        killed, and started again
//!         └── sprint ─> nats-server, team.git ──> coder  host-b is cut off meanwhile
//!         └── steps ──> PostgreSQL  ──> builder          killed, and started again
//! ```
//!
//! Each host has a clone, a queue, a watcher and its own tmux server. Without PostgreSQL the steps are left out.

mod cable;
mod host;
mod servers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::event_log::{Follower, Record, types};
use ensemble_team::board::State;
use serde_json::{Value, json};

use super::DemoSettings;
use super::repository::{self, git};
use super::sprint::{self, TASK};
use super::stage::{io_failure, write};
use crate::context::Context;
use crate::output::{FAINT, GOOD, STRONG};
use cable::NetworkCable;
use host::DemoHost;
use servers::{DemoDatabase, MailHub};

/// How many tasks go to the other host.
const TASKS: usize = 8;
/// After this many reports the nats-server is killed.
const KILL_AFTER: usize = 3;
/// How long host-b is cut off: longer than a verb waits for the servers.
const CUT: Duration = Duration::from_secs(8);
/// How soon a message is delivered again whose `recv` was cut off in the middle of the answer.
const LEASE: &str = "5s";
/// Between two looks at what has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const PLAN: &str = "\
task_id: release
orchestrator: lead
steps:
  - {agent: tester, goal: Write a failing test, files: [tests/greet.sh]}
  - {agent: builder, goal: Make it pass, files: [greet.sh]}
  - {agent: tester, goal: Try it out}
  - {agent: builder, goal: Release it}
";
const STEPS: usize = 4;

/// The servers and the hosts, in the order in which they end.
struct TwoHostsStage {
    near: DemoHost,
    far: DemoHost,
    cables: Vec<NetworkCable>,
    hub: MailHub,
    database: Option<DemoDatabase>,
}

#[derive(Default)]
struct DemoProgress {
    killed_after: Option<usize>,
    cut_at: Option<Instant>,
    is_back: bool,
    is_claimed: bool,
    is_merged: bool,
    steps: usize,
    is_database_killed: bool,
}

pub(super) fn run(context: &Context, settings: &DemoSettings, dir: &Path) -> Outcome {
    let interrupted = super::interruption()?;
    let start = Instant::now();
    let tell = |line: String| match context.out.is_json() {
        true => Ok(()),
        false => {
            let at = context.out.paint(FAINT, format!("{:>7.3} s", start.elapsed().as_secs_f64()));
            context.out.line(format!("{at}  {line}")).and_then(|()| context.out.flush())
        }
    };
    tell(context.out.paint(STRONG, format!("two hosts and their servers in {}", dir.display())))?;
    let mut stage = TwoHostsStage::set(dir)?;
    tell(format!("{TASKS} tasks go from host-a to host-b, and a sprint begins on both"))?;
    match stage.database {
        Some(_) => tell(format!("{STEPS} steps are taken by both in turn"))?,
        None => tell("there is no PostgreSQL, so there are no steps".to_owned())?,
    }
    let played = stage.play(dir, (settings.timeout, &interrupted), &tell);
    // Supervisors ask the servers before they leave.
    stage.cables.iter().for_each(NetworkCable::plug);
    let left = stage.leave();
    let progress = played?;
    let result = stage.check(dir, &left?, &progress)?;
    drop(stage);
    if context.out.is_json() {
        return context.out.object(&result);
    }
    tell(format!(
        "{} all {TASKS} reports came, each once; `{TASK}` is merged; {} steps are done, each once",
        context.out.paint(GOOD, "done:"),
        progress.steps
    ))
}

impl TwoHostsStage {
    fn set(dir: &Path) -> Outcome<Self> {
        let first = dir.join("first");
        std::fs::create_dir(&first).map_err(|e| io_failure("create directory", &first, e))?;
        repository::begin(&first)?;
        git(dir, &["clone", "-q", "--bare", "first", "team.git"])?;
        let hub = MailHub::start(dir.join("server"))?;
        let database = DemoDatabase::start(&dir.join("database"))?;
        let cable = |port| {
            NetworkCable::to(port).map_err(|e| io_failure("listen on", Path::new("127.0.0.1"), e))
        };
        let steps = database.as_ref().map(|database| database.port);
        let mut cables = vec![cable(hub.port)?];
        cables.extend(steps.map(cable).transpose()?);
        let near = DemoHost::set("host-a", dir, (hub.port, steps))?;
        let ports = (cables[0].port, cables.get(1).map(|cable| cable.port));
        let far = DemoHost::set("host-b", dir, ports)?;
        let mut stage = Self { near, far, cables, hub, database };
        stage.begin(dir)?;
        Ok(stage)
    }

    /// Mailboxes, the blackboard and the plan; then the agents that work with them.
    fn begin(&mut self, dir: &Path) -> Outcome {
        let Self { near, far, .. } = self;
        for mailbox in ["dispatch", "lead", "worker-1", "worker-2"] {
            near.verb(&["mailbox", "add", mailbox, "--lease", LEASE])?;
        }
        near.verb(&["board", "init"])?;
        let worker = include_str!("../far_worker.sh");
        far.agent("worker-1", worker, dir)?;
        far.agent("worker-2", worker, dir)?;
        near.agent("dispatch", include_str!("../far_dispatch.sh"), dir)?;
        for supervised in sprint::AGENTS {
            match supervised.1 {
                "coder" => far.supervise(supervised)?,
                _ => near.supervise(supervised)?,
            }
        }
        if self.database.is_some() {
            let plan = dir.join("plan.yaml");
            write(&plan, PLAN)?;
            near.verb(&["step", "add", "-f", &plan.display().to_string()])?;
            let steps = include_str!("../far_steps.sh");
            near.agent("tester", steps, dir)?;
            far.agent("builder", steps, dir)?;
        }
        Ok(())
    }

    /// Tells what happens, and disturbs it, until all is done.
    fn play(
        &mut self,
        dir: &Path,
        (timeout, interrupted): (Duration, &AtomicBool),
        tell: &dyn Fn(String) -> Outcome,
    ) -> Outcome<DemoProgress> {
        let mut followers = [&self.near, &self.far]
            .map(|host| (host.name, Follower::from_start(&host.project.logs())));
        let (start, mut progress) = (Instant::now(), DemoProgress::default());
        loop {
            for (host, follower) in &mut followers {
                for record in follower.poll()? {
                    if let Some(line) = progress.describe_event(&record) {
                        tell(format!("{host}  {line}"))?;
                    }
                }
            }
            let reports = reports(dir).len();
            self.disturb(&mut progress, reports, tell)?;
            let steps = if self.database.is_some() { STEPS } else { 0 };
            if reports >= TASKS && progress.is_merged && progress.is_back && progress.steps >= steps
            {
                return Ok(progress);
            }
            if start.elapsed() > timeout || interrupted.load(Ordering::Relaxed) {
                let text = format!(
                    "the demo did not finish: {reports} of {TASKS} reports, {} of {steps} steps, merged: {}",
                    progress.steps, progress.is_merged
                );
                return Err(Failure::new(VerbExit::Nothing, text));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn disturb(
        &mut self,
        progress: &mut DemoProgress,
        reports: usize,
        tell: &dyn Fn(String) -> Outcome,
    ) -> Outcome {
        if reports >= KILL_AFTER && progress.killed_after.is_none() {
            progress.killed_after = Some(reports);
            self.hub.crash()?;
            tell(format!("after {reports} reports the nats-server was killed and started again"))?;
        }
        if let Some(database) = self.database.as_mut().filter(|_| progress.steps > 0)
            && !std::mem::replace(&mut progress.is_database_killed, true)
        {
            database.crash()?;
            tell("after a step PostgreSQL was killed and started again".to_owned())?;
        }
        match progress.cut_at {
            None if progress.is_claimed => {
                progress.cut_at = Some(Instant::now());
                self.cables.iter().for_each(NetworkCable::pull);
                tell("host-b is cut off from all servers".to_owned())
            }
            Some(at) if at.elapsed() >= CUT && !progress.is_back => {
                progress.is_back = true;
                self.cables.iter().for_each(NetworkCable::plug);
                tell("host-b is back".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Ends the agents. Returns the blackboard once all have left it.
    fn leave(&self) -> Outcome<State> {
        [&self.near, &self.far].into_iter().for_each(DemoHost::close);
        sprint::left(|| self.near.board())
    }

    fn check(&self, dir: &Path, board: &State, progress: &DemoProgress) -> Outcome<Value> {
        let wrong = |text: String| Err(Failure::new(VerbExit::Corrupt, text));
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        for id in reports(dir) {
            *times.entry(id).or_default() += 1;
        }
        let doubled = times.values().filter(|n| **n > 1).count();
        if times.len() != TASKS || doubled > 0 {
            return wrong(format!(
                "{} different reports came, {doubled} of them twice",
                times.len()
            ));
        }
        sprint::check_task(board, &dir.join("team.git"))?;
        let steps = if self.database.is_some() { self.steps()? } else { Vec::new() };
        if let Some((step, runs)) = steps.iter().enumerate().find(|(_, runs)| **runs != 1) {
            return wrong(format!("step {} was done {runs} times", step + 1));
        }
        Ok(json!({
            "tasks": TASKS, "reports": times.len(), "doubled": doubled,
            "server_killed_after": progress.killed_after, "merged": [TASK], "steps": steps.len(),
            "nudges_on_host_a": self.near.nudges()?, "nudges_on_host_b": self.far.nudges()?,
        }))
    }

    /// How often each step was done.
    fn steps(&self) -> Outcome<Vec<usize>> {
        let done = |step: usize| {
            let shown =
                self.near.verb(&["step", "show", "release", &step.to_string(), "--json"])?;
            let runs = shown.first().and_then(|step| step["runs"].as_array());
            let successes =
                |runs: &Vec<Value>| runs.iter().filter(|run| run["outcome"] == "success").count();
            Ok(runs.map_or(0, successes))
        };
        (1..=STEPS).map(done).collect()
    }
}

impl DemoProgress {
    /// Notes an event, and says it in words.
    fn describe_event(&mut self, record: &Record) -> Option<String> {
        if record.kind.matches(types::STEP_COMPLETED) {
            self.steps += 1;
            let index = record.data.get("step_index").and_then(Value::as_u64).unwrap_or_default();
            return Some(format!("{}: step {index} of {STEPS} is done", record.actor));
        }
        let line = sprint::lines(record);
        self.is_claimed |= line.as_ref().is_some_and(|line| line.contains("claimed"));
        self.is_merged |= line.as_ref().is_some_and(|line| line.contains("-> MERGED"));
        line
    }
}

/// The reports that dispatch has settled so far; a line that is being written does not count.
fn reports(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("reports")).unwrap_or_default();
    text.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(|l| l.trim().to_owned()).collect()
}
