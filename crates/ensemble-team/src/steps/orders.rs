//! Orders of an orchestrator (retry, unblock, skip, split) and a worker's sign of life.

use super::StepError;
use super::db::{DbResult, values};
use serde_json::json;

use super::add::{StepPlace, insert_step};
use super::change::ChangedStep;
use super::notices::{self, Notice};
use super::plan::PlannedStep;
use super::rows::StepKey;
use super::submit::finished;
use super::working::{QueueRules, WorkingStep};
use super::{DbFailure, StepStore, WriteTransaction, fixes};
use crate::proto::step::{Effect, Event};
use ensemble_core::Result;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;

const NOTE_BYTES_MAX: usize = 4096;

/// A part of a split step. Its agent, files and phase are those of the step unless it sets them.
pub type SplitPart = PlannedStep;

impl StepStore {
    /// Restarts a failed step with all its attempts. A step in progress is taken from its holder.
    /// Steps that were to fix it are skipped.
    pub fn retry(&self, key: &StepKey, by: &Name, note: &str) -> Result<()> {
        self.order(types::STEP_RETRIED, key, by, note, Event::Retried)
    }

    pub fn unblock(&self, key: &StepKey, by: &Name, note: &str) -> Result<()> {
        self.order(types::STEP_UNBLOCKED, key, by, note, Event::Unblocked)
    }

    pub fn skip(&self, key: &StepKey, by: &Name, note: &str) -> Result<()> {
        self.order(types::STEP_SKIPPED, key, by, note, Event::Skipped)
    }

    /// Replaces a step by smaller ones. They go to the head of the queue, in their order. Returns
    /// their numbers.
    pub fn split(&self, key: &StepKey, by: &Name, parts: &[SplitPart]) -> Result<Vec<u32>> {
        if parts.len() < 2 {
            return Err(StepError::TooFewParts { key: key.clone(), parts: parts.len() }.into());
        }
        let (numbers, withdrawn) = self.write("split a step in", |tx| {
            tx.lock_queue(&key.task_id)?;
            let changed = Self::apply(tx, key, Event::Split)?;
            self.check_order(tx, &changed, by)?;
            let withdrawn = fixes::withdraw(tx, key)?;
            Ok((insert_parts(tx, &changed, parts)?, withdrawn))
        })?;
        let data = json!({
            "task_id": key.task_id, "step_index": key.step_index, "parts": numbers,
        });
        self.options.recorder.record(types::STEP_SPLIT, by.as_str(), data);
        self.record_withdrawn(&withdrawn, by);
        Ok(numbers)
    }

    fn record_withdrawn(&self, withdrawn: &[StepKey], by: &Name) {
        for key in withdrawn {
            let data = json!(key);
            self.options.recorder.record(types::STEP_SKIPPED, by.as_str(), data);
        }
    }

    /// Records a worker's sign of life: its lease starts again.
    pub fn beat(&self, key: &StepKey, by: &Name, epoch: Option<u64>) -> Result<()> {
        let event = Event::Beat { by: by.clone(), epoch };
        self.write("renew a lease in", |tx| {
            tx.lock_queue(&key.task_id)?;
            Self::apply(tx, key, event).map(drop)
        })
    }

    fn order(
        &self,
        kind: &'static str,
        key: &StepKey,
        by: &Name,
        note: &str,
        event: Event,
    ) -> Result<()> {
        let note: String = note.chars().take(NOTE_BYTES_MAX).collect();
        let withdrawn = self.write("change a step in", |tx| {
            tx.lock_queue(&key.task_id)?;
            let ends_run = event == Event::Retried;
            let changed = Self::apply(tx, key, event)?;
            self.check_order(tx, &changed, by)?;
            if ends_run {
                end_run(tx, key, changed.step.epoch(), "taken_away")?;
            }
            tx.execute("UPDATE task_steps SET note = nullif(?3, '') WHERE task_id = ?1 AND step_index = ?2", values![key.task_id, key.step_index, note])?;
            let withdrawn = fixes::withdraw(tx, key)?;
            fixes::done(tx, &changed.before)?;
            if changed.effects.contains(&Effect::Advance) {
                finished(tx, &changed.queue, changed.step.epoch())?;
            }
            Ok(withdrawn)
        })?;
        let data = json!(key);
        self.options.recorder.record(kind, by.as_str(), data);
        self.record_withdrawn(&withdrawn, by);
        Ok(())
    }

