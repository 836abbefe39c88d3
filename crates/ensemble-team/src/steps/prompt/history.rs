//! What a prompt says of earlier hand-outs of its step.
//!
//! ```text
//! the hand-out before    said of it
//! failure                "The last attempt failed with this error"; what to do follows from the phase
//! failure, then a fix    "… step 4, by Devon, was to fix it": do the step again and check
//! lease ended, taken     "The last attempt ended without a report", and what it left; an older error
//! away                   is one of "an earlier attempt"
//! ```
//!
//! No sentence orders what the constraints below it forbid.

use super::leftovers::Leftovers;
use crate::proto::step::TddPhase;
use crate::steps::db::{DbResult, DbTransaction, values};
use crate::steps::rows::StepView;
use crate::steps::{ClaimedStep, StepKey};
use ensemble_core::message::{Name, fenced};

pub(super) struct HandoutHistory {
    failure: Option<EarlierFailure>,
    /// The hand-out before this one, if its worker did not report.
    lost: Option<LostHandout>,
    fix: Option<FixedBy>,
}

struct EarlierFailure {
    epoch: u64,
    error: String,
}

struct LostHandout {
    epoch: u64,
    agent: Name,
    /// Whether an order took the step away. Otherwise its lease ended.
    is_taken_away: bool,
}

struct FixedBy {
    step_index: u32,
    agent: Name,
    is_done: bool,
    note: Option<String>,
}

impl HandoutHistory {
    pub(super) fn read(tx: &DbTransaction<'_>, step: &StepView, epoch: u64) -> DbResult<Self> {
        let key = &step.key;
        let failure: Option<(u64, String, Vec<String>)> = tx.first(
            "SELECT epoch, coalesce(summary, ''), blockers FROM step_runs \
                 WHERE task_id = ?1 AND step_index = ?2 AND epoch < ?3 AND outcome = 'failure' \
                 ORDER BY epoch DESC LIMIT 1",
            values![key.task_id, key.step_index, epoch],
        )?;
        let failure = failure.map(|(epoch, summary, blockers)| {
            let parts = std::iter::once(summary).chain(blockers);
            let parts: Vec<String> = parts.filter(|part| !part.trim().is_empty()).collect();
            EarlierFailure { epoch, error: parts.join("\n") }
        });
        let last: Option<(u64, Name, Option<String>)> = tx.first(
            "SELECT epoch, agent, outcome FROM step_runs \
                 WHERE task_id = ?1 AND step_index = ?2 AND epoch < ?3 \
                 ORDER BY epoch DESC LIMIT 1",
            values![key.task_id, key.step_index, epoch],
        )?;
        let lost = last.and_then(|(epoch, agent, outcome)| match outcome?.as_str() {
            "taken_away" => Some(LostHandout { epoch, agent, is_taken_away: true }),
            "lease_ended" => Some(LostHandout { epoch, agent, is_taken_away: false }),
            _ => None,
        });
        let fix = match &failure {
            Some(failure) => Self::fix(tx, key, failure.epoch)?,
            None => None,
        };
        let stored = || step.last_error.clone().unwrap_or_default();
        // Version 1 accepted failures without a text.
        let failure = failure.map(|mut failure| {
            if failure.error.is_empty() {
                failure.error = stored();
            }
            failure
        });
        Ok(Self { failure, lost, fix })
    }

    fn fix(tx: &DbTransaction<'_>, key: &StepKey, epoch: u64) -> DbResult<Option<FixedBy>> {
        let found: Option<(u32, Name, Option<String>, Option<String>)> = tx.first(
            "SELECT step_index, agent, resolution, note FROM task_steps \
             WHERE task_id = ?1 AND fixes = ?2 AND fixes_epoch = ?3 AND status = 'COMPLETED' \
             ORDER BY step_index DESC LIMIT 1",
            values![key.task_id, key.step_index, epoch],
        )?;
        Ok(found.map(|(step_index, agent, resolution, note)| {
            let is_done = resolution.as_deref() == Some("success");
            FixedBy { step_index, agent, is_done, note }
        }))
    }

    pub(super) fn lost_by(&self) -> Option<&Name> {
        self.lost.as_ref().map(|lost| &lost.agent)
    }

    pub(super) fn instructions(
        &self,
        handed: &ClaimedStep,
        phase: Option<TddPhase>,
        left: Option<&Leftovers>,
    ) -> Vec<String> {
        let lost = self.lost.as_ref().map(|lost| lost.sentence(left));
        let failure = self.failure.as_ref().map(|failure| self.error(failure, handed, phase));
        lost.into_iter().chain(failure).collect()
    }

    fn error(
        &self,
        failure: &EarlierFailure,
        handed: &ClaimedStep,
        phase: Option<TddPhase>,
    ) -> String {
        let ClaimedStep { attempt, attempts_max, epoch, .. } = handed;
        let which = match failure.epoch + 1 == *epoch {
            true => "The last attempt",
            false => "An earlier attempt",
        };
        let now = format!("(this is attempt {attempt} of {attempts_max})");
        let text = fenced(&failure.error);
        match (&self.fix, phase) {
            (Some(fix), _) => format!(
                "{which} failed with this error. {} Do the step again, and check whether the \
                 error is gone {now}:\n{text}",
                fix.sentence()
            ),
            (None, Some(TddPhase::Review)) => format!(
                "{which} failed with this error. Check whether it is still there {now}:\n{text}"
            ),
            (None, _) => format!(
                "{which} failed with this error. Remove its cause first {now}; if a constraint \
                 below forbids that, report `blocked` and say what must change:\n{text}"
            ),
        }
    }
}

impl LostHandout {
    fn sentence(&self, left: Option<&Leftovers>) -> String {
        let Self { epoch, agent, is_taken_away } = self;
        let why = match is_taken_away {
            true => "the step was taken away from it",
            false => "it gave no sign of life",
        };
        let left = left.map(|left| format!(" {}", left.sentence())).unwrap_or_default();
        format!(
            "The last attempt (epoch {epoch}, by {agent}) ended without a report: {why}. Check \
             first what it left half done.{left}"
        )
    }
}

impl FixedBy {
    fn sentence(&self) -> String {
        let Self { step_index, agent, is_done, note } = self;
        let note = note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
        match is_done {
            true => format!("Since then {agent} has reported step {step_index}, which fixes it."),
            false => format!("Step {step_index}, which was to fix it, was not done{note}."),
        }
    }
}
