//! The dependency graph of tasks: cycles, and which tasks can be claimed now.

use std::collections::BTreeMap;

use super::state::{State, Status, Task};
use ensemble_core::message::Name;

/// A dependency cycle, if there is one; its first task is repeated at the end: `[a, b, a]`.
#[must_use]
pub fn cycle(tasks: &[Task]) -> Option<Vec<Name>> {
    let by_id: BTreeMap<&Name, &Task> = tasks.iter().map(|task| (&task.id, task)).collect();
    // Tasks from which no cycle can be reached.
    let mut done: BTreeMap<&Name, bool> = BTreeMap::new();
    for task in tasks {
        // Depth first, without recursion: a chain may be as long as the board.
        let mut path: Vec<(&Task, usize)> = Vec::new();
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

/// Unmet dependencies of a task: those that are not merged.
#[must_use]
pub fn unmet<'a>(state: &State, task: &'a Task) -> Vec<&'a Name> {
    let is_merged = |id: &Name| state.task(id).is_some_and(|task| task.status == Status::Merged);
    task.depends_on.iter().filter(|id| !is_merged(id)).collect()
}

/// Tasks that a coder may claim now, most urgent first, then in the order of the board. With a
/// named coder, tasks at which it failed are left out, and all are if it has another task.
#[must_use]
pub fn claimable<'a>(state: &'a State, coder: Option<&Name>) -> Vec<&'a Task> {
    let busy_with = coder.and_then(|coder| active_task(state, coder));
    let mut tasks: Vec<&Task> = state
        .tasks
        .iter()
        .filter(|task| task.status.is_claimable() && unmet(state, task).is_empty())
        .filter(|task| task.failed_by.len() < crate::proto::task::EXHAUSTED_BY)
        .filter(|task| coder.is_none_or(|coder| !task.failed_by.contains(coder)))
        .filter(|task| busy_with.is_none_or(|busy| busy.id == task.id))
        .collect();
    tasks.sort_by_key(|task| task.priority.unwrap_or(u64::MAX));
    tasks
}

/// The agent's active task: one that it works on, whose verdict it awaits, or that it must rework.
#[must_use]
pub fn active_task<'a>(state: &'a State, agent: &Name) -> Option<&'a Task> {
    state
        .tasks
        .iter()
        .find(|task| task.assigned_to.as_ref() == Some(agent) && task.status.is_active())
}

/// Tasks that a reviewer may claim now: no reviewer holds them, and they are not the reviewer's own
/// work.
#[must_use]
pub fn reviewable<'a>(state: &'a State, reviewer: Option<&Name>) -> Vec<&'a Task> {
    let mut tasks: Vec<&Task> = state
        .tasks
        .iter()
        .filter(|task| task.status == Status::ReadyForReview && task.reviewing_by.is_none())
        .filter(|task| reviewer.is_none() || task.assigned_to.as_ref() != reviewer)
        .collect();
    tasks.sort_by_key(|task| task.priority.unwrap_or(u64::MAX));
    tasks
}
