//! One step of a task: from its fields to the machine of [`crate::proto::task`], and back.

use serde::Serialize;
use serde_json::{Value, json};

use super::locked::{EntryFields, LockedBoard};
use super::schema::AGENT;
use super::state::{BoardTask, TaskStatus};
use super::{BoardError, BoardObstacle, LostLease};
use crate::proto::agent;
use crate::proto::task::{
    self, Effect, Event, LimitKind, TaskCounts, TaskHolder, TaskOrigin, TaskRefusal,
};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

/// Author of work whose coder the board does not name.
const UNKNOWN: &str = "unknown";

pub(super) struct HistoryEntry {
    pub(super) event: &'static str,
    pub(super) agent: Option<Name>,
    pub(super) more: Value,
}

impl HistoryEntry {
    pub(super) fn new(event: &'static str) -> Self {
        Self { event, agent: None, more: json!({}) }
    }

    /// An entry about what a holder did under its claim or review.
    pub(super) fn by(event: &'static str, holder: &TaskHolder) -> Self {
        let agent = Some(holder.by.clone());
        Self { event, agent, more: json!({ "epoch": holder.epoch }) }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more[name] = value.into();
        self
    }
}

impl LockedBoard<'_> {
    /// Applies an event to a task. `what` is the start of an error's text, in the infinitive.
    pub(super) fn step(
        &mut self,
        id: &Name,
        event: Event,
        what: &str,
        entry: HistoryEntry,
    ) -> Result<()> {
        let task = self.task(id)?;
        let before = task.status;
        let (machine, effects) = machine(task, self.state().config.limits(Some(task)))
            .next(event)
            .map_err(|refusal| refused(format!("{what} task `{id}`"), refusal))?;
        let now = self.now();
        let mut fields = self.fields(id)?;
        write_back(&mut fields, &machine, before);
        fields.clear(&["claim_error"]);
        let mut line = json!({ "time": now, "event": entry.event });
        if let Some(agent) = &entry.agent {
            line["agent"] = json!(agent);
        }
        for (key, value) in entry.more.as_object().into_iter().flatten() {
            line[key] = value.clone();
        }
        fields.push("history", line);
        let mut step =
            json!({ "task": id, "status": machine.state().name(), "agent": entry.agent });
        for key in ["epoch", "commit"] {
            if let Some(value) = entry.more.get(key) {
                step[key] = value.clone();
            }
        }
        self.record_step(&format!("task.{}", entry.event), step);
        self.refresh()?;
        self.give_up(id, &effects)
    }

    fn give_up(&mut self, id: &Name, effects: &[Effect]) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::GivenUp { by, limit, is_exhausted } => {
                    self.leave(by, id)?;
                    let kind = match (is_exhausted, limit) {
                        (true, _) => "hypothesis_exhaustion",
                        (false, LimitKind::ReviewCycles) => "review_deadlock",
                        (false, LimitKind::Iterations) => {
                            self.record_step("task.given_up", json!({ "task": id, "agent": by }));
                            continue;
                        }
                    };
                    self.observe(kind, id, json!({ "agent": by, "limit": limit }))?;
                }
                Effect::Near(limit) => {
                    self.record_step("task.near_limit", json!({ "task": id, "limit": limit }));
                }
                Effect::FreshWorktree | Effect::KeepWorktree => {}
            }
        }
        Ok(())
    }

    /// Applies an agent's own step, which must be possible now.
    pub(super) fn agent_step(
        &mut self,
        name: &Name,
        event: agent::Event,
        current: Option<&Name>,
    ) -> Result<()> {
        let Some(entry) = self.state().agents.get(name) else {
            let id = name.to_string();
            return Err(BoardError::Unknown { what: "agent", id, nearest: Vec::new() }.into());
        };
        let before = entry.status;
        let state = agent::next(before, event).map_err(|agent::AgentRefusal| {
            let why = BoardObstacle::AgentState { state: before };
            BoardError::not_allowed(format!("change agent `{name}`"), why)
        })?;
        if let Some(mut fields) = self.agent_fields(name) {
            fields.set("status", word(state)).set("current_task", json!(current));
        }
        self.refresh()
    }

    /// Detaches an agent from a task, in any state of the agent's entry.
    pub(super) fn leave(&mut self, name: &Name, task: &Name) -> Result<()> {
        let busy = |entry: &super::BoardAgent| entry.current_task.as_ref() == Some(task);
        if !self.state().agents.get(name).is_some_and(busy) {
            return Ok(());
        }
        if let Some(mut fields) = self.agent_fields(name) {
            fields.set("status", word(agent::State::Idle)).clear(&["current_task"]);
        }
        self.refresh()
    }

    pub(super) fn agent_fields(&mut self, name: &Name) -> Option<EntryFields<'_>> {
        match self.section("agents", json!({})).get_mut(name.as_str()) {
            Some(Value::Object(object)) => Some(EntryFields { object, fields: AGENT }),
            _ => None,
        }
    }
}

