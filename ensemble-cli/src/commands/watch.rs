//! `ensemble watch`: the sidecar, in the foreground.

use ensemble_watch::run_process;

use crate::context::Context;
use crate::exit::{Outcome, say};

/// Route files of the drop boxes and wake the agents, until SIGTERM or Ctrl-C
///
/// One watcher runs for each queue; a second one is refused with exit code 75. Files that landed
/// while no watcher ran are routed first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble watch & # then: ensemble status")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self {} = self;
        let project = context.project()?;
        run_process(project, || say(&format!("watching {}", project.queue.display())))?;
        Ok(())
    }
}
