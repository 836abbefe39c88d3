//! `ensemble request review`: a plan is approved or rejected.

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::proto::request::PLAN_APPROVAL;

use super::respond::Answer;
use crate::completion;
use crate::context::Context;
use crate::exit::Outcome;

/// Approve or reject a plan that was submitted to you
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request review 3f2a91c0 --approve
  ensemble request review 3f2a91c0 --reject --feedback 'keep the old column until the next release'")]
pub(crate) struct Arguments {
    /// The id of its request, or a unique beginning of it
    #[arg(add = ArgValueCandidates::new(completion::requests))]
    id: String,
    #[command(flatten)]
    answer: Answer,
    /// Feedback for the worker; it needs it for the next plan
    #[arg(long, value_name = "TEXT", default_value = "")]
    feedback: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        self.answer.give(context, &self.id, &self.feedback, Some(PLAN_APPROVAL))
    }
}
