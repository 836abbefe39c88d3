//! `ensemble task claim`: a task, and a worktree to do it in.

use ensemble_core::board::{State, claimable, reviewable};
use ensemble_core::message::Name;
use ensemble_core::worktree::{Claimed, ReviewClaimed};
use serde_json::json;

use crate::acting::registered;
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::text::one_line;

/// Take a task, with a worktree to do it in
///
/// Who takes it must be registered (`ensemble agent register`; a supervisor does that itself). A new task
/// gets a fresh worktree at the integration branch. After a rejection the same coder goes on in the
/// worktree that is there, another one begins anew; a failed merge is repaired where it is. What somebody
/// before has left is put under refs/ensemble/salvage/ and told.
///
/// Exit code 3 if there is nothing to take, 1 if it is refused, 75 if others got in the way three times.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task claim --as coder-1
  cd \"$(ensemble task claim task-3 --as coder-1 --json | jq -r .path)\"")]
pub(super) struct Claim {
    /// Which one [default: the most urgent that can be taken]
    id: Option<Name>,
    /// Take it for a review
    #[arg(long)]
    review: bool,
}

impl Claim {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let state = board.read()?;
        let agent = registered(context, &state)?;
        let id = match self.id {
            Some(id) => id,
            None => first(&state, &agent.by, self.review)?,
        };
        let worktrees = context.worktrees(&board)?;
        if self.review {
            return told_review(context, &id, &worktrees.claim_review(&id, &agent)?);
        }
        told(context, &id, &worktrees.claim_task(&id, &agent)?)
    }
}

fn first(state: &State, agent: &Name, is_review: bool) -> Outcome<Name> {
    let (tasks, what) = match is_review {
        true => (reviewable(state, Some(agent)), "reviewed"),
        false => (claimable(state, Some(agent)), "claimed"),
    };
    let first = tasks.first().map(|task| task.id.clone());
    first.ok_or_else(|| Failure::nothing(format!("no task can be {what} by `{agent}` now")))
}

fn told(context: &Context, id: &Name, claimed: &Claimed) -> Outcome {
    let holder = &claimed.granted.holder;
    if context.out.is_json() {
        let salvage = claimed.salvage.as_ref();
        return context.out.object(&json!({
            "task": id, "status": "CLAIMED", "agent": holder.by, "epoch": holder.epoch,
            "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
            "branch": claimed.branch, "base_commit": claimed.base_commit,
            "integration_fix": claimed.is_integration_fix,
            "salvage": salvage.map(|salvage| &salvage.reference),
        }));
    }
    let path = one_line(&claimed.path.to_string_lossy());
    context.out.line(format!("{id} CLAIMED by {}, number {}", holder.by, holder.epoch))?;
    context.out.line(format!("  worktree {path}, branch {}", claimed.branch))?;
    if let Some(salvage) = &claimed.salvage {
        context.out.line(format!("  what was left there before is {}", salvage.reference))?;
    }
    Ok(())
}

fn told_review(context: &Context, id: &Name, claimed: &ReviewClaimed) -> Outcome {
    let holder = &claimed.granted.holder;
    if context.out.is_json() {
        return context.out.object(&json!({
            "task": id, "status": "READY_FOR_REVIEW", "agent": holder.by, "epoch": holder.epoch,
            "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
            "commit": claimed.commit, "author": claimed.author,
        }));
    }
    let path = one_line(&claimed.path.to_string_lossy());
    context.out.line(format!("{id} reviewed by {}, number {}", holder.by, holder.epoch))?;
    context.out.line(format!("  worktree {path}, commit {}", claimed.commit))
}
