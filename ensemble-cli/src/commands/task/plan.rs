//! `ensemble task finalize|unblock|abandon`: a planner's decisions about a task.

use ensemble_app::failure::Outcome;
use ensemble_core::message::Name;

use crate::context::Context;

/// Allow a draft to be claimed
#[derive(Debug, clap::Args)]
pub(super) struct FinalizeTask {
    /// Id of the task
    id: Name,
}

impl FinalizeTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        super::change(context, &self.id, |board| board.finalize(&self.id))
    }
}

/// Let any agent claim a blocked task again
#[derive(Debug, clap::Args)]
pub(super) struct UnblockTask {
    /// Id of the task
    id: Name,
}

impl UnblockTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        super::change(context, &self.id, |board| board.unblock(&self.id))
    }
}

/// Give up a blocked task that is no longer needed
#[derive(Debug, clap::Args)]
pub(super) struct AbandonTask {
    /// Id of the task
    id: Name,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl AbandonTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        super::change(context, &self.id, |board| board.abandon(&self.id, &self.reason))
    }
}
