use ensemble_app::authority::authorize;
use ensemble_app::controls::{put_control, step_stopped_sprint};
use ensemble_app::failure::Outcome;
use ensemble_team::authority::AuthorityAct;
use ensemble_team::board::ControlFile;
use ensemble_team::proto::goal::SprintEvent;

use crate::context::Context;
use crate::printing::controls::print_control;

/// Stop all supervised agents, and end the sprint
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
        authorize(context, AuthorityAct::Abort)?;
        print_control(context, &put_control(context, ControlFile::Abort, &self.reason)?)?;
        step_stopped_sprint(context, SprintEvent::Abort)
    }
}
