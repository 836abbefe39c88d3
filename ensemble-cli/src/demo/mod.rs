//! The demo. The scenario `lunch` is the story that a new user sees.
//!
//! The scenario `team` is seed 002's whole flow with a real watcher, a real tmux server and shell scripts:
//!
//! ```text
//! conductor ──instruction──> dispatch ──tasks/──> worker-1, worker-2
//! conductor <──reports/completion-summary── dispatch <──reports/*-completed── workers
//! ```
//!
//! Every arrow is a file that lands and a line that is typed into a pane. The narration is made from the event log,
//! so it shows what happened and not what was meant to happen.

mod hops;
mod lunch;
mod sprint;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_core::event_log::Follower;
use ensemble_core::watch::Waiter;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{FAINT, GOOD, STRONG};
use hops::MessageHops;
use stage::{DemoStage, io_failure, make_dir};

/// Watch a small team: one agent is done, one is silent, one asks, one crashes
///
/// Everything is real and private: a queue in its own directory, a tmux server, a watcher, and shell scripts as
/// agents. It prints what happens as the event log has it, and ends with `ensemble status`.
/// Nothing stays behind unless `--dir` names a place. The scenario `team` is a whole flow of Conductor, Dispatch and
/// workers over a directory of files, with the time that each hop took.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble demo --attach")]
pub(crate) struct Arguments {
    /// New directory for the queue, which is kept; it must not exist [default: a temporary one]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// The directory whose files the scenario `team` counts [default: the current one]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    work: Option<PathBuf>,
    /// Show the live view at the end (`q` leaves it), or in the scenario `team` the panes
    #[arg(long)]
    attach: bool,
    /// Scenario to run
    #[arg(long, value_name = "SCENARIO", default_value = "lunch")]
    scenario: DemoScenario,
    /// Time limit of the demo
    #[arg(long = "wait", alias = "timeout", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = crate::args::duration)]
    timeout: Duration,
}

/// The scenario to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DemoScenario {
    /// Four agents get a task each: one is done, one is silent, one asks, one crashes
    Lunch,
    /// A Conductor, a Dispatch and two workers in one tmux server, over a directory
    Team,
    /// A planner, a coder and a reviewer under supervisors, with a crash, a hand-over, a rejection and
    /// a merge
    Sprint,
}

impl Arguments {
    /// Runs it. Its directory is removed afterwards, unless the user has named one.
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let dir = make_dir(self.dir.as_deref())?;
        let played = match self.scenario {
            DemoScenario::Lunch => lunch::run(context, &self, &dir),
            DemoScenario::Team => team(context, &self, &dir),
            DemoScenario::Sprint => sprint::run(context, &self, &dir),
        };
        if self.dir.is_none() {
            let removed = std::fs::remove_dir_all(&dir);
            played.and_then(|()| removed.map_err(|error| io_failure("remove", &dir, error)))
        } else if played.is_ok() && !context.out.is_json() {
            context.out.line(format!("kept: {} (`ensemble --queue`, `log`, `why`)", dir.display()))
        } else {
            played
        }
    }
}

fn team(context: &Context, settings: &Arguments, dir: &Path) -> Outcome {
    let interrupted = interruption()?;
    let mut stage = DemoStage::set(settings, dir)?;
    let story = format!("a team of four in {}", stage.project.queue.display());
    if !context.out.is_json() {
        context.out.line(context.out.paint(STRONG, story))?;
    }
    let viewer = if settings.attach { Some(stage.attach()?) } else { None };
    stage.begin()?;
    let aloud = viewer.is_none() && !context.out.is_json();
    let told = follow(context, &mut stage, settings.timeout, aloud, &interrupted);
    if let Some(viewer) = viewer {
        stage::wait_for_viewer(viewer, &interrupted);
    }
    stage.strike();
    conclude(context, &stage, &told?)
}

fn follow(
    context: &Context,
    stage: &mut DemoStage,
    patience: Duration,
    aloud: bool,
    interrupted: &AtomicBool,
) -> Outcome<MessageHops> {
    let logs = stage.project.logs();
    let waiter = Waiter::new(std::slice::from_ref(&logs));
    let mut follower = Follower::from_start(&logs);
    let mut hops = MessageHops::default();
    let start = Instant::now();
    while !hops.is_complete() {
        for record in follower.poll()? {
            if let Some(line) = hops.describe_record(&record)
                && aloud
            {
                let at = format!("{:>7.3} s", hops.seconds_since_start(&record));
                context.out.line(format!("{}  {line}", context.out.paint(FAINT, at)))?;
            }
        }
        context.out.flush()?;
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            let text = format!("the demo did not finish within {} s", patience.as_secs());
            let screens = stage.screens();
            return Err(Failure::new(VerbExit::Nothing, text)
                .with_hint(format!("the panes show:\n{screens}")));
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::refused(
                "interrupted: everything that the demo had started is gone",
            ));
        }
        stage.check_alive()?;
        if !hops.is_complete() {
            waiter.wait(left.min(Duration::from_millis(100)));
        }
    }
    Ok(hops)
}

/// Prints a line of the story at once.
fn tell(context: &Context, line: impl std::fmt::Display) -> Outcome {
    match context.out.is_json() {
        true => Ok(()),
        false => context.out.line(line).and_then(|()| context.out.flush()),
    }
}

/// Set by the signals that end a program, so that nothing the demo has started outlives it.
fn interruption() -> Outcome<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|e| Failure::refused(format!("cannot listen to signals: {e}")))?;
    }
    Ok(interrupted)
}

fn conclude(context: &Context, stage: &DemoStage, hops: &MessageHops) -> Outcome {
    if context.out.is_json() {
        for row in hops.rows() {
            context.out.object(&row)?;
        }
    } else {
        context.out.line("")?;
        hops.table(&context.out)?;
        context.out.line("")?;
    }
    let findings = stage.spool.fsck(false)?;
    if !findings.is_empty() {
        let text = format!("fsck finds fault with the demo's queue: {}", findings.len());
        return Err(Failure::new(VerbExit::Corrupt, text));
    }
    if context.out.is_json() {
        return Ok(());
    }
    let summary = stage.summary()?;
    context.out.line(format!("{} {summary}", context.out.paint(GOOD, "done:")))
}
