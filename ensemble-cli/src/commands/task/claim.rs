use ensemble_app::diagnostics::say;
use ensemble_app::failure::Outcome;
use ensemble_app::tasks::{TakenTask, take_task};
use ensemble_app::text::one_line;
use ensemble_core::message::Name;

use crate::context::Context;

/// Claim a task, with a worktree to do it in
///
/// The agent must be registered (`ensemble agent register`; a supervisor does that itself). A new
/// task gets a fresh worktree at the integration branch. After a rejection the same coder continues
/// in the existing worktree, another coder starts in a fresh one. A failed merge is repaired in its
/// worktree. Work that an earlier agent left is kept under refs/ensemble/salvage/, and its name is
/// printed.
///
/// Exit code 3 if there is nothing to claim, 1 if it is refused, 75 if other agents were quicker
/// three times.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task claim --as coder-1
  cd \"$(ensemble task claim task-3 --as coder-1 --json | jq -r .path)\"")]
pub(super) struct ClaimTask {
    /// Id of the task [default: the most urgent that can be claimed]
    id: Option<Name>,
    /// Take it for a review
    #[arg(long)]
    review: bool,
}

impl ClaimTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let taken = take_task(context, self.id, self.review)?;
        match context.out.is_json() {
            true => context.out.object(&taken.to_json()),
            false => print_taken(context, &taken),
        }
    }
}

fn print_taken(context: &Context, taken: &TakenTask) -> Outcome {
    match taken {
        TakenTask::Work(id, claimed) => {
            let holder = &claimed.granted.holder;
            let path = one_line(&claimed.path.to_string_lossy());
            context.out.line(format!("{id} CLAIMED by {}, number {}", holder.by, holder.epoch))?;
            context.out.line(format!("  worktree {path}, branch {}", claimed.branch))?;
            if let Some(why) = &claimed.hook_failure {
                say(&format!("warning: the post-checkout hook failed: {}", one_line(why)));
            }
            if let Some(salvage) = &claimed.salvage {
                let text = format!("  what was left there before is {}", salvage.reference);
                context.out.line(text)?;
            }
            Ok(())
        }
        TakenTask::Review(id, claimed) => {
            let holder = &claimed.granted.holder;
            let path = one_line(&claimed.path.to_string_lossy());
            context.out.line(format!("{id} reviewed by {}, number {}", holder.by, holder.epoch))?;
            context.out.line(format!("  worktree {path}, commit {}", claimed.commit))
        }
    }
}
