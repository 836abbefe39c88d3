//! The dependency graph of tasks: cycles, and which tasks can be claimed now.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::leases::LEASE_RAN_OUT;
use super::locked::LockedBoard;
use super::state::{BoardAgent, BoardTask, HistoryEvent, State, TaskStatus};
use crate::proto::task::EXHAUSTED_BY;
use ensemble_core::Result;
use ensemble_core::message::Name;

const NO_CODER_LEFT: &str = "no_coder_left";

/// A dependency cycle, if there is one; its first task is repeated at the end: `[a, b, a]`.
pub fn cycle(tasks: &[BoardTask]) -> Option<Vec<Name>> {
    let by_id: BTreeMap<&Name, &BoardTask> = tasks.iter().map(|task| (&task.id, task)).collect();
    // Tasks from which no cycle can be reached.
    let mut done: BTreeMap<&Name, bool> = BTreeMap::new();
    for task in tasks {
        // Depth first, without recursion: a chain may be as long as the board.
        let mut path: Vec<(&BoardTask, usize)> = Vec::new();
        if !done.contains_key(&task.id) {
            path.push((task, 0));
            done.insert(&task.id, false);
        }
        while let Some((current, next)) = path.last_mut() {
            let Some(dependency) = current.depends_on.get(*next) else {
                done.insert(&current.id, true);
                path.pop();
                continue;
            };
            *next += 1;
            match (done.get(dependency), by_id.get(dependency)) {
                (Some(false), _) => {
                    let ids = path.iter().map(|(task, _)| &task.id);
                    let mut cycle: Vec<Name> =
                        ids.skip_while(|id| *id != dependency).cloned().collect();
                    cycle.push(dependency.clone());
                    return Some(cycle);
                }
                (None, Some(&task)) => {
                    done.insert(&task.id, false);
                    path.push((task, 0));
                }
                (Some(true), _) | (None, None) => {}
            }
        }
    }
    None
}

pub fn unmet<'a>(state: &State, task: &'a BoardTask) -> Vec<&'a Name> {
    let is_merged =
        |id: &Name| state.task(id).is_some_and(|task| task.status == TaskStatus::Merged);
    task.depends_on.iter().filter(|id| !is_merged(id)).collect()
}

/// How many unfinished tasks wait for this one, directly or behind others.
pub(super) fn behind(state: &State, id: &Name) -> usize {
    let mut waiting: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
    for task in state.tasks.iter().filter(|task| !task.status.is_terminal()) {
        for before in &task.depends_on {
            waiting.entry(before).or_default().push(&task.id);
        }
    }
    let mut found: BTreeSet<&Name> = BTreeSet::new();
    let mut next = vec![id];
    while let Some(before) = next.pop() {
        let new = waiting.get(before).into_iter().flatten().filter(|task| found.insert(task));
        next.extend(new);
    }
    found.len()
}

/// Tasks that a coder may claim now, most urgent first, then in the order of the board. With a
/// named coder, tasks at which it failed are left out, and all are if it has another task.
pub fn claimable<'a>(state: &'a State, coder: Option<&Name>) -> Vec<&'a BoardTask> {
    let busy_with = coder.and_then(|coder| active_task(state, coder));
    by_urgency(state, |task| {
        task.status.is_claimable()
            && unmet(state, task).is_empty()
            && task.failed_by.len() < EXHAUSTED_BY
            && coder.is_none_or(|coder| !task.failed_by.contains(coder))
            && busy_with.is_none_or(|busy| busy.id == task.id)
    })
}

/// The agent's active task: one that it works on, whose verdict it awaits, or that it must rework.
pub fn active_task<'a>(state: &'a State, agent: &Name) -> Option<&'a BoardTask> {
    state
        .tasks
        .iter()
        .find(|task| task.assigned_to.as_ref() == Some(agent) && task.status.is_active())
}

/// Tasks that a reviewer may claim now: no reviewer holds them, and they are not the reviewer's own
/// work.
pub fn reviewable<'a>(state: &'a State, reviewer: Option<&Name>) -> Vec<&'a BoardTask> {
    by_urgency(state, |task| {
        task.status == TaskStatus::ReadyForReview
            && task.reviewing_by.is_none()
            && (reviewer.is_none() || task.assigned_to.as_ref() != reviewer)
    })
}

