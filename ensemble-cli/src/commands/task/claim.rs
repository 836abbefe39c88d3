//! `ensemble task claim`: a task, and a worktree to do it in.

use ensemble_core::message::Name;
use ensemble_team::board::{State, claimable, reviewable};
use ensemble_team::worktree::{Claimed, ReviewClaimed, Worktrees};
use serde_json::{Value, json};

use crate::acting::registered;
use crate::context::Context;
use crate::exit::{Failure, Outcome, say};
use crate::text::one_line;

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
pub(super) struct Claim {
    /// Id of the task [default: the most urgent that can be claimed]
    id: Option<Name>,
    /// Take it for a review
    #[arg(long)]
    review: bool,
}

impl Claim {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let taken = take(context, self.id, self.review)?;
        match context.out.is_json() {
            true => context.out.object(&taken.to_json()),
            false => taken.tell(context),
        }
    }
}

/// A task that was taken.
pub(crate) enum Taken {
    /// To work on it.
    Work(Name, Claimed),
    /// To review it.
    Review(Name, ReviewClaimed),
}

/// Claims a task for the agent that runs this command; without a name, the most urgent one.
pub(crate) fn take(context: &Context, id: Option<Name>, is_review: bool) -> Outcome<Taken> {
    let board = context.board()?;
    let state = board.read()?;
    let agent = registered(context, &state)?;
    let worktrees = context.worktrees(&board)?;
    let id = match id {
        Some(id) => id,
        None => first(&worktrees, &state, &agent.by, is_review)?,
    };
    Ok(match is_review {
        true => {
            let claimed = worktrees.claim_review(&id, &agent)?;
            Taken::Review(id, claimed)
        }
        false => {
            let claimed = worktrees.claim_task(&id, &agent)?;
            Taken::Work(id, claimed)
        }
    })
}

fn first(worktrees: &Worktrees, state: &State, agent: &Name, is_review: bool) -> Outcome<Name> {
    let (tasks, what) = match is_review {
        true => (reviewable(state, Some(agent)), "reviewed"),
        false => (claimable(state, Some(agent)), "claimed"),
    };
    let first = tasks.into_iter().find(|task| !worktrees.is_kept_elsewhere(task));
    let first = first.map(|task| task.id.clone());
    first.ok_or_else(|| Failure::nothing(format!("no task can be {what} by `{agent}` now")))
}

impl Taken {
    /// Which task, and the number under which it is held.
    pub(crate) const fn held(&self) -> (&Name, u64) {
        match self {
            Self::Work(id, claimed) => (id, claimed.granted.holder.epoch),
            Self::Review(id, claimed) => (id, claimed.granted.holder.epoch),
        }
    }

    /// As an object.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Work(id, claimed) => {
                let (holder, salvage) = (&claimed.granted.holder, claimed.salvage.as_ref());
                json!({
                    "task": id, "status": "CLAIMED", "agent": holder.by, "epoch": holder.epoch,
                    "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
                    "branch": claimed.branch, "base_commit": claimed.base_commit,
                    "integration_fix": claimed.is_integration_fix,
                    "salvage": salvage.map(|salvage| &salvage.reference),
                })
            }
            Self::Review(id, claimed) => {
                let holder = &claimed.granted.holder;
                json!({
                    "task": id, "status": "READY_FOR_REVIEW", "agent": holder.by, "epoch": holder.epoch,
                    "lease_seconds": claimed.granted.lease.as_secs(), "path": claimed.path,
                    "commit": claimed.commit, "author": claimed.author,
                })
            }
        }
    }

    fn tell(&self, context: &Context) -> Outcome {
        match self {
            Self::Work(id, claimed) => {
                let holder = &claimed.granted.holder;
                let path = one_line(&claimed.path.to_string_lossy());
                context
                    .out
                    .line(format!("{id} CLAIMED by {}, number {}", holder.by, holder.epoch))?;
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
            Self::Review(id, claimed) => {
                let holder = &claimed.granted.holder;
                let path = one_line(&claimed.path.to_string_lossy());
                context
                    .out
                    .line(format!("{id} reviewed by {}, number {}", holder.by, holder.epoch))?;
                context.out.line(format!("  worktree {path}, commit {}", claimed.commit))
            }
        }
    }
}
