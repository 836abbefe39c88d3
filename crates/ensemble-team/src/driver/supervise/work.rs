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
    Task {
        id: Name,
        holder: TaskHolder,
        path: PathBuf,
    },
    Review {
        id: Name,
        holder: TaskHolder,
        path: PathBuf,
    },
    /// The plan; the lock keeps other planners out.
    Plan {
        calls: Vec<PlannerCall>,
        occurrences: BTreeSet<WakeOccurrence>,
        _lock: FileLock,
    },
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
    pub(super) const fn task(&self) -> Option<&Name> {
        match self {
            Self::Task { id, .. } | Self::Review { id, .. } => Some(id),
            Self::Plan { .. } => None,
        }
    }

    pub(super) const fn holder(&self) -> Option<&TaskHolder> {
        match self {
            Self::Task { holder, .. } | Self::Review { holder, .. } => Some(holder),
            Self::Plan { .. } => None,
        }
    }

    pub(super) const fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Task { path, .. } | Self::Review { path, .. } => Some(path),
            Self::Plan { .. } => None,
        }
    }

    /// Whether it was lost because its agent did nothing until the lease ran out. The board does not say why a planner
    /// is no longer registered; nothing else takes one away from its supervisor.
    pub(super) fn has_run_out(&self, state: &State) -> bool {
        let (Some(id), Some(holder)) = (self.task(), self.holder()) else { return true };
        let is_it = |line: &HistoryEvent| {
            line.more.get("epoch").and_then(Value::as_u64) == Some(holder.epoch)
                && line.more.get("reason").and_then(Value::as_str) == Some(LEASE_RAN_OUT)
        };
        state.task(id).is_some_and(|task| task.history.iter().rev().any(is_it))
    }

    pub(super) fn fate(&self, state: &State) -> WorkFate {
        match self {
            Self::Plan { .. } => WorkFate::Held,
            Self::Task { id, holder, .. } => state.task(id).map_or(WorkFate::Lost, |task| {
                let is_held = task.status == TaskStatus::Claimed
                    && task.assigned_to.as_ref() == Some(&holder.by)
                    && task.lease_epoch.unwrap_or_default() == holder.epoch;
                let by_hand = [TaskStatus::ReadyForReview, TaskStatus::Blocked]
                    .contains(&task.status)
                    && task.assigned_to.as_ref() == Some(&holder.by)
                    && task.lease_epoch.unwrap_or_default() == holder.epoch;
                match fate_by_history(task, holder, CODER_ENDS) {
                    _ if is_held => WorkFate::Held,
                    WorkFate::Lost if by_hand => WorkFate::ByHand,
                    fate => fate,
                }
            }),
            Self::Review { id, holder, .. } => state.task(id).map_or(WorkFate::Lost, |task| {
                let is_held = task.status == TaskStatus::ReadyForReview
                    && task.reviewing_by.as_ref() == Some(&holder.by)
                    && task.review_epoch.unwrap_or_default() == holder.epoch;
                let is_his = |name: &Option<Name>| name.as_ref().is_none_or(|it| *it == holder.by);
                let by_hand = [TaskStatus::Approved, TaskStatus::Rejected].contains(&task.status)
                    && is_his(&task.reviewing_by)
                    && is_his(&task.approved_by)
                    && task.review_epoch.unwrap_or_default() == holder.epoch;
                match fate_by_history(task, holder, REVIEWER_ENDS) {
                    _ if is_held => WorkFate::Held,
                    WorkFate::Lost if by_hand => WorkFate::ByHand,
                    fate => fate,
                }
            }),
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
        if let SupervisedWork::Plan { .. } = work {
            footprint.plan = state.tasks.iter().map(|t| (t.id.clone(), t.status)).collect();
            let open = |d: &&crate::board::Discovery| d.converted_to_task.is_none();
            footprint.discovered = state.discovered.iter().filter(open).count();
        }
        footprint
    }
}

/// When hand-over notes for a task were written; `None` without notes.
pub(super) fn notes_of(state: &State, task: Option<&Name>) -> Option<String> {
    let notes = state.handoff.get(task?)?;
    Some(Value::Object(notes.clone()).to_string())
}
