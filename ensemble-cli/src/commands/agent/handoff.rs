use ensemble_app::board_agents::{HandoffNotes, hand_over};
use ensemble_app::failure::Outcome;
use serde_json::json;

use crate::args::share;
use crate::context::Context;

/// Leave notes for the agent that continues your task, and announce exit status 42
///
/// For when your context is used up. Then exit: with status 42 if you can choose it, otherwise with 0.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent handoff --summary \"parser done\" --next-action \"write its tests\""
)]
pub(super) struct Arguments {
    /// Work done so far
    #[arg(long, value_name = "TEXT")]
    summary: String,
    /// Next action
    #[arg(long, value_name = "TEXT")]
    next_action: String,
    /// Approach taken so far
    #[arg(long, value_name = "TEXT")]
    approach: Option<String>,
    /// Obstacles
    #[arg(long, value_name = "TEXT")]
    blockers: Option<String>,
    /// A file that was changed; may be repeated
    #[arg(long = "changed", alias = "file", value_name = "PATH")]
    files: Vec<String>,
    /// A further step; may be repeated
    #[arg(long = "step", value_name = "TEXT")]
    steps: Vec<String>,
    /// Used share of the context
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    context_used: Option<String>,
}

impl Arguments {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let used = self.context_used.as_deref().and_then(share);
        let notes = HandoffNotes {
            summary: self.summary,
            next_action: self.next_action,
            approach: self.approach,
            blockers: self.blockers,
            files_modified: self.files,
            next_steps: self.steps,
            context_used: used.and_then(|used| u8::try_from(used).ok()),
        };
        let task = hand_over(context, |_| None, &notes)?;
        let object = json!({ "task_id": task, "exit": 42 });
        let said = match task {
            Some(task) => format!("notes for `{task}` are left; end with 42 now"),
            None => "there is no task to leave notes for; end with 42 now".to_owned(),
        };
        context.out.print_answer(&object, said)
    }
}
