//! `ensemble agent verify`: phase 1 of seed 001.

use ensemble_app::acting::check_registered;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::text::{one_line, with_members};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::worktree::{AgentDuty, UnfitReason, VerifiedAgent};
use serde_json::{Value, json};

use crate::context::Context;
use crate::flags::EpochFlag;

/// Check that you may begin: entry, lease, assignment, worktree, commit
///
/// Your entry on the blackboard must have a lease that has not expired. If you have a task, your claim must still be
/// current, and the worktree must exist. For a reviewer, HEAD must be the commit to review.
///
/// Exit codes: 0 begin · 3 nothing was given to you: ask for work, or end · 1 it is not yours (any more):
/// end without writing anything · 4 it is yours, but its worktree is wrong: report that and exit · 5 git is
/// missing · 75 busy: ask again.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyAgent {
    #[command(flatten)]
    epoch: EpochFlag,
}

impl VerifyAgent {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let agent = context.agent_required()?;
        let board = context.board()?;
        let worktrees = context.worktrees(&board)?;
        match worktrees.verify(&agent, self.epoch.given()?, SystemClock.wall())? {
            Ok(verified) => {
                check_registered(context, &board.read()?)?;
                print_verified(context, &verified)
            }
            Err(unfit) => {
                let exit = match unfit {
                    UnfitReason::NothingAssigned(_) => VerbExit::Nothing,
                    UnfitReason::Over(_) => VerbExit::Failed,
                    UnfitReason::Broken(_) => VerbExit::Corrupt,
                };
                Err(Failure::new(exit, unfit.to_string()).with_hint(advice(&unfit)))
            }
        }
    }
}

const fn advice(unfit: &UnfitReason) -> &'static str {
    match unfit {
        UnfitReason::NothingAssigned(_) => "there is nothing to do: end, or claim a task",
        UnfitReason::Over(_) => "write nothing any more, and end: what was done is kept",
        UnfitReason::Broken(_) => "`ensemble admin fsck` tells more: write it down, and end",
    }
}

fn print_verified(context: &Context, verified: &VerifiedAgent) -> Outcome {
    let VerifiedAgent { agent, role, registration, lease_until, duty, .. } = verified;
    let object = json!({
        "agent": agent, "role": role, "registration": registration,
        "lease_until": lease_until, "duty": "none",
    });
    let object = with_members(object, &described(duty));
    let what = match duty {
        AgentDuty::Work { task, epoch, path } => {
            let path = one_line(&path.to_string_lossy());
            format!("work on {task}, number {epoch}, in {path}")
        }
        AgentDuty::Review { task, epoch, path, commit } => {
            let path = one_line(&path.to_string_lossy());
            format!("review {task}, number {epoch}, commit {commit}, in {path}")
        }
        _ => "no task".to_owned(),
    };
    let role = role.as_deref().unwrap_or("agent");
    let said = format!("{agent} ({}), lease until {lease_until}: {what}", one_line(role));
    context.out.print_answer(&object, said)
}

fn described(duty: &AgentDuty) -> Value {
    match duty {
        AgentDuty::Work { task, epoch, path } => {
            json!({ "duty": "work", "task": task, "epoch": epoch, "path": path })
        }
        AgentDuty::Review { task, epoch, path, commit } => {
            json!({ "duty": "review", "task": task, "epoch": epoch, "path": path, "commit": commit })
        }
        _ => json!({}),
    }
}