pub(super) fn word(state: impl Serialize) -> String {
    let value = serde_json::to_value(state).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn refused(what: String, refusal: TaskRefusal) -> Error {
    match refusal {
        TaskRefusal::NotHolder { .. } | TaskRefusal::OldEpoch { .. } => {
            BoardError::Fenced { what, why: LostLease::Step(refusal) }.into()
        }
        _ => BoardError::not_allowed(what, BoardObstacle::Step(refusal)),
    }
}

fn machine(task: &BoardTask, limits: task::TaskLimits) -> task::TaskMachine {
    let unknown = || Name::new(UNKNOWN).ok();
    let author = || task.assigned_to.clone().or_else(unknown);
    let holder = |by: Option<Name>, epoch: Option<u64>| {
        by.map(|by| TaskHolder { by, epoch: epoch.unwrap_or_default() })
    };
    let state = match task.status {
        TaskStatus::Draft => task::State::Draft,
        TaskStatus::Unclaimed => task::State::Unclaimed,
        TaskStatus::Claimed => match holder(author(), task.lease_epoch) {
            Some(holder) => task::State::Claimed { holder, from: origin(task) },
            None => task::State::Unclaimed,
        },
        TaskStatus::ReadyForReview => match author() {
            Some(author) => task::State::ReadyForReview {
                author,
                commit: task.review_commit.clone().unwrap_or_default(),
                review: holder(task.reviewing_by.clone(), task.review_epoch),
            },
            None => task::State::Blocked,
        },
        TaskStatus::Approved => task::State::Approved,
        TaskStatus::Rejected => task::State::Rejected { author: task.assigned_to.clone() },
        TaskStatus::Merged => task::State::Merged,
        TaskStatus::IntegrationFailed => task::State::IntegrationFailed,
        TaskStatus::Blocked => task::State::Blocked,
        TaskStatus::Superseded => task::State::Superseded,
        TaskStatus::Abandoned => task::State::Abandoned,
    };
    let count = |value: Option<u64>| value.map_or(0, |v| u32::try_from(v).unwrap_or(u32::MAX));
    let counts = TaskCounts {
        iteration: count(task.iteration),
        coder: last_claim(task).and_then(|(_, coder)| coder),
        review_cycles_current: count(task.review_cycles_current),
        review_cycles_total: count(task.review_cycles_total),
        failed_by: task.failed_by.iter().cloned().collect(),
    };
    task::TaskMachine::new(state, counts, limits)
}

pub fn last_coder(task: &BoardTask) -> Option<Name> {
    last_claim(task).and_then(|(_, coder)| coder)
}

fn last_claim(task: &BoardTask) -> Option<(TaskOrigin, Option<Name>)> {
    task.history.iter().rev().find_map(|happened| {
        let by = happened.text("agent").and_then(|by| Name::new(by).ok());
        Some((claimed_from(&happened.event)?, by))
    })
}

/// The status before a claim; `None` for an event that is not a claim.
pub(super) fn claimed_from(event: &str) -> Option<TaskOrigin> {
    match event {
        "claimed" => Some(TaskOrigin::Unclaimed),
        "reclaimed_after_rejection" | "reassigned_after_rejection" => Some(TaskOrigin::Rejected),
        "claimed_for_integration_fix" => Some(TaskOrigin::IntegrationFailed),
        _ => None,
    }
}

fn origin(task: &BoardTask) -> TaskOrigin {
    match last_claim(task).map(|(from, _)| from) {
        Some(TaskOrigin::Rejected) if task.rejection_reason.is_none() => TaskOrigin::Unclaimed,
        Some(origin) => origin,
        None if task.integration_fix == Some(true) => TaskOrigin::IntegrationFailed,
        None => TaskOrigin::Unclaimed,
    }
}

const CLAIM: [&str; 1] = ["lease_expires"];
const REVIEW: [&str; 2] = ["reviewing_by", "review_lease_expires"];

fn write_back(fields: &mut EntryFields<'_>, machine: &task::TaskMachine, before: TaskStatus) {
    if machine.state().name() != before.as_str() {
        fields.set("status", machine.state().name());
    }
    match machine.state() {
        task::State::Claimed { holder, .. } => {
            fields.set("assigned_to", json!(holder.by)).set("lease_epoch", holder.epoch);
        }
        task::State::ReadyForReview { commit, review, .. } => {
            fields.set("review_commit", commit.as_str()).clear(&CLAIM);
            match review {
                None => fields.clear(&REVIEW),
                Some(TaskHolder { by, epoch }) => {
                    fields.set("reviewing_by", json!(by)).set("review_epoch", *epoch)
                }
            };
        }
        task::State::Rejected { author } => {
            fields.clear(&CLAIM).clear(&REVIEW).set("assigned_to", json!(author));
        }
        task::State::Approved => {
            fields.clear(&CLAIM).clear(&REVIEW);
        }
        task::State::Merged => {
            fields.clear(&CLAIM).clear(&REVIEW).clear(&["worktree", "merge_error"]);
        }
        task::State::Draft
        | task::State::Unclaimed
        | task::State::IntegrationFailed
        | task::State::Blocked
        | task::State::Superseded
        | task::State::Abandoned => {
            fields.clear(&CLAIM).clear(&REVIEW).clear(&["assigned_to", "merge_error"]);
        }
    }
    let counts = machine.counts();
    for (name, count) in [
        ("iteration", counts.iteration),
        ("review_cycles_current", counts.review_cycles_current),
        ("review_cycles_total", counts.review_cycles_total),
    ] {
        if count > 0 || fields.object.contains_key(name) {
            fields.set(name, count);
        }
    }
    for agent in &counts.failed_by {
        let known = fields.object.get("failed_by").and_then(Value::as_array);
        if !known.is_some_and(|known| known.iter().any(|k| k.as_str() == Some(agent.as_str()))) {
            fields.push("failed_by", json!(agent));
        }
    }
}
