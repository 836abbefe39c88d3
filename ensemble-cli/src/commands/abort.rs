//! `ensemble abort`: everybody stops.

use ensemble_core::board::ControlFile;
use ensemble_core::proto::goal::SprintEvent;

use super::controls::{step_sprint, stop};
use crate::context::Context;
use crate::exit::Outcome;

/// Stop everybody, and end the sprint
///
/// Puts ABORT beside the blackboard: supervisors end their agents and themselves. What is in the
/// worktrees stays there. The sprint is ABORTED, which is final; the goal is not touched.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        stop(context, &board, ControlFile::Abort, &self.reason)?;
        let mut locked = board.lock()?;
        step_sprint(&mut locked, SprintEvent::Abort)?;
        locked.commit()?;
        Ok(())
    }
}
