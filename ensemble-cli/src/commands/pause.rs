//! `ensemble pause`: nobody begins anything.

use ensemble_team::board::ControlFile;

use super::controls::stop;
use crate::context::Context;
use crate::exit::Outcome;

/// Let nobody begin anything until `ensemble resume`
///
/// Puts PAUSE beside the blackboard. Who is at work finishes what it has.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        stop(context, &context.board()?, ControlFile::Pause, &self.reason)
    }
}
