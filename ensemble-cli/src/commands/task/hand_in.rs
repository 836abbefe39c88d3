//! `ensemble task submit` and `ensemble task verdict`: what was done, and what is thought of it.

use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::tasks::{judge_task, submit_task};
use ensemble_core::message::Name;
use ensemble_team::worktree::ReviewDecision;
use serde_json::json;

use crate::context::Context;
use crate::flags::EpochFlag;
use crate::flags::check_answer;

/// Submit a task: the commits in its worktree
///
/// HEAD must be on the task's branch, with nothing left uncommitted (files that git ignores do not
/// count). The branch must have at least one commit more than it began with. Exit code 1 says what
/// is missing. If another agent has the task now, your work is kept under refs/ensemble/salvage/.
#[derive(Debug, clap::Args)]
pub(super) struct SubmitTask {
    /// Id of the task
    id: Name,
    /// Nothing had to be changed
    #[arg(long)]
    unchanged: bool,
    #[command(flatten)]
    epoch: EpochFlag,
}

impl SubmitTask {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let commit = submit_task(context, &self.id, self.epoch.given()?, self.unchanged)?;
        print_commit(context, &self.id, &commit)
    }
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
