use ensemble_app::failure::Outcome;
use ensemble_app::introduction;
use ensemble_app::queue::ProjectQueue;

use crate::context::Context;

/// Print what an agent should know now
///
/// Its name and role, what it holds, what waits, and how to take part: what hooks show an agent at the start of
/// each session. For agents without hooks, and for a person who wants to see it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent prime --as worker-1")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let agent = context.agent_required()?;
        let queue = ProjectQueue::open(context)?;
        queue.overlook()?;
        let member = context.project()?.roster().get(&agent)?;
        let text = introduction::text(context, &queue, &agent, member.as_ref())?;
        context.out.print_text(&serde_json::json!({ "agent": agent, "text": text }), &text)
    }
}
