//! `ensemble analyze`: the circuit breaker.

use ensemble_core::durable::{Durability, write_document};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::board::{Analysis, Board, Control, ControlFile, Verdict, analyze};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use super::controls::{directory, lift, person, step_sprint};
use crate::context::Context;
use crate::exit::Outcome;
use crate::output::{BAD, GOOD};
use crate::text::{one_line, plural};

/// What is written beside the board when a pattern is found.
const REPORT: &str = "circuit_breaker_report.md";

/// Look for patterns in the anomalies that no single agent can see
///
/// If there is one, this puts CHECKPOINT beside the board, so that no agent begins new work, and
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
        let analysis = analyze(&board.read()?);
        if !self.dry_run {
            note(&board, &analysis)?;
        }
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
            Verdict::Triggered => Ok(()),
            Verdict::Ok => {
                let fresh = (analysis.anomalies - analysis.acknowledged) as u64;
                let text = format!("no pattern in {}", plural(fresh, "anomaly"));
                context.out.line(context.out.paint(GOOD, text))
            }
        }
    }
}

/// The checkpoint first: a crash leaves a team that stands still and not one that runs on.
fn note(board: &Board, analysis: &Analysis) -> Outcome {
    let directory = directory(board);
    let mut locked = board.lock()?;
    let breaker = locked.state().circuit_breaker.as_ref();
    let is_new = breaker.and_then(|breaker| breaker.status.as_deref()) != Some("TRIGGERED");
    if is_new && analysis.verdict == Verdict::Triggered {
        let now = SystemClock.wall();
        let reason = "the circuit breaker found a pattern; see circuit_breaker_report.md";
        Control::put(directory, ControlFile::Checkpoint, now, reason)?;
        let text = report(analysis, &now.to_string());
        write_document(&directory.join(REPORT), text.as_bytes(), Durability::Process)?;
        step_sprint(&mut locked, SprintEvent::Checkpoint)?;
    }
    locked.note_analysis(analysis)?;
    locked.commit()?;
    Ok(())
}

fn resume(context: &Context, board: &Board) -> Outcome {
    let by = person(context, board)?;
    let mut locked = board.lock()?;
    locked.resume(&by)?;
    step_sprint(&mut locked, SprintEvent::Resume)?;
    locked.commit()?;
    lift(context, board, ControlFile::Checkpoint)?;
    if context.out.is_json() {
        return context.out.object(&json!({ "resumed": true, "by": by }));
    }
    context.out.line("resumed")
}

/// For people.
fn report(analysis: &Analysis, now: &str) -> String {
    let mut text = format!("# Circuit breaker\n\nTriggered at {now}.\n");
    for trigger in &analysis.triggers {
        let tasks: Vec<&str> = trigger.tasks.iter().map(|task| task.as_str()).collect();
        let pattern = serde_json::to_value(trigger.pattern).unwrap_or_default();
        text.push_str(&format!(
            "\n## {}: {}\n\n- anomalies: {}\n- about: {}\n- tasks: {}\n",
            pattern.as_str().unwrap_or_default(),
            trigger.flaw,
            trigger.count,
            if trigger.about.is_empty() { "-".to_owned() } else { one_line(&trigger.about) },
            if tasks.is_empty() { "-".to_owned() } else { tasks.join(", ") },
        ));
    }
    text.push_str("\nLook, decide, and acknowledge with `ensemble resume`.\n");
    text
}
