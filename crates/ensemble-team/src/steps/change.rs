//! One event of one step: the machine decides, and the row is updated.

use super::StepError;
use super::db::{DbResult, values};
use std::collections::VecDeque;

use super::rows::StepKey;
use super::working::{self, QueueRules, WorkingStep};
use super::{DbFailure, StepStore, WriteTransaction, files};
use crate::proto::step::{Effect, Event, FixState, State, StepMachine, StepResolution};
use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine as _;

pub(super) struct ChangedStep {
    pub(super) queue: QueueRules,
    pub(super) before: WorkingStep,
    pub(super) step: StepMachine,
    pub(super) effects: VecDeque<Effect>,
}

/// A worker's text about its step, for people.
pub(super) struct ReportWords<'a> {
    pub(super) summary: Option<&'a str>,
    pub(super) artifacts: &'a [String],
}

impl StepStore {
    pub(super) fn apply(
        tx: &WriteTransaction<'_, '_>,
        key: &StepKey,
        event: Event,
    ) -> Result<ChangedStep, DbFailure> {
        let (queue, before, _) = working::find(tx, key)?;
        Self::apply_to(tx, queue, before, event, None)
    }

    pub(super) fn apply_to(
        tx: &WriteTransaction<'_, '_>,
        queue: QueueRules,
        before: WorkingStep,
        event: Event,
        words: Option<&ReportWords<'_>>,
    ) -> Result<ChangedStep, DbFailure> {
        let mut step = before.machine(queue.attempts_max);
        let state_before = step.state().clone();
        step.handle(Monotonic::ZERO, event);
        let mut effects = VecDeque::new();
        while let Some(effect) = step.poll_effect() {
            match effect {
                Effect::Refused(refusal) => {
                    return Err(StepError::Refused { key: before.key, refusal }.into());
                }
                Effect::Free if before.has_files => files::free(tx, &before.key)?,
                Effect::Free => {}
                Effect::Beaten => beat(tx, &before.key)?,
                Effect::Hand { .. }
                | Effect::RequestFix { .. }
                | Effect::OrderFix { .. }
                | Effect::Stop { .. }
                | Effect::Remind
                | Effect::Advance => effects.push_back(effect),
            }
        }
        if *step.state() != state_before {
            save(tx, &before.key, &step, words)?;
        }
        Ok(ChangedStep { queue, before, step, effects })
    }
}

fn beat(tx: &WriteTransaction<'_, '_>, key: &StepKey) -> DbResult<()> {
    tx.execute(
        "UPDATE task_steps SET beat = beat + 1 WHERE task_id = ?1 AND step_index = ?2",
        values![key.task_id, key.step_index],
    )
}

/// Stores the machine's state and nothing else. The last error and the blockers stay until they are
/// replaced, for the next prompt and for people.
fn save(
    tx: &WriteTransaction<'_, '_>,
    key: &StepKey,
    step: &StepMachine,
    words: Option<&ReportWords<'_>>,
) -> DbResult<()> {
    let (mut resolution, mut fix_due, mut waits, mut holder) = (None, false, false, None);
    let (mut error, mut blockers) = (None, None);
    let status = match step.state() {
        State::Pending => "PENDING",
        State::InProgress { holder: by } => {
            holder = Some(by);
            "IN_PROGRESS"
        }
        State::Completed(how) => {
            resolution = Some(match how {
                StepResolution::Success => "success",
                StepResolution::Skipped => "skipped",
                StepResolution::Split => "split",
            });
            "COMPLETED"
        }
        State::Blocked { reasons } => {
            blockers = Some(reasons);
            "BLOCKED"
        }
        State::Failed { error: why, fix } => {
            fix_due = *fix != FixState::Exhausted;
            waits = *fix == FixState::Ordered;
            error = Some(why.as_str());
            "FAILED"
        }
    };
    tx.execute("UPDATE task_steps SET status = ?3, resolution = ?4, fix_due = ?5, holder = ?6, \
           attempt = ?7, epoch = ?8, last_error = coalesce(?9, last_error), \
           blockers = coalesce(?10, blockers), updated_at = ?11, \
           summary = CASE WHEN ?12 IS NULL THEN summary ELSE ?13 END, artifacts = coalesce(?12, artifacts), \
           waits_for_fix = ?14 \
         WHERE task_id = ?1 AND step_index = ?2", values![
        key.task_id,
        key.step_index,
        status,
        resolution,
        fix_due,
        holder,
        step.attempt(),
        step.epoch(),
        error,
        blockers,
        tx.now,
        words.map(|words| words.artifacts),
        words.and_then(|words| words.summary),
        waits,
    ])
}
