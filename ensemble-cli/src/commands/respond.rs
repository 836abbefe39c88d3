//! `ensemble request answer`: the one answer to a request.

use clap_complete::engine::ArgValueCandidates;

use crate::asking::{decided, refused, requests};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::queue::Queue;
use crate::{completion, ids};

/// Answer a request that is addressed to you
///
/// The first answer stands. A later one is refused, with the author and the time of the first. An
/// agent cannot decide its own request.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request answer 3f2a91c0 --approve
  ensemble request answer 3f2a91c0 --reject --reason 'the tests are still running'")]
pub(crate) struct Arguments {
    /// Its id, as the message has it, or a unique beginning of it
    #[arg(add = ArgValueCandidates::new(completion::requests))]
    id: String,
    #[command(flatten)]
    answer: Answer,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Yes or no.
#[derive(Debug, clap::Args)]
pub(super) struct Answer {
    /// Yes
    #[arg(long, required_unless_present = "reject", conflicts_with = "reject")]
    approve: bool,
    /// No
    #[arg(long)]
    reject: bool,
}

impl Answer {
    /// Decides a request, of this kind if one is given.
    pub(super) fn give(
        &self,
        context: &Context,
        id: &str,
        comment: &str,
        kind: Option<&str>,
    ) -> Outcome {
        let by = context.actor()?;
        let queue = Queue::open(context)?;
        let requests = requests(context, &queue)?;
        let id = &*ids::request(&requests, id)?;
        if let Some(wanted) = kind
            && let Some(entry) = requests.find(id)?
            && entry.request.kind.as_str() != wanted
        {
            let text = format!("request {id} is no {wanted} but a {}", entry.request.kind);
            return Err(
                Failure::refused(text).with_hint("`ensemble request answer` answers any kind")
            );
        }
        let entry = requests.respond(id, &by, self.approve, comment);
        decided(context, &entry.map_err(|error| refused(context, error))?)
    }
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        self.answer.give(context, &self.id, &self.reason, None)
    }
}
