//! The part of a step that is needed to change it. It leaves out texts and counts of other steps,
//! because taking and reporting happen many times a second.

use super::StepError;
use super::db::{DbTransaction, row_type, values};

use super::DbFailure;
use super::plan::{PauseScope, Policy};
use super::rows::{self, StepKey};
use super::take::ClaimedStep;
use crate::proto::step::{FixState, State, StepMachine, StepResolution, TddPhase};
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;

pub(super) struct QueueRules {
    pub(super) task_id: String,
    pub(super) orchestrator: Option<Name>,
    pub(super) parallel: u32,
    pub(super) pauses: PauseScope,
    pub(super) policy: Policy,
    pub(super) attempts_max: u32,
    pub(super) lease_seconds: u64,
    /// Distinguishes the queue from one of the same name in a database that was removed.
    pub(super) created_at: String,
}

pub(super) struct WorkingStep {
    pub(super) key: StepKey,
    pub(super) status: String,
    resolution: Option<String>,
    fix_due: bool,
    pub(super) agent: Name,
    pub(super) fix_by: Option<Name>,
    pub(super) goal: String,
    pub(super) phase: Option<TddPhase>,
    pub(super) cycle: String,
    pub(super) fixes: Option<u32>,
    fixes_epoch: u64,
    waits_for_fix: bool,
    pub(super) needs_plan: bool,
    pub(super) attempt: u32,
    pub(super) epoch: u64,
    pub(super) beat: u64,
    pub(super) holder: Option<Name>,
    /// The worker of the last hand-out, if its lease ended before it reported.
    pub(super) last_holder: Option<Name>,
    pub(super) last_error: Option<String>,
    blockers: Vec<String>,
    pub(super) has_files: bool,
}

impl QueueRules {
    pub(super) fn handed(
        &self,
        step: WorkingStep,
        agent: Name,
        (attempt, epoch): (u32, u64),
    ) -> ClaimedStep {
        let WorkingStep { key, goal, fixes, needs_plan, .. } = step;
        ClaimedStep {
            key,
            agent,
            attempt,
            attempts_max: self.attempts_max,
            epoch,
            lease_seconds: self.lease_seconds,
            again: false,
            goal,
            fixes,
            needs_plan,
            queue_created_at: self.created_at.clone(),
        }
    }
}

/// The columns of [`QueueRules`], from the table `q`.
pub(super) const CHARTER: &str = "q.task_id, q.orchestrator, q.parallel, q.pauses, q.policy, q.attempts_max, q.lease_seconds, \
     q.created_at";

row_type! {
    QueueRules: task_id, orchestrator, parallel, pauses, policy, attempts_max, lease_seconds,
    created_at
}

/// The columns of a [`WorkingStep`], from the table `s`. In other states the blockers are kept only for people.
pub(super) const WORK: &str = "s.task_id, s.step_index, s.status, s.resolution, s.fix_due, s.agent, \
    s.fix_by, s.goal, s.phase, s.cycle, s.attempt, s.epoch, s.beat, s.holder, s.last_error, \
    CASE s.status WHEN 'BLOCKED' THEN s.blockers ELSE '[]' END, \
    s.fixes, coalesce(s.fixes_epoch, 0), s.waits_for_fix, s.needs_plan, \
    EXISTS (SELECT 1 FROM task_resources r WHERE r.task_id = s.task_id AND \
      r.step_index = s.step_index AND r.access = 'write')";

row_type! {
    WorkingStep: key, status, resolution, fix_due, agent, fix_by, goal, phase, cycle, attempt,
    epoch, beat, holder, last_error, blockers, fixes, fixes_epoch, waits_for_fix, needs_plan,
    has_files; last_holder: None
}

/// The message that carried the prompt of the newest hand-out, as a further column.
pub(super) const PROMPT_MESSAGE: &str = "(SELECT prompt_message FROM step_runs e \
    WHERE e.task_id = s.task_id AND e.step_index = s.step_index AND e.epoch = s.epoch)";

/// The worker whose lease ended before it reported on the newest hand-out, as a further column.
const LAST_HOLDER: &str = "(SELECT agent FROM step_runs e WHERE e.task_id = s.task_id \
    AND e.step_index = s.step_index AND e.epoch = s.epoch AND e.outcome = 'lease_ended')";

pub(super) fn find_statement() -> String {
    format!(
        "SELECT {WORK}, {CHARTER}, {PROMPT_MESSAGE}, {LAST_HOLDER} FROM task_steps s JOIN task_queues q USING (task_id) \
         WHERE s.task_id = ?1 AND s.step_index = ?2"
    )
}

/// Finds a step with its queue's rules and the message that carried its prompt.
pub(super) fn find(
    tx: &DbTransaction<'_>,
    key: &StepKey,
) -> Result<(QueueRules, WorkingStep, Option<String>), DbFailure> {
    type Row = (WorkingStep, QueueRules, Option<String>, Option<Name>);
    let found: Option<Row> = tx.first(&find_statement(), values![key.task_id, key.step_index])?;
    let Some(found) = found else {
        // Report an unknown task differently from an unknown step.
        let error = match rows::find_queue(tx, &key.task_id, false)? {
            Some(_) => StepError::NoStep { key: key.clone() },
            None => StepError::NoTask { task_id: key.task_id.clone() },
        };
        return Err(error.into());
    };
    let (step, queue, message, last_holder) = found;
    Ok((queue, WorkingStep { last_holder, ..step }, message))
}

impl WorkingStep {
    pub(super) fn failure(&self) -> Option<(u32, u64)> {
        self.fixes.map(|index| (index, self.fixes_epoch))
    }

    pub(super) fn machine(&self, attempts_max: u32) -> StepMachine {
        let error = || self.last_error.clone().unwrap_or_default();
        let state = match (self.status.as_str(), &self.holder) {
            ("IN_PROGRESS", Some(holder)) => State::InProgress { holder: holder.clone() },
            ("COMPLETED", _) => State::Completed(match self.resolution.as_deref() {
                Some("skipped") => StepResolution::Skipped,
                Some("split") => StepResolution::Split,
                _ => StepResolution::Success,
            }),
            ("BLOCKED", _) => State::Blocked { reasons: self.blockers.clone() },
            ("FAILED", _) if self.waits_for_fix => {
                State::Failed { error: error(), fix: FixState::Ordered }
            }
            ("FAILED", _) if self.fix_due => State::Failed { error: error(), fix: FixState::Due },
            ("FAILED", _) => State::Failed { error: error(), fix: FixState::Exhausted },
            // The table allows no other status.
            _ => State::Pending,
        };
        // The deadline does not matter here: the supervisor that reminds has its own machine.
        StepMachine::restore(state, self.attempt, self.epoch, attempts_max, Monotonic::ZERO)
            .with_fixer(self.fix_by.is_some())
            .with_last_holder(self.last_holder.clone())
    }
}
