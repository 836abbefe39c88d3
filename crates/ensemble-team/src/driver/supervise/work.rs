//! The work of each role: planners answer calls, coders claim tasks, reviewers claim reviews and
//! merge approved work.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::board::{
    BoardTask, HistoryEvent, LEASE_RAN_OUT, PlannerCall, State, TaskStatus, WakeOccurrence,
};
use crate::proto::task::TaskHolder;
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;

#[derive(Debug)]
pub(super) enum SupervisedWork {
    Task(HeldClaim),
    Review(HeldClaim),
    /// The plan; the lock keeps other planners out.
    Plan {
        calls: Vec<PlannerCall>,
        occurrences: BTreeSet<WakeOccurrence>,
        _lock: FileLock,
    },
}

/// The claim of a task, or of its review.
#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) id: Name,
    pub(super) holder: TaskHolder,
    pub(super) path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkFate {
    Held,
    /// The agent has finished it: submitted, judged, given up or blocked.
    Finished,
    /// The agent has finished it by changing the task's status on the board, without a verb.
    ByHand,
    Lost,
}

impl SupervisedWork {
    pub(super) const fn claim(&self) -> Option<&HeldClaim> {
        match self {
            Self::Task(claim) | Self::Review(claim) => Some(claim),
            Self::Plan { .. } => None,
        }
    }

    pub(super) fn task(&self) -> Option<&Name> {
        self.claim().map(|claim| &claim.id)
    }

    /// Whether it was lost because its agent did nothing until the lease ran out. The board does not say why a planner
    /// is no longer registered; nothing else takes one away from its supervisor.
    pub(super) fn has_run_out(&self, state: &State) -> bool {
        let Some(HeldClaim { id, holder, .. }) = self.claim() else { return true };
        let is_it = |line: &HistoryEvent| {
            line.more.get("epoch").and_then(Value::as_u64) == Some(holder.epoch)
                && line.more.get("reason").and_then(Value::as_str) == Some(LEASE_RAN_OUT)
        };
        state.task(id).is_some_and(|task| task.history.iter().rev().any(is_it))
    }

    pub(super) fn fate(&self, state: &State) -> WorkFate {
        let Some(claim) = self.claim() else { return WorkFate::Held };
        let Some(task) = state.task(&claim.id) else { return WorkFate::Lost };
        let holder = &claim.holder;
        let is_his = |name: &Option<Name>| name.as_ref() == Some(&holder.by);
        let (is_held, by_hand, ends) = if matches!(self, Self::Review(_)) {
            let is_current = task.review_epoch.unwrap_or_default() == holder.epoch;
            let may_be_his = |name: &Option<Name>| name.is_none() || is_his(name);
            let is_held = task.status == TaskStatus::ReadyForReview && is_his(&task.reviewing_by);
            let by_hand = [TaskStatus::Approved, TaskStatus::Rejected].contains(&task.status)
                && may_be_his(&task.reviewing_by)
                && may_be_his(&task.approved_by);
            (is_held && is_current, by_hand && is_current, REVIEWER_ENDS)
        } else {
            let is_current =
                is_his(&task.assigned_to) && task.lease_epoch.unwrap_or_default() == holder.epoch;
            let is_held = task.status == TaskStatus::Claimed;
            let by_hand = [TaskStatus::ReadyForReview, TaskStatus::Blocked].contains(&task.status);
            (is_held && is_current, by_hand && is_current, CODER_ENDS)
        };
        match fate_by_history(task, holder, ends) {
            _ if is_held => WorkFate::Held,
            WorkFate::Lost if by_hand => WorkFate::ByHand,
            fate => fate,
        }
    }
}

/// History events by which a coder's own commands finish a task.
const CODER_ENDS: &[&str] = &["ready_for_review", "given_up", "blocked"];
/// History events by which a reviewer's own commands finish a review.
const REVIEWER_ENDS: &[&str] = &["approved", "rejected"];

/// Whether a task's history shows that its holder has finished it. A planner's block has neither
/// epoch nor name.
fn fate_by_history(task: &BoardTask, holder: &TaskHolder, ends: &[&str]) -> WorkFate {
    let is_his = |line: &&HistoryEvent| {
        let by = line.more.get("agent").and_then(Value::as_str) == Some(holder.by.as_str());
        let number = line.more.get("epoch").and_then(Value::as_u64);
        by && number.is_none_or(|epoch| epoch == holder.epoch)
            && ends.contains(&line.event.as_str())
    };
    match task.history.iter().rev().take(HISTORY_LOOKED_AT).any(|line| is_his(&line)) {
        true => WorkFate::Finished,
        false => WorkFate::Lost,
    }
}

/// How many of the last history entries are checked: more than happen within a second or two.
const HISTORY_LOOKED_AT: usize = 6;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    status: Option<TaskStatus>,
    cycles: Option<u64>,
    head: Option<String>,
    /// For planners: the plan without the fields that supervisors write.
    plan: Vec<(Name, TaskStatus)>,
    discovered: usize,
}

impl Footprint {
    pub(super) fn of(work: &SupervisedWork, state: &State, head: Option<String>) -> Self {
        let mut footprint = Self { head, ..Self::default() };
        if let Some(task) = work.task().and_then(|id| state.task(id)) {
            footprint.status = Some(task.status);
            footprint.cycles = task.review_cycles_total;
        }
        if matches!(work, SupervisedWork::Plan { .. }) {
            footprint.plan = state.tasks.iter().map(|t| (t.id.clone(), t.status)).collect();
            let open = state.discovered.iter().filter(|d| d.converted_to_task.is_none());
            footprint.discovered = open.count();
        }
        footprint
    }
}

/// When hand-over notes for a task were written; `None` without notes.
pub(super) fn notes_of(state: &State, task: Option<&Name>) -> Option<String> {
    let notes = state.handoff.get(task?)?;
    Some(Value::Object(notes.clone()).to_string())
}