    /// Refuses an order to an agent that works in the queue and is not its orchestrator: it could skip the review of
    /// what it has done.
    fn check_order(
        &self,
        tx: &WriteTransaction<'_, '_>,
        changed: &ChangedStep,
        by: &Name,
    ) -> Result<(), DbFailure> {
        let (queue, key) = (&changed.queue, &changed.before.key);
        let orchestrator = queue.orchestrator.as_ref().or(self.options.orchestrator.as_ref());
        let works: bool = tx.only(
            "SELECT EXISTS (SELECT 1 FROM task_steps \
             WHERE task_id = ?1 AND (agent = ?2 OR fix_by = ?2))",
            values![key.task_id, by],
        )?;
        if works && orchestrator != Some(by) {
            return Err(StepError::OwnQueue { key: key.clone(), by: by.clone() }.into());
        }
        Ok(())
    }

    /// Ends a lease: the step returns to the queue, or stops.
    pub(super) fn lease_ended(
        &self,
        tx: &WriteTransaction<'_, '_>,
        queue: QueueRules,
        step: WorkingStep,
    ) -> Result<ChangedStep, DbFailure> {
        let epoch = step.epoch;
        let changed = Self::apply_to(tx, queue, step, Event::LeaseEnded { epoch }, None)?;
        end_run(tx, &changed.before.key, epoch, "lease_ended")?;
        for effect in &changed.effects {
            if let Effect::Stop { reasons } = effect {
                let attempt = changed.step.attempt();
                let notice = Notice::about_step("step.failed", &changed.before, attempt, reasons);
                let to = (&changed.queue, self.options.orchestrator.as_ref());
                notices::owe(tx, to, notice, epoch)?;
            }
        }
        Ok(changed)
    }
}

pub(super) fn end_run(
    tx: &WriteTransaction<'_, '_>,
    key: &StepKey,
    epoch: u64,
    outcome: &str,
) -> DbResult<()> {
    tx.execute(
        "UPDATE step_runs SET ended_at = ?4, outcome = ?5 \
         WHERE task_id = ?1 AND step_index = ?2 AND epoch = ?3 AND outcome IS NULL",
        values![key.task_id, key.step_index, epoch, tx.now, outcome],
    )
}

fn insert_parts(
    tx: &WriteTransaction<'_, '_>,
    changed: &ChangedStep,
    parts: &[SplitPart],
) -> Result<Vec<u32>, DbFailure> {
    let parent = &changed.before;
    let task_id = &parent.key.task_id;
    let (last, first): (u32, i64) = tx.only(
        "SELECT max(step_index), min(position) FROM task_steps WHERE task_id = ?1",
        values![task_id],
    )?;
    let mut numbers = Vec::with_capacity(parts.len());
    for (index, part) in (last + 1..).zip(parts) {
        let mut part = part.clone();
        part.phase = part.phase.or(parent.phase);
        if part.cycle.is_empty() {
            part.cycle.clone_from(&parent.cycle);
        }
        if parent.fixes.is_some() {
            part.fix_files.clone_from(&part.files);
        }
        part.fix_by = part.fix_by.or_else(|| parent.fix_by.clone());
        let below = i64::try_from(parts.len() - numbers.len()).unwrap_or(i64::MAX);
        let place = StepPlace {
            task_id,
            index,
            position: first - below,
            parent: Some(parent.key.step_index),
            fixes: parent.failure(),
        };
        insert_step(tx, &place, &part)?;
        numbers.push(index);
    }
    Ok(numbers)
}
