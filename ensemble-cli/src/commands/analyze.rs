use ensemble_app::controls::{authorize_resume, control_place, lift_control};
use ensemble_app::failure::Outcome;
use ensemble_app::text::{one_line, plural};
use ensemble_team::board::{AnalysisVerdict, Board, ControlFile, analyze};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use crate::context::Context;
use crate::output::{BAD, GOOD};

/// Look for patterns in the anomalies that no single agent can see
///
/// The watcher and every supervisor do this by themselves whenever an anomaly is added. If there is a
/// pattern, this puts CHECKPOINT beside the board, so that no agent begins new work, and
/// writes the reason to circuit_breaker_report.md. Only `--resume` acknowledges it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only look: write nothing
    #[arg(long)]
    dry_run: bool,
    /// Acknowledge what was found: those anomalies count no more, and CHECKPOINT is removed
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        if self.resume {
            return resume(context, &board);
        }
        let analysis = match self.dry_run {
            true => analyze(&board.read()?),
            false => board.check_breaker()?,
        };
        if context.out.is_json() {
            return context.out.object(&analysis);
        }
        for trigger in &analysis.triggers {
            let about = if trigger.about.is_empty() { "" } else { ", about " };
            let text = format!(
                "{:?} ({}): {}{about}{}",
                trigger.pattern,
                trigger.flaw,
                plural(trigger.count as u64, "anomaly"),
                trigger.about
            );
            context.out.line(context.out.paint(BAD, one_line(&text)))?;
        }
        match analysis.verdict {
            AnalysisVerdict::Triggered => Ok(()),
            AnalysisVerdict::Ok => {
                let fresh = (analysis.anomalies - analysis.acknowledged) as u64;
                let text = format!("no pattern in {}", plural(fresh, "anomaly"));
                context.out.line(context.out.paint(GOOD, text))
            }
        }
    }
}

fn resume(context: &Context, board: &Board) -> Outcome {
    let by = authorize_resume(context)?;
    let mut locked = board.lock()?;
    locked.resume(&by)?;
    locked.step_sprint(SprintEvent::Resume)?;
    locked.commit()?;
    lift_control(context, &control_place(context)?, ControlFile::Checkpoint)?;
    context.out.print_answer(&json!({ "resumed": true, "by": by }), "resumed")
}
