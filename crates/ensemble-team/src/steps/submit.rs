//! Submitting the result of a step: checked, stored and answered in one transaction.

use super::StepError;
use super::db::{DbResult, values};
use serde::Serialize;
use serde_json::json;

use super::change::ReportWords;
use super::completion::Completion;
use super::fixes::{ErrorPlace, StepFailure};
use super::notices::{self, Notice};
use super::rows::StepKey;
use super::working::{self, QueueRules};
use super::{CompletionStatus, DbFailure, StepStore, WriteTransaction, fixes};
use crate::admission::TaskAct;
use crate::proto::step::{Effect, Event, StepReport};
use ensemble_core::Result;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubmittedStep {
    #[serde(flatten)]
    pub key: StepKey,
    pub epoch: u64,
    pub status: &'static str,
    /// Whether the same report was submitted before; nothing changed then.
    pub already_submitted: bool,
    /// Number of the next attempt, if the step failed and may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<u32>,
    /// The step that was inserted to fix the failure; the failed step comes again after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_step: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_by: Option<Name>,
    /// Whether the queue is paused until a person or the orchestrator intervenes.
    pub paused: bool,
    pub queue_done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_message: Option<String>,
}

/// A report with what is computed before the transaction.
struct CheckedReport<'a> {
    completion: &'a Completion,
    digest: &'a str,
    places: &'a [ErrorPlace],
}

impl StepStore {
    /// Stores a worker's report. `by` is the actual reporter; `epoch`, if it is known, is the one
    /// under which the step was handed to it. The same report again, by the same worker, changes
    /// nothing and is not an error.
    ///
    /// # Errors
    /// [`StepError::Refused`] if the step is another worker's, was handed out again since, or is
    /// done; [`StepError::NoStep`]; [`StepError::Database`]. Nothing changed then.
    pub fn submit(
        &self,
        completion: &Completion,
        by: &Name,
        epoch: Option<u64>,
    ) -> Result<SubmittedStep> {
        let key = completion.key();
        if completion.agent != *by {
            let (by, agent) = (by.clone(), completion.agent.clone());
            return Err(StepError::OtherAgent { key, by, agent }.into());
        }
        if let (Some(door), CompletionStatus::Success) = (&self.options.door, completion.status) {
            door.check(TaskAct::HandIn, &key.task_id, by)?;
            door.check(TaskAct::HandIn, &key.plan_name(), by)?;
        }
        // Other writers wait for the transaction, so compute as much as possible before it.
        let digest = completion.digest().to_string();
        let places = match completion.report() {
            StepReport::Failure { error } => fixes::places(&self.options.root, &error),
            StepReport::Success | StepReport::Blocked { .. } => Vec::new(),
        };
        let report = CheckedReport { completion, digest: &digest, places: &places };
        let submitted = self.write("submit a step to", |tx| {
            tx.lock_queue(&key.task_id)?;
            match self.submit_in(tx, &report, epoch) {
                // The transaction was rolled back. The report may be a repetition.
                Err(DbFailure::Told(refused))
                    if refused.area().is_some_and(StepError::is_refusal) =>
                {
                    already_submitted(tx, completion, by, epoch)?.ok_or(DbFailure::Told(refused))
                }
                submitted => submitted,
            }
        });
        match &submitted {
            Ok(submitted)
                if !submitted.already_submitted && self.options.recorder.is_recording() =>
            {
                self.record_submitted(submitted, by);
            }
            Ok(_) => {}
            Err(error) => {
                let data = json!({
                    "task_id": key.task_id, "step_index": key.step_index, "error": error.to_string(),
                });
                self.options.recorder.record(types::STEP_REFUSED, by.as_str(), data);
            }
        }
        submitted
    }

    fn submit_in(
        &self,
        tx: &WriteTransaction<'_, '_>,
        report: &CheckedReport<'_>,
        epoch: Option<u64>,
    ) -> Result<SubmittedStep, DbFailure> {
        let CheckedReport { completion, digest, places } = *report;
        let key = completion.key();
        let by = completion.agent.clone();
        let event = Event::Reported { by, epoch, report: completion.report() };
        let summary = completion.summary.as_deref();
        let words = ReportWords { summary, artifacts: &completion.artifacts };
        let (queue, before, prompt_message) = working::find(tx, &key)?;
        let changed = Self::apply_to(tx, queue, before, event, Some(&words))?;
        let epoch = changed.step.epoch();
        write_run(tx, completion, digest, epoch)?;
        write_context(tx, completion, epoch)?;
        let mut submitted = stored(completion, epoch, prompt_message);
        for effect in changed.effects {
            match effect {
                Effect::RequestFix { next_attempt, .. } => {
                    submitted.next_attempt = Some(next_attempt);
                }
                Effect::OrderFix { error, next_attempt } => {
                    submitted.next_attempt = Some(next_attempt);
                    let (attempt, attempts_max) =
                        (changed.step.attempt(), changed.queue.attempts_max);
                    let failure = StepFailure { error: &error, attempt, attempts_max, places };
                    let fix = fixes::order(tx, &changed.before, &failure)?;
                    (submitted.fix_step, submitted.fix_by) =
                        fix.map(|fix| (fix.index, fix.agent)).unzip();
                }
                Effect::Stop { reasons } => {
                    submitted.paused = true;
                    let kind = match completion.status {
                        CompletionStatus::Blocked => "step.blocked",
                        CompletionStatus::Success | CompletionStatus::Failure => "step.failed",
                    };
                    let notice =
                        Notice::about_step(kind, &changed.before, changed.step.attempt(), &reasons);
                    let to = (&changed.queue, self.options.orchestrator.as_ref());
                    notices::owe(tx, to, notice, epoch)?;
                }
                Effect::Advance => {
                    fixes::done(tx, &changed.before)?;
                    submitted.queue_done = finished(tx, &changed.queue, epoch)?;
                }
                Effect::Hand { .. }
                | Effect::Free
                | Effect::Beaten
                | Effect::Remind
                | Effect::Refused(_) => {}
            }
        }
        Ok(submitted)
    }

