use ensemble_app::controls::put_control;
use ensemble_app::failure::Outcome;
use ensemble_team::board::ControlFile;

use crate::context::Context;
use crate::printing::controls::print_control;

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
        print_control(context, &put_control(context, ControlFile::Pause, &self.reason)?)
    }
}
