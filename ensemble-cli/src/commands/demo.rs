//! `ensemble demo`: a small team at work, in its own tmux server.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_app::failure::Outcome;

use crate::args;
use crate::context::Context;
use crate::demo::{self, DemoScenario, DemoSettings};

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
    #[arg(value_parser = args::duration)]
    timeout: Duration,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { dir, work, attach, timeout, scenario } = self;
        let settings = DemoSettings { dir, work, attach, timeout, scenario };
        demo::run(context, &settings)
    }
}
