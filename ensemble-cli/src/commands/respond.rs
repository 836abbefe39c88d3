use ensemble_app::asking::{refused, requests};
use ensemble_app::failure::Outcome;
use ensemble_app::ids;
use ensemble_app::queue::ProjectQueue;

use crate::completion;
use crate::context::Context;
use crate::flags::decision::check_answer;
use crate::printing::requests::print_decided;

/// Answer a request that is addressed to you: a plan, a shutdown or any other
///
/// The first answer counts. A later one is refused, with the author and the time of the first. An
/// agent cannot decide its own request.
#[derive(Debug, clap::Args)]
#[command(override_usage = "ensemble request answer <ID> --approve
       ensemble request answer <ID> --reject --reason <TEXT>")]
#[command(after_help = "Examples:
  ensemble request answer 3f2a91c0 --approve
  ensemble request answer 3f2a91c0 --reject --reason 'keep the old column until the next release'")]
pub(crate) struct Arguments {
    /// Its id, as the message has it, or a unique beginning of it
    #[arg(add = completion::requests())]
    id: String,
    /// Yes
    #[arg(long, conflicts_with = "reject")]
    approve: bool,
    /// No
    #[arg(long)]
    reject: bool,
    /// Why; the author of a rejected plan needs it for the next one
    #[arg(long, alias = "feedback", value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        check_answer(self.approve, self.reject)?;
        let by = context.actor()?;
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        let id = ids::request(&requests, &self.id)?;
        // The first of the people may have been asked as `operator`, before they had another name.
        let asked = requests.find(&id)?.map(|entry| entry.request.to);
        let earlier = context.project()?.earlier_mailbox(&by);
        let by = earlier.filter(|it| asked.as_ref() == Some(it)).unwrap_or(by);
        let entry = requests.respond(&id, &by, self.approve, &self.reason);
        print_decided(context, &entry.map_err(refused)?)
    }
}
