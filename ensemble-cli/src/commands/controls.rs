//! The files that stop a team, and what lets it continue.

use ensemble_app::authority::authorize;
use ensemble_app::controls::{
    ControlPlace, PutControl, authorize_resume, control_place, lift_control, put_control,
    step_stopped_sprint,
};
use ensemble_app::diagnostics::say;
use ensemble_app::text::{one_line, with_members};
use ensemble_team::authority::AuthorityAct;
use ensemble_team::board::{ActiveControl, ControlFile};
use ensemble_team::proto::goal::{SprintEvent, SprintState};
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

/// Stop starting new work until `ensemble resume`
///
/// Puts PAUSE beside the blackboard, or into `.ensemble/` without one. It holds for mail, the blackboard,
/// steps and assignments. Agents at work finish what they hold.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseTeam {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl PauseTeam {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        print_control(context, &put_control(context, ControlFile::Pause, &self.reason)?)
    }
}

/// Stop the sprint for a review by a person, until `ensemble resume`
///
/// Puts CHECKPOINT beside the blackboard; a sprint that runs becomes CHECKPOINT.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckpointSprint {
    /// What the person must review
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl CheckpointSprint {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        print_control(context, &put_control(context, ControlFile::Checkpoint, &self.reason)?)?;
        step_stopped_sprint(context, SprintEvent::Checkpoint)
    }
}

/// Stop all supervised agents, and end the sprint
///
/// Puts ABORT beside the blackboard: supervisors end their agents and themselves. What is in the
/// worktrees stays there. The sprint is ABORTED, which is final; the goal is not touched.
/// An agent needs authority for it: `authority` in ensemble.yaml.
#[derive(Debug, clap::Args)]
pub(crate) struct AbortSprint {
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl AbortSprint {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        authorize(context, AuthorityAct::Abort)?;
        print_control(context, &put_control(context, ControlFile::Abort, &self.reason)?)?;
        step_stopped_sprint(context, SprintEvent::Abort)
    }
}

/// Let the team continue: remove PAUSE and CHECKPOINT, and acknowledge the circuit breaker
///
/// Only this command acknowledges: the anomalies so far count no more. A person must run it: it is
/// refused to agents, unless `authority: {resume: […]}` in ensemble.yaml lists them.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeTeam {
    /// Remove ABORT, too; a sprint that was aborted stays so
    #[arg(long)]
    lift_abort: bool,
}

impl ResumeTeam {
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
        let lift_alone = |why: &str| {
            say(&format!("warning: the sprint and the circuit breaker stay as they are: {why}"));
            lift(context, &place, &found, &by, [None; 2])
        };
        let board = match context.board_if_any() {
            Ok(Some(board)) => board,
            // A team without a blackboard has neither a sprint nor a circuit breaker.
            Ok(None) if found.is_empty() => return Err(Failure::nothing("nothing stops the team")),
            Ok(None) => return lift(context, &place, &found, &by, [None; 2]),
            Err(failure) if !found.is_empty() => return lift_alone(&failure.text()),
            Err(failure) => return Err(failure),
        };
        let mut locked = match board.lock() {
            Err(error) if !found.is_empty() && !error.is_transient() => {
                return lift_alone(&error.to_string());
            }
            locked => locked?,
        };
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
        let more = [
            is_triggered.then_some("circuit breaker acknowledged"),
            was_checkpoint.then_some("sprint in progress"),
        ];
        lift(context, &place, &found, &by, more)
    }
}

/// Lifts what was found, and says so. `more` is what else has changed: the circuit breaker, and the sprint.
fn lift(
    context: &Context,
    place: &ControlPlace,
    found: &[ActiveControl],
    by: &str,
    more: [Option<&str>; 2],
) -> Outcome {
    let lifted: Vec<ControlFile> = found.iter().map(|control| control.file).collect();
    lifted.iter().try_for_each(|file| lift_control(context, place, *file))?;
    let object = json!({
        "resumed": true, "by": by, "lifted": lifted, "acknowledged": more[0].is_some(),
    });
    let removed = lifted.iter().map(|file| format!("{} removed", file.name()));
    let told: Vec<String> = removed.chain(more.into_iter().flatten().map(str::to_owned)).collect();
    context.out.print_answer(&object, format!("resumed: {}", told.join(", ")))
}

fn print_control(context: &Context, put: &PutControl) -> Outcome {
    let PutControl { control, is_new } = put;
    let object = with_members(json!(control), &json!({ "put": is_new }));
    let text = match is_new {
        true => control.title(),
        false => format!("already in force: {}", control.title()),
    };
    let reason =
        if control.reason.is_empty() { String::new() } else { format!(": {}", control.reason) };
    context.out.print_answer(&object, one_line(&format!("{text}{reason}")))
}
