//! `ensemble task claim`, `submit` and `verdict`: how a task is worked on and judged.

use ensemble_app::diagnostics::say;
use ensemble_app::tasks::{TakenTask, judge_task, submit_task, take_task};
use ensemble_app::text::one_line;
use ensemble_core::message::Name;
use ensemble_team::worktree::ReviewDecision;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::flags::{EpochFlag, check_answer};

pub(super) fn claim(context: &Context, id: Option<Name>, review: bool) -> Outcome {
    let taken = take_task(context, id, review)?;
    match context.out.is_json() {
        true => context.out.object(&taken.to_json()),
        false => print_taken(context, &taken),
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

pub(super) fn submit(context: &Context, id: &Name, unchanged: bool, epoch: &EpochFlag) -> Outcome {
    let commit = submit_task(context, id, epoch.given()?, unchanged)?;
    print_commit(context, id, &commit)
}

/// Approve or reject submitted work
///
/// Only the agent that has claimed the review (`ensemble task claim --review`) may give the
/// verdict. It is about the submitted commit: the worktree must be at that commit, with nothing
/// changed in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task verdict task-3 --approve
  ensemble task verdict task-3 --reject --reason \"the empty file is not handled: src/count.rs:14\"")]
pub(super) struct JudgeTask {
    /// Id of the task
    id: Name,
    /// It is good
    #[arg(long, conflicts_with = "reject")]
    approve: bool,
    /// It is not
    #[arg(long, num_args = 0..=1, default_missing_value = "", hide_default_value = true)]
    #[arg(value_name = "REASON")]
    reject: Option<String>,
    /// Why it is not
    #[arg(long, value_name = "TEXT", requires = "reject")]
    reason: Option<String>,
    /// The commit that was reviewed [default: the one that was handed in]
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
    #[command(flatten)]
    epoch: EpochFlag,
}

impl JudgeTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        check_answer(self.approve, self.reject.is_some())?;
        let (reject, reason) = (self.reject, self.reason);
        let says = match reject.map(|former| reason.unwrap_or(former)) {
            None => ReviewDecision::Approve,
            Some(reason) if reason.trim().is_empty() => {
                return Err(Failure::usage("a rejection needs a reason"));
            }
            Some(reason) => ReviewDecision::Reject(reason),
        };
        let given = self.epoch.given()?;
        let commit = judge_task(context, &self.id, given, self.commit.as_deref(), &says)?;
        print_commit(context, &self.id, &commit)
    }
}

fn print_commit(context: &Context, id: &Name, commit: &str) -> Outcome {
    let state = context.board()?.read()?;
    let status = state.task(id).map_or("gone", |task| task.status.as_str());
    context.out.print_answer(
        &json!({ "task": id, "status": status, "commit": commit }),
        format!("{id} {status}, commit {commit}"),
    )
}