    fn record_submitted(&self, submitted: &SubmittedStep, by: &Name) {
        let kind = match submitted.status {
            "COMPLETED" => types::STEP_COMPLETED,
            "BLOCKED" => types::STEP_BLOCKED,
            _ => types::STEP_FAILED,
        };
        let data = json!({
            "task_id": submitted.key.task_id, "step_index": submitted.key.step_index,
            "epoch": submitted.epoch, "next_attempt": submitted.next_attempt,
            "paused": submitted.paused,
        });
        self.options.recorder.record(kind, by.as_str(), data);
        if let Some(fix_step) = submitted.fix_step {
            let data = json!({
                "task_id": submitted.key.task_id, "step_index": submitted.key.step_index,
                "fix_step": fix_step, "agent": submitted.fix_by,
            });
            self.options.recorder.record(types::STEP_FIX_ADDED, by.as_str(), data);
        }
        if submitted.queue_done {
            let data = json!({ "task_id": submitted.key.task_id });
            self.options.recorder.record(types::STEPS_DONE, by.as_str(), data);
        }
    }
}

const fn word(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::Success => "COMPLETED",
        CompletionStatus::Failure => "FAILED",
        CompletionStatus::Blocked => "BLOCKED",
    }
}

/// A report that has changed nothing but its own step.
fn stored(completion: &Completion, epoch: u64, prompt_message: Option<String>) -> SubmittedStep {
    SubmittedStep {
        key: completion.key(),
        epoch,
        status: word(completion.status),
        already_submitted: false,
        next_attempt: None,
        fix_step: None,
        fix_by: None,
        paused: false,
        queue_done: false,
        prompt_message,
    }
}

/// The answer to a repeated report: its worker was killed before it got the first answer.
fn already_submitted(
    tx: &WriteTransaction<'_, '_>,
    completion: &Completion,
    by: &Name,
    epoch: Option<u64>,
) -> Result<Option<SubmittedStep>, DbFailure> {
    let found: Option<(u64, Option<String>, Option<String>)> = tx.first(
        "SELECT epoch, report_sha256, prompt_message FROM step_runs \
             WHERE task_id = ?1 AND step_index = ?2 AND agent = ?3 ORDER BY epoch DESC LIMIT 1",
        values![completion.task_id, completion.step_index, by],
    )?;
    let Some((found_epoch, report, prompt_message)) = found else { return Ok(None) };
    let same = report.is_some_and(|report| report == completion.digest().to_string());
    if !same || epoch.is_some_and(|epoch| epoch != found_epoch) {
        return Ok(None);
    }
    let submitted = stored(completion, found_epoch, prompt_message);
    Ok(Some(SubmittedStep { already_submitted: true, ..submitted }))
}

fn write_run(
    tx: &WriteTransaction<'_, '_>,
    completion: &Completion,
    digest: &str,
    epoch: u64,
) -> DbResult<()> {
    let outcome = match completion.status {
        CompletionStatus::Success => "success",
        CompletionStatus::Failure => "failure",
        CompletionStatus::Blocked => "blocked",
    };
    tx.execute(
        "UPDATE step_runs SET ended_at = ?4, outcome = ?5, summary = ?6, artifacts = ?7, \
           blockers = ?8, context_for_next_step = ?9, report_sha256 = ?10 \
         WHERE task_id = ?1 AND step_index = ?2 AND epoch = ?3",
        values![
            completion.task_id,
            completion.step_index,
            epoch,
            tx.now,
            outcome,
            completion.summary,
            completion.artifacts,
            completion.blockers,
            completion.context_for_next_step,
            digest,
        ],
    )
}

fn write_context(
    tx: &WriteTransaction<'_, '_>,
    completion: &Completion,
    epoch: u64,
) -> DbResult<()> {
    if completion.context_for_next_step.is_none() {
        return Ok(());
    }
    tx.execute(
        "UPDATE task_queues SET context_step = ?2, context_epoch = ?3 WHERE task_id = ?1",
        values![completion.task_id, completion.step_index, epoch],
    )
}

/// Whether no step is left; the orchestrator is notified.
pub(super) fn finished(
    tx: &WriteTransaction<'_, '_>,
    queue: &QueueRules,
    epoch: u64,
) -> DbResult<bool> {
    let left: bool = tx.only(
        "SELECT EXISTS (SELECT 1 FROM task_steps WHERE task_id = ?1 \
               AND life IN ('open', 'held', 'stuck', 'waits'))",
        values![queue.task_id],
    )?;
    if !left {
        notices::owe(tx, (queue, None), Notice::about_queue(&queue.task_id), epoch)?;
    }
    Ok(!left)
}
