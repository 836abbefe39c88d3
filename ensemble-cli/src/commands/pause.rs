//! `ensemble pause`: stops agents from starting new work.

use ensemble_team::board::ControlFile;

use super::controls::stop;
use crate::context::Context;
use crate::exit::Outcome;

/// Stop starting new work until `ensemble resume`
///
/// Puts PAUSE beside the blackboard, or into `.ensemble/` without one. It holds for mail, the blackboard,
/// steps and assignments. Agents at work finish what they hold.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        stop(context, ControlFile::Pause, &self.reason)
    }
}
