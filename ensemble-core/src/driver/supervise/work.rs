//! What each role does: planners answer calls, coders take tasks, reviewers take reviews and merge
//! what was approved.

use std::path::PathBuf;

use serde_json::Value;

use crate::board::{Call, State, Status, Task};
use crate::durable::FileLock;
use crate::message::Name;
use crate::proto::task::Holder;

/// What a supervisor holds for its agent.
#[derive(Debug)]
pub(super) enum Work {
    /// A claimed task.
    Task { id: Name, holder: Holder, path: PathBuf },
    /// A review.
    Review { id: Name, holder: Holder, path: PathBuf },
    /// The plan; nobody else plans meanwhile.
    Plan { calls: Vec<Call>, _lock: FileLock },
}

/// What has become of it, as the board tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is ours.
    Held,
    /// We have finished it: submitted, judged, given up, blocked.
    Finished,
    /// It was taken away.
    Lost,
}

impl Work {
    /// Which task it is about.
    pub(super) const fn task(&self) -> Option<&Name> {
        match self {
            Self::Task { id, .. } | Self::Review { id, .. } => Some(id),
            Self::Plan { .. } => None,
        }
    }

    /// The claim's or the review's number.
    pub(super) const fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Task { holder, .. } | Self::Review { holder, .. } => Some(holder),
            Self::Plan { .. } => None,
        }
    }

    /// Where it is done.
    pub(super) const fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Task { path, .. } | Self::Review { path, .. } => Some(path),
            Self::Plan { .. } => None,
        }
    }

    /// What has become of it.
    pub(super) fn fate(&self, state: &State) -> Fate {
        match self {
            Self::Plan { .. } => Fate::Held,
            Self::Task { id, holder, .. } => state.task(id).map_or(Fate::Lost, |task| {
                let is_held = task.status == Status::Claimed
                    && task.assigned_to.as_ref() == Some(&holder.by)
                    && task.lease_epoch.unwrap_or_default() == holder.epoch;
                if is_held { Fate::Held } else { told(task, holder, CODER_ENDS) }
            }),
            Self::Review { id, holder, .. } => state.task(id).map_or(Fate::Lost, |task| {
                let is_held = task.status == Status::ReadyForReview
                    && task.reviewing_by.as_ref() == Some(&holder.by)
                    && task.review_epoch.unwrap_or_default() == holder.epoch;
                if is_held { Fate::Held } else { told(task, holder, REVIEWER_ENDS) }
            }),
        }
    }
}

/// What a coder's own commands write into a task's history when it is done with it.
const CODER_ENDS: &[&str] = &["ready_for_review", "given_up", "blocked"];
/// The same of a reviewer.
const REVIEWER_ENDS: &[&str] = &["approved", "rejected"];

/// Whether a task's history says that its holder has finished it. A block by its planner has no number
/// and no name.
fn told(task: &Task, holder: &Holder, ends: &[&str]) -> Fate {
    let is_his = |line: &&crate::board::Happened| {
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

/// How far back a task's history is looked at: what happens within a second or two.
const HISTORY_LOOKED_AT: usize = 6;

/// What is compared to see whether something came of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    status: Option<Status>,
    cycles: Option<u64>,
    head: Option<String>,
    /// For planners: all but what supervisors write.
    plan: Vec<(Name, Status)>,
    discovered: usize,
}

impl Footprint {
    /// Of the board as it is, and the commit in the worktree.
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

/// When hand-over notes for a task were written; nothing without any.
pub(super) fn notes_of(state: &State, task: Option<&Name>) -> Option<String> {
    let notes = state.handoff.get(task?)?;
    Some(Value::Object(notes.clone()).to_string())
}
