use ensemble_app::text::{one_line, plural};
use ensemble_core::message::Name;
use ensemble_team::admission::TaskAct;
use ensemble_team::board::TaskStatus;
use ensemble_team::worktree::MergeOutcome;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

pub(super) fn merge(context: &Context, id: Option<Name>) -> Outcome {
    let board = context.board()?;
    let worktrees = context.worktrees(&board)?;
    let ids: Vec<Name> = match id {
        Some(id) => vec![id],
        None => {
            let state = board.read()?;
            let approved = state.tasks.iter().filter(|task| task.status == TaskStatus::Approved);
            let here = approved.filter(|task| !worktrees.is_kept_elsewhere(task));
            here.map(|task| task.id.clone()).collect()
        }
    };
    if ids.is_empty() {
        return Err(Failure::nothing("no task is APPROVED"));
    }
    let (project, agent) = (context.project()?, context.agent()?);
    let (mut failed, mut refused) = (0, None);
    for id in ids {
        // A person may merge while the team is stopped.
        if let Some(agent) = &agent {
            project.doorkeeper().check(TaskAct::TakeUp, id.as_str(), agent)?;
        }
        match worktrees.merge(&id) {
            Ok(merged) => {
                failed += u64::from(matches!(merged, MergeOutcome::Failed { .. }));
                print_merged(context, &id, &merged)?;
            }
            Err(error) if error.is_transient() => return Err(error.into()),
            // The board shows why. The other tasks do not depend on it.
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    context.out.flush()?;
    refused.map_or(Ok(()), Err)?;
    if failed == 0 {
        return Ok(());
    }
    let text = format!("{} could not be merged; nothing of it was", plural(failed, "task"));
    let hint = "`ensemble task claim ID` gives it to a coder, in the existing worktree";
    Err(Failure::refused(text).with_hint(hint))
}

fn print_merged(context: &Context, id: &Name, merged: &MergeOutcome) -> Outcome {
    if context.out.is_json() {
        return context.out.object(&match merged {
            MergeOutcome::Done { commit, retired } => json!({
                "task": id, "status": "MERGED", "commit": commit,
                "salvage": retired.salvage.as_ref().map(|salvage| &salvage.reference),
                "kept": retired.kept.as_ref().map(|(place, _)| place),
            }),
            MergeOutcome::Failed { reason } => {
                json!({ "task": id, "status": "INTEGRATION_FAILED", "reason": reason })
            }
        });
    }
    match merged {
        MergeOutcome::Done { commit, retired } => {
            context.out.line(format!("{id} MERGED, commit {commit}"))?;
            if let Some(salvage) = &retired.salvage {
                let reference = &salvage.reference;
                context.out.line(format!("  what came after the approval is {reference}"))?;
            }
            if let Some((place, why)) = &retired.kept {
                let (place, why) = (one_line(&place.to_string_lossy()), one_line(why));
                context.out.line(format!("  its worktree is kept at {place}: {why}"))?;
            }
            Ok(())
        }
        MergeOutcome::Failed { reason } => {
            context.out.line(format!("{id} INTEGRATION_FAILED: {}", one_line(reason)))
        }
    }
}
