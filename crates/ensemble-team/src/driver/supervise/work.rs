//! The work of each role: planners answer calls, coders claim tasks, reviewers claim reviews and
//! merge approved work.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::board::{Call, Happened, LEASE_RAN_OUT, State, Status, Task, WakeOccurrence};
use crate::proto::task::Holder;
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;

/// Work that a supervisor holds for its agent.
#[derive(Debug)]
pub(super) enum Work {
    /// A claimed task.
    Task { id: Name, holder: Holder, path: PathBuf },
    /// A review.
    Review { id: Name, holder: Holder, path: PathBuf },
    /// The plan; the lock keeps other planners out.
    Plan { calls: Vec<Call>, occurrences: BTreeSet<WakeOccurrence>, _lock: FileLock },
}

/// State of the held work, from the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The agent still holds it.
    Held,
    /// The agent has finished it: submitted, judged, given up or blocked.
    Finished,
    /// The agent has finished it by changing the task's status on the board, without a verb.
    ByHand,
    /// It was taken from the agent.
    Lost,
}

impl Work {
    /// The task concerned.
    pub(super) const fn task(&self) -> Option<&Name> {
        match self {
            Self::Task { id, .. } | Self::Review { id, .. } => Some(id),
            Self::Plan { .. } => None,
        }
    }

    /// Holder of the claim or the review.
    pub(super) const fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Task { holder, .. } | Self::Review { holder, .. } => Some(holder),
            Self::Plan { .. } => None,
        }
    }

    /// Path of the worktree.
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
        let is_it = |line: &Happened| {
            line.more.get("epoch").and_then(Value::as_u64) == Some(holder.epoch)
                && line.more.get("reason").and_then(Value::as_str) == Some(LEASE_RAN_OUT)
        };
        state.task(id).is_some_and(|task| task.history.iter().rev().any(is_it))
    }

    /// The work's state on the board.
    pub(super) fn fate(&self, state: &State) -> Fate {
        match self {
            Self::Plan { .. } => Fate::Held,
            Self::Task { id, holder, .. } => state.task(id).map_or(Fate::Lost, |task| {
                let is_held = task.status == Status::Claimed
                    && task.assigned_to.as_ref() == Some(&holder.by)
                    && task.lease_epoch.unwrap_or_default() == holder.epoch;
                let by_hand = [Status::ReadyForReview, Status::Blocked].contains(&task.status)
                    && task.assigned_to.as_ref() == Some(&holder.by)
                    && task.lease_epoch.unwrap_or_default() == holder.epoch;
                match told(task, holder, CODER_ENDS) {
                    _ if is_held => Fate::Held,
                    Fate::Lost if by_hand => Fate::ByHand,
                    fate => fate,
                }
            }),
            Self::Review { id, holder, .. } => state.task(id).map_or(Fate::Lost, |task| {
                let is_held = task.status == Status::ReadyForReview
                    && task.reviewing_by.as_ref() == Some(&holder.by)
                    && task.review_epoch.unwrap_or_default() == holder.epoch;
                let is_his = |name: &Option<Name>| name.as_ref().is_none_or(|it| *it == holder.by);
                let by_hand = [Status::Approved, Status::Rejected].contains(&task.status)
                    && is_his(&task.reviewing_by)
                    && is_his(&task.approved_by)
                    && task.review_epoch.unwrap_or_default() == holder.epoch;
                match told(task, holder, REVIEWER_ENDS) {
                    _ if is_held => Fate::Held,
                    Fate::Lost if by_hand => Fate::ByHand,
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
fn told(task: &Task, holder: &Holder, ends: &[&str]) -> Fate {
    let is_his = |line: &&Happened| {
        let by = line.more.get("agent").and_then(Value::as_str) == Some(holder.by.as_str());
        let number = line.more.get("epoch").and_then(Value::as_u64);
        by && number.is_none_or(|epoch| epoch == holder.epoch)
            && ends.contains(&line.event.as_str())
    };
    match task.history.iter().rev().take(HISTORY_LOOKED_AT).any(|line| is_his(&line)) {
        true => Fate::Finished,
        false => Fate::Lost,
    }
}

/// How many of the last history entries are checked: more than happen within a second or two.
const HISTORY_LOOKED_AT: usize = 6;

/// Data that is compared to detect an agent's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    status: Option<Status>,
    cycles: Option<u64>,
    head: Option<String>,
    /// For planners: the plan without the fields that supervisors write.
    plan: Vec<(Name, Status)>,
    discovered: usize,
}

impl Footprint {
    /// The footprint of the current board, and of the commit in the worktree.
    pub(super) fn of(work: &Work, state: &State, head: Option<String>) -> Self {
        let mut footprint = Self { head, ..Self::default() };
        if let Some(task) = work.task().and_then(|id| state.task(id)) {
            footprint.status = Some(task.status);
            footprint.cycles = task.review_cycles_total;
        }
        if let Work::Plan { .. } = work {
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
