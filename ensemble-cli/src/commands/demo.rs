//! `ensemble demo`: a small team at work, in a tmux server of its own.

use std::path::PathBuf;
use std::time::Duration;

use crate::args;
use crate::context::Context;
use crate::demo::{self, Scenario, Settings};
use crate::exit::Outcome;

/// Watch a Conductor, a Dispatch and two workers count the lines of a directory
///
/// Everything is real and private: a queue in a directory of its own and a tmux server on a socket
/// of its own. A watcher runs beside four shell scripts in four panes. Tasks go out, reports land,
/// and the watcher wakes each recipient. At the end it prints how long each hop took. The queue and
/// its log are kept for you to look at.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble demo --attach")]
pub(crate) struct Arguments {
    /// New directory for the queue; it must not exist [default: a new temporary directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// The directory whose files are counted [default: the current one]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    work: Option<PathBuf>,
    /// Show the panes; the demo ends when you detach (Ctrl-B d) or all is done and you press Ctrl-D
    #[arg(long)]
    attach: bool,
    /// Scenario to run
    #[arg(long, value_name = "SCENARIO", default_value = "team")]
    scenario: Scenario,
    /// Time limit of the demo
    #[arg(long = "wait", alias = "timeout", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = args::duration)]
    timeout: Duration,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { dir, work, attach, timeout, scenario } = self;
        let settings = Settings { dir, work, attach, timeout, scenario };
        demo::run(context, settings)
    }
}
