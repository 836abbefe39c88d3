//! The consequences of [`analyze`]: the circuit breaker stops the team and says why.
//!
//! ```text
//! lock                     analyze again on the current board
//!   CHECKPOINT             first: a crash leaves a team that stands still, not one that runs on
//!   REPORT                 the reasons, for people
//!   board                  circuit_breaker TRIGGERED, the sprint CHECKPOINT
//! unlock
//! ```
//!
//! It trips once: a triggered breaker waits for a person (`LockedBoard::resume`). Supervisors and the
//! watcher check it whenever the board changes; the first one that takes the lock trips it.

use super::analyze::{AnalysisVerdict, AnomalyAnalysis, analyze};
use super::control::ControlFile;
use super::state::State;
use super::{Board, LockedBoard};
use crate::proto::goal::SprintEvent;
use ensemble_core::Result;
use ensemble_core::durable::{Durability, write_document};
use ensemble_core::event_log::types;
use serde_json::json;

/// Written beside the board when a pattern is found.
pub const REPORT: &str = "circuit_breaker_report.md";
const TRIGGERED: &str = "TRIGGERED";
const REASON: &str = "the circuit breaker found a pattern; see circuit_breaker_report.md";

impl Board {
    /// Analyzes the anomalies and notes the result. A new pattern stops the team.
    pub fn check_breaker(&self) -> Result<AnomalyAnalysis> {
        self.change(|locked| {
            let analysis = analyze(locked.state());
            self.trip(locked, &analysis)?;
            locked.note_analysis(&analysis)?;
            Ok(analysis)
        })
    }

    /// Trips the breaker if the anomalies of `state` have a new pattern; writes nothing otherwise.
    pub fn trip_breaker(&self, state: &State) -> Result<Option<AnomalyAnalysis>> {
        if is_triggered(state) || analyze(state).verdict == AnalysisVerdict::Ok {
            return Ok(None);
        }
        let analysis = self.check_breaker()?;
        Ok((analysis.verdict == AnalysisVerdict::Triggered).then_some(analysis))
    }

    fn trip(&self, locked: &mut LockedBoard<'_>, analysis: &AnomalyAnalysis) -> Result<()> {
        if is_triggered(locked.state()) || analysis.verdict == AnalysisVerdict::Ok {
            return Ok(());
        }
        let now = self.options.clock.wall();
        if self.put_control(ControlFile::Checkpoint, now, REASON)? {
            let data = json!({ "file": ControlFile::Checkpoint, "reason": REASON });
            self.options.recorder.record(types::CONTROL_PUT, &self.options.actor, data);
        }
        let text = report(analysis, &now.to_string());
        write_document(&self.beside().join(REPORT), text.as_bytes(), Durability::Process)?;
        locked.step_sprint(SprintEvent::Checkpoint)
    }
}

pub fn is_triggered(state: &State) -> bool {
    let breaker = state.circuit_breaker.as_ref();
    breaker.and_then(|breaker| breaker.status.as_deref()) == Some(TRIGGERED)
}

fn report(analysis: &AnomalyAnalysis, now: &str) -> String {
    let mut text = format!("# Circuit breaker\n\nTriggered at {now}.\n");
    for trigger in &analysis.triggers {
        let tasks: Vec<&str> = trigger.tasks.iter().map(|task| task.as_str()).collect();
        let pattern = serde_json::to_value(trigger.pattern).unwrap_or_default();
        let about: Vec<&str> = trigger.about.split_whitespace().collect();
        text.push_str(&format!(
            "\n## {}: {}\n\n- anomalies: {}\n- about: {}\n- tasks: {}\n",
            pattern.as_str().unwrap_or_default(),
            trigger.flaw,
            trigger.count,
            if about.is_empty() { "-".to_owned() } else { about.join(" ") },
            if tasks.is_empty() { "-".to_owned() } else { tasks.join(", ") },
        ));
    }
    text.push_str("\nLook, decide, and acknowledge: only a person can resume.\n");
    text
}