fn by_urgency(state: &State, is_meant: impl Fn(&BoardTask) -> bool) -> Vec<&BoardTask> {
    let mut tasks: Vec<&BoardTask> = state.tasks.iter().filter(|task| is_meant(task)).collect();
    tasks.sort_by_key(|task| task.priority.unwrap_or(u64::MAX));
    tasks
}

/// Whether a registered agent has a role, or may have it: an entry without a role may have any.
fn has_role(agent: &BoardAgent, role: &str) -> bool {
    agent.role.as_deref().is_none_or(|known| known == role)
}

/// The registered coders that have not failed at a task, busy ones, too.
pub(super) fn able_coders<'a>(
    state: &'a State,
    task: &BoardTask,
) -> impl Iterator<Item = &'a Name> {
    let failed = task.failed_by.clone();
    let able = move |(name, agent): &(&Name, &BoardAgent)| {
        has_role(agent, "coder") && !failed.contains(name)
    };
    state.agents.iter().filter(able).map(|(name, _)| name)
}

/// Whether coders are registered, and each of them has failed at a task.
pub(super) fn have_all_failed(state: &State, task: &BoardTask) -> bool {
    let is_coder = |agent: &BoardAgent| agent.role.as_deref() == Some("coder");
    !task.failed_by.is_empty()
        && state.agents.values().any(is_coder)
        && able_coders(state, task).next().is_none()
}

/// Whether a registered agent could do what a task needs next: claim it, review it or merge it. True
/// for a task that needs no agent now.
pub fn can_be_taken(state: &State, task: &BoardTask) -> bool {
    let has_reviewer = |author: Option<&Name>| {
        let is_other = |(name, agent): (&Name, &BoardAgent)| {
            has_role(agent, "code-reviewer") && Some(name) != author
        };
        state.agents.iter().any(is_other)
    };
    match task.status {
        TaskStatus::Unclaimed | TaskStatus::Rejected | TaskStatus::IntegrationFailed => {
            !unmet(state, task).is_empty()
                || (task.failed_by.len() < EXHAUSTED_BY
                    && able_coders(state, task).next().is_some())
        }
        TaskStatus::ReadyForReview => {
            task.reviewing_by.is_some() || has_reviewer(task.assigned_to.as_ref())
        }
        TaskStatus::Approved => has_reviewer(None),
        _ => true,
    }
}

/// Whether the last agent of a task lost its lease, and no other agent has taken the task since.
pub fn is_left_behind(task: &BoardTask) -> bool {
    let releases = ["coder_claim_released", "review_claim_released"];
    let waits = task.status.is_claimable()
        || (task.status == TaskStatus::ReadyForReview && task.reviewing_by.is_none());
    let is_loss = |line: &HistoryEvent| {
        releases.contains(&line.event.as_str()) && line.text("reason") == Some(LEASE_RAN_OUT)
    };
    // A released task may be salvaged afterwards.
    let last = task.history.iter().rev().find(|line| line.event != "salvaged");
    waits && last.is_some_and(is_loss)
}

impl State {
    /// Tasks at which every registered coder has failed, and for which that is not noted yet.
    pub fn without_coder(&self) -> Vec<&BoardTask> {
        let is_noted = |task: &BoardTask| {
            let is_it = |anomaly: &&super::BoardAnomaly| {
                anomaly.kind == NO_CODER_LEFT && anomaly.task.as_ref() == Some(&task.id)
            };
            let last = self.anomalies.iter().rfind(is_it);
            last.is_some_and(|last| last.details.get("failed_by") == Some(&json!(task.failed_by)))
        };
        let is_without = |task: &&BoardTask| {
            task.status.is_claimable()
                && task.failed_by.len() < EXHAUSTED_BY
                && have_all_failed(self, task)
                && !is_noted(task)
        };
        self.tasks.iter().filter(is_without).collect()
    }
}

impl LockedBoard<'_> {
    /// Notes an anomaly for each task at which every registered coder has failed, once.
    pub fn note_without_coder(&mut self) -> Result<()> {
        let tasks: Vec<(Name, Vec<Name>)> = self
            .state()
            .without_coder()
            .into_iter()
            .map(|task| (task.id.clone(), task.failed_by.clone()))
            .collect();
        for (id, failed_by) in tasks {
            self.observe(NO_CODER_LEFT, &id, json!({ "failed_by": failed_by }))?;
        }
        Ok(())
    }
}
