//! An agent's entry, and the tasks that name the agent: where they disagree, the tasks count.
//!
//! An agent that works by hand changes the status of its task, and leaves its own entry as it was (seed 001, "Graceful
//! Exit"). Its supervisor then puts the entry right, and adds to the task what the verbs would have written.

use serde_json::json;

use super::graph::active_task;
use super::locked::LockedBoard;
use super::state::{BoardTask, State, TaskStatus};
use super::steps::word;
use crate::proto::agent;
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::message::Name;

/// The task that an agent works on, reviews or waits for, and the state that goes with it.
fn duty_of<'a>(state: &'a State, name: &Name) -> Option<(agent::State, &'a BoardTask)> {
    let reviews = |task: &&BoardTask| {
        task.status == TaskStatus::ReadyForReview && task.reviewing_by.as_ref() == Some(name)
    };
    if let Some(task) = state.tasks.iter().find(reviews) {
        return Some((agent::State::Reviewing, task));
    }
    active_task(state, name).map(|task| match task.status {
        TaskStatus::Claimed => (agent::State::Working, task),
        _ => (agent::State::Waiting, task),
    })
}

/// The state and the task that an agent's entry should have, if they differ.
pub(super) fn disagreement<'a>(
    state: &'a State,
    name: &Name,
) -> Option<(agent::State, Option<&'a Name>)> {
    let entry = state.agents.get(name)?;
    let duty = duty_of(state, name);
    let fits = match (entry.status, &duty) {
        (agent::State::Starting | agent::State::Idle, None) => entry.current_task.is_none(),
        (status, Some((due, task))) => {
            let is_handed_over = status == agent::State::Handoff && *due != agent::State::Waiting;
            (status == *due || is_handed_over) && entry.current_task.as_ref() == Some(&task.id)
        }
        (_, None) => false,
    };
    if fits {
        return None;
    }
    Some(duty.map_or((agent::State::Idle, None), |(due, task)| (due, Some(&task.id))))
}

pub fn disagrees(state: &State, name: &Name) -> bool {
    disagreement(state, name).is_some()
}

impl LockedBoard<'_> {
    /// Makes an agent's entry say what its tasks say. Returns whether it said something else.
    pub fn reconcile_agent(&mut self, name: &Name) -> Result<bool> {
        let Some((due, task)) = disagreement(self.state(), name) else { return Ok(false) };
        let task = task.cloned();
        if let Some(mut fields) = self.agent_fields(name) {
            fields.set("status", word(due)).set("current_task", json!(task));
        }
        let step = json!({ "agent": name, "status": word(due), "task": task });
        self.record_step("agent.reconciled", step);
        self.refresh()?;
        Ok(true)
    }

    /// Adds what an agent that changed its task's status by hand has left out: the commit, the reviewer, and the line
    /// of the history. `head` is the commit of the task's worktree.
    pub fn complete_by_hand(
        &mut self,
        id: &Name,
        by: &TaskHolder,
        head: Option<&str>,
    ) -> Result<()> {
        let task = self.task(id)?;
        let event = match task.status {
            TaskStatus::ReadyForReview => "ready_for_review",
            TaskStatus::Approved => "approved",
            TaskStatus::Rejected => "rejected",
            TaskStatus::Blocked => "blocked",
            _ => return Ok(()),
        };
        let is_told = task.history.iter().rev().any(|line| {
            line.event == event
                && line.more.get("epoch").and_then(|it| it.as_u64()) == Some(by.epoch)
        });
        if is_told {
            return Ok(());
        }
        let (status, now) = (task.status, self.now());
        let commit = task.review_commit.clone().or_else(|| head.map(str::to_owned));
        let reviewer = task.approved_by.clone().unwrap_or_else(|| by.by.clone());
        let mut fields = self.fields(id)?;
        fields.clear(&["lease_expires", "reviewing_by", "review_lease_expires"]);
        match status {
            TaskStatus::ReadyForReview => drop(fields.set("review_commit", json!(commit))),
            TaskStatus::Approved => drop(fields.set("approved_by", json!(reviewer))),
            _ => {}
        }
        let mut line = json!({ "time": now, "event": event, "agent": by.by, "epoch": by.epoch });
        if let Some(commit) = commit.filter(|_| status != TaskStatus::Blocked) {
            line["commit"] = json!(commit);
        }
        fields.push("history", line);
        self.record_step(
            &format!("task.{event}"),
            json!({ "task": id, "status": status, "agent": by.by, "epoch": by.epoch }),
        );
        self.refresh()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    const TASKS: &str = "version: 1\nepoch: 9\ntasks:\n  \
        - {id: mine, status: CLAIMED, assigned_to: ann, worktree: w, base_commit: c, spec_ref: s, done_when: d}\n  \
        - {id: sent, status: READY_FOR_REVIEW, assigned_to: bob, reviewing_by: rev, review_commit: c, spec_ref: s, done_when: d}\n  \
        - {id: over, status: MERGED, spec_ref: s, done_when: d}\nagents:\n  ";

    /// The state that the agent's entry should have, as `STATE task`; empty if it fits.
    fn due(name: &str, status: &str, task: &str) -> String {
        let text = format!("{TASKS}{name}: {{status: {status}, current_task: {task}}}\n");
        let state = check(&text, std::path::Path::new("state.yaml")).unwrap();
        match disagreement(&state, &Name::new(name).unwrap()) {
            None => String::new(),
            Some((due, task)) => {
                format!("{} {}", word(due), task.map_or("-", |task| task.as_str()))
            }
        }
    }

    #[test]
    fn the_tasks_say_what_an_entry_should_say() {
        for (name, task, fitting, due_now) in [
            ("ann", "mine", &["WORKING", "HANDOFF"][..], "WORKING mine"),
            ("bob", "sent", &["WAITING"], "WAITING sent"),
            ("rev", "sent", &["REVIEWING", "HANDOFF"], "REVIEWING sent"),
            ("eve", "null", &["IDLE", "STARTING"], "IDLE -"),
        ] {
            for status in ["STARTING", "IDLE", "WORKING", "REVIEWING", "WAITING", "HANDOFF"] {
                let expected = if fitting.contains(&status) { "" } else { due_now };
                assert_eq!(due(name, status, task), expected, "{name} {status}");
            }
            assert_eq!(due(name, fitting[0], "over"), due_now, "another task");
        }
    }
}
