use ensemble_app::controls::{authorize_resume, control_place, lift_control};
use ensemble_app::text::{one_line, plural};
use ensemble_core::message::Name;
use ensemble_team::board::{
    AnalysisVerdict, Board, BoardAnomaly, ControlFile, NewAnomaly, analyze,
};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::{Map, Value, json};

use crate::context::{Context, Outcome};
use crate::output::{BAD, GOOD};

/// Record anomalies, in which the circuit breaker looks for patterns
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Record an anomaly
    ///
    /// Types: retry_loop (count, error_pattern), trade_off (what, why, debt_created), spec_ambiguity,
    /// external_blocker (blocker_service), assumption_violated (assumption, reality), scope_deviation,
    /// workaround, debt_created, spec_changed, hypothesis_exhaustion, spec_gap, review_deadlock,
    /// system_ambiguity (protocol_section, question). The details in brackets are required.
    Add {
        /// One of the types
        #[arg(value_name = "TYPE")]
        kind: String,
        /// During which task
        #[arg(long, value_name = "ID")]
        task: Option<Name>,
        /// A detail; a number, true and false count as such. May be repeated
        #[arg(long = "detail", value_name = "NAME=VALUE", value_parser = detail)]
        details: Vec<(String, Value)>,
    },
    /// List the anomalies, in the order of the board
    List {
        /// Only those of a type
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Add { kind, task, details } => add(context, kind, task, details),
            Verb::List { kind } => list(context, kind.as_deref()),
        }
    }
}

fn detail(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{}` is not the name of a detail", name.escape_debug()));
    }
    let parsed = serde_json::from_str::<Value>(value).ok();
    let plain = parsed.filter(|value| value.is_number() || value.is_boolean());
    Ok((name.to_owned(), plain.unwrap_or_else(|| json!(value))))
}

fn add(
    context: &Context,
    kind: String,
    task: Option<Name>,
    details: Vec<(String, Value)>,
) -> Outcome {
    let reporter = context.reporter()?;
    let details: Map<String, Value> = details.into_iter().collect();
    let anomaly = NewAnomaly { kind, task, reporter, details };
    let board = context.board()?;
    let mut locked = board.lock()?;
    locked.add_anomaly(&anomaly)?;
    let state = locked.commit()?;
    context.out.print_answer(&json!(state.anomalies.last()), format!("noted: {}", anomaly.kind))
}

fn list(context: &Context, kind: Option<&str>) -> Outcome {
    let state = context.board()?.read()?;
    let is_wanted = |anomaly: &&BoardAnomaly| kind.is_none_or(|k| k == anomaly.kind);
    let found: Vec<&BoardAnomaly> = state.anomalies.iter().filter(is_wanted).collect();
    let row = |anomaly: &&BoardAnomaly| {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            text(anomaly.timestamp.map(|at| at.to_string())),
            anomaly.kind.clone(),
            text(anomaly.task.as_ref().map(Name::to_string)),
            text(anomaly.reporter.clone()),
            if anomaly.details.is_null() {
                "-".to_owned()
            } else {
                one_line(&anomaly.details.to_string())
            },
        ]
    };
    context.out.print_list(&found, &["time", "type", "task", "reporter", "details"], row)
}

/// Look for patterns in the anomalies that no single agent can see
///
/// The watcher and every supervisor do this by themselves whenever an anomaly is added. If there is a
/// pattern, this puts CHECKPOINT beside the board, so that no agent begins new work, and
/// writes the reason to circuit_breaker_report.md. Only `--resume` acknowledges it.
#[derive(Debug, clap::Args)]
pub(crate) struct AnalyzeAnomalies {
    /// Only look: write nothing
    #[arg(long)]
    dry_run: bool,
    /// Acknowledge what was found: those anomalies count no more, and CHECKPOINT is removed
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
}

impl AnalyzeAnomalies {
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
