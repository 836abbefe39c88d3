//! `ensemble board abort`: stops all agents.

use ensemble_team::authority::Act;
use ensemble_team::board::ControlFile;
use ensemble_team::proto::goal::SprintEvent;

use super::controls::stop_sprint;
use crate::authority::authorize;
use crate::context::Context;
use crate::exit::Outcome;

/// Stop all agents, and end the sprint
///
/// Puts ABORT beside the blackboard: supervisors end their agents and themselves. What is in the
/// worktrees stays there. The sprint is ABORTED, which is final; the goal is not touched.
/// An agent needs authority for it: `authority` in ensemble.yaml.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        authorize(context, Act::Abort)?;
        stop_sprint(context, ControlFile::Abort, SprintEvent::Abort, &self.reason)
    }
}
