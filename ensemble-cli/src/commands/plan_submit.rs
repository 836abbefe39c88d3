use std::path::Path;
use std::time::Duration;

use ensemble_app::asking::{PlanSubmission, requests, submit_plan};
use ensemble_app::content::STDIN;
use ensemble_app::failure::Outcome;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::one_line;
use ensemble_core::message::Name;

use crate::args;
use crate::completion;
use crate::context::Context;
use crate::flags::content::FileContent;
use crate::printing::requests::print_sent;

const SOURCE_CHARACTERS_MAX: usize = 200;

/// Submit a plan for approval
///
/// With `--task` you can neither receive nor settle messages of that task before the plan is
/// approved; after a rejection, submit the next plan. The answer is a message in your mailbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble request plan -f plan.md --task task-001
  ensemble request plan -f - --to lead --wait 30m < plan.md")]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: FileContent,
    /// Reviewer of the plan [default: who demands it or has reviewed the last one, or the lead]
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    to: Option<Name>,
    /// The task that is not begun before the plan is approved
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    /// Your own id: submitting the same again changes nothing [default: 8 new characters]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait up to DURATION for the review: exit code 0 if approved, 1 if not, 3 if still pending
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let from = context.actor()?;
        let content = self.plan.read()?;
        let queue = ProjectQueue::open(context)?;
        let requests = requests(context, &queue)?;
        let file = self.plan.path()?;
        let source = (file != Path::new(STDIN)).then(|| one_line(&file.to_string_lossy()));
        let source = source.map(|source| source.chars().take(SOURCE_CHARACTERS_MAX).collect());
        let (to, task, id) = (self.to, self.task, self.id);
        let plan = PlanSubmission { from, to, task, id, source, content };
        let entry = submit_plan(context, &queue, plan)?;
        print_sent(context, &requests, &queue, &entry, self.wait)
    }
}
