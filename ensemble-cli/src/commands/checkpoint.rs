use ensemble_app::controls::{put_control, step_stopped_sprint};
use ensemble_app::failure::Outcome;
use ensemble_team::board::ControlFile;
use ensemble_team::proto::goal::SprintEvent;

use crate::context::Context;
use crate::printing::controls::print_control;

/// Stop the sprint for a review by a person, until `ensemble resume`
///
/// Puts CHECKPOINT beside the blackboard; a sprint that runs becomes CHECKPOINT.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What the person must review
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        print_control(context, &put_control(context, ControlFile::Checkpoint, &self.reason)?)?;
        step_stopped_sprint(context, SprintEvent::Checkpoint)
    }
}
