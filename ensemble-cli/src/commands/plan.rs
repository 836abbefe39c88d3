//! `ensemble plan`: a plan is approved before it is carried out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::message::Name;
use ensemble_core::proto::request::PLAN_APPROVAL;
use ensemble_core::requests::Ask;

use super::respond::Answer;
use super::send::content_of;
use crate::asking::{refused, requests, sent};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::queue::Queue;
use crate::{args, completion};

/// How much of a file's name is kept, in characters.
const SOURCE_CHARACTERS_MAX: usize = 200;

/// Submit a plan for approval, or review one
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Submit(Submit),
    Review(Review),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Submit(submit) => submit.run(context),
            Verb::Review(review) => review.run(context),
        }
    }
}

/// Submit a plan for approval
///
/// With `--task` you can neither receive nor settle messages of that task before the plan is
/// approved; after a rejection, submit the next plan. The answer is a message in your mailbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble plan submit plan.md --task task-001
  ensemble plan submit - --to lead --wait 30m < plan.md")]
struct Submit {
    /// A file with the plan; `-` for stdin
    #[arg(value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Reviewer of the plan
    #[arg(long, value_name = "NAME", default_value = "conductor")]
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    to: Name,
    /// The task that is not begun before the plan is approved
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    /// An id of your own: submitting the same again changes nothing [default: 8 new characters]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait up to DURATION for the review: exit code 0 if approved, 1 if not, 3 if still pending
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
}

impl Submit {
    fn run(self, context: &Context) -> Outcome {
        let from = context.actor()?;
        let content = content_of(&self.file)?;
        if content.trim_ascii().is_empty() {
            return Err(Failure::usage("the plan is empty"));
        }
        let mut ask = Ask::new(PLAN_APPROVAL, from, self.to, content);
        if self.file != Path::new("-") {
            let source = crate::text::one_line(&self.file.to_string_lossy());
            ask = ask.with_source(source.chars().take(SOURCE_CHARACTERS_MAX).collect::<String>());
        }
        if let Some(task) = self.task {
            ask = ask.with_task(task);
        }
        if let Some(id) = self.id {
            ask = ask.with_id(id);
        }
        let queue = Queue::open(context)?;
        let requests = requests(context, &queue)?;
        let entry = requests.ask(ask).map_err(|error| refused(context, error))?;
        sent(context, &requests, &queue, &entry, self.wait)
    }
}

/// Approve or reject a plan that was submitted to you
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble plan review 3f2a91c0 --approve
  ensemble plan review 3f2a91c0 --reject --feedback 'keep the old column until the next release'")]
struct Review {
    /// The id of its request
    id: String,
    #[command(flatten)]
    answer: Answer,
    /// Feedback for the worker; it needs it for the next plan
    #[arg(long, value_name = "TEXT", default_value = "")]
    feedback: String,
}

impl Review {
    fn run(self, context: &Context) -> Outcome {
        self.answer.give(context, &self.id, &self.feedback, Some(PLAN_APPROVAL))
    }
}
