//! `ensemble resume`: a person has looked, and the team continues.

use ensemble_app::controls::{ControlPlace, authorize_resume, control_place, lift_control};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_team::board::{ActiveControl, ControlFile};
use ensemble_team::proto::goal::{SprintEvent, SprintState};
use serde_json::json;

use crate::context::Context;

/// Let the team continue: remove PAUSE and CHECKPOINT, and acknowledge the circuit breaker
///
/// Only this command acknowledges: the anomalies so far count no more. A person must run it: it is
/// refused to agents, unless `authority: {resume: […]}` in ensemble.yaml lists them.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Remove ABORT, too; a sprint that was aborted stays so
    #[arg(long)]
    lift_abort: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let by = authorize_resume(context)?;
        let place = control_place(context)?;
        let found = place.read()?;
        let is_there = |file| found.iter().any(|control| control.file == file);
        if is_there(ControlFile::Abort) && !self.lift_abort {
            let text = "an abort is in force: nothing was resumed";
            return Err(Failure::refused(text)
                .with_hint("`ensemble resume --lift-abort` lets it begin again"));
        }
        let Some(board) = context.board_if_any()? else {
            return resume_without_board(context, &place, &found, &by);
        };
        let mut locked = board.lock()?;
        let state = locked.state();
        let breaker = state.circuit_breaker.as_ref();
        let is_triggered = breaker.and_then(|b| b.status.as_deref()) == Some("TRIGGERED");
        let status = state.sprint.as_ref().and_then(|sprint| sprint.status);
        let was_checkpoint = status == Some(SprintState::Checkpoint);
        if found.is_empty() && !is_triggered && !was_checkpoint {
            return Err(Failure::nothing("nothing stops the team"));
        }
        if is_triggered {
            locked.resume(&by)?;
        }
        locked.step_sprint(SprintEvent::Resume)?;
        locked.commit()?;
        let lifted: Vec<ControlFile> = found.iter().map(|control| control.file).collect();
        lifted.iter().try_for_each(|file| lift_control(context, &place, *file))?;
        if context.out.is_json() {
            return context.out.object(&json!({
                "resumed": true, "by": by, "lifted": lifted, "acknowledged": is_triggered,
            }));
        }
        let mut told: Vec<String> =
            lifted.iter().map(|file| format!("{} removed", file.name())).collect();
        if is_triggered {
            told.push("circuit breaker acknowledged".to_owned());
        }
        if was_checkpoint {
            told.push("sprint in progress".to_owned());
        }
        context.out.line(format!("resumed: {}", told.join(", ")))
    }
}

/// A team without a blackboard has neither a sprint nor a circuit breaker.
fn resume_without_board(
    context: &Context,
    at: &ControlPlace,
    found: &[ActiveControl],
    by: &str,
) -> Outcome {
    if found.is_empty() {
        return Err(Failure::nothing("nothing stops the team"));
    }
    let lifted: Vec<ControlFile> = found.iter().map(|control| control.file).collect();
    lifted.iter().try_for_each(|file| lift_control(context, at, *file))?;
    if context.out.is_json() {
        return context.out.object(&json!({
            "resumed": true, "by": by, "lifted": lifted, "acknowledged": false,
        }));
    }
    let told: Vec<String> = lifted.iter().map(|file| format!("{} removed", file.name())).collect();
    context.out.line(format!("resumed: {}", told.join(", ")))
}
