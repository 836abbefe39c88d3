//! Steps of tasks except claims: those of planner, coder, reviewer and merger.

use std::time::Duration;

use serde_json::{Value, json};

use super::locked::LockedBoard;
use super::state::TaskStatus;
use super::steps::HistoryEntry;
use super::{BoardError, BoardObstacle};
use crate::proto::agent;
use crate::proto::task::{Event, TaskHolder};
use ensemble_core::Result;
use ensemble_core::message::Name;

#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: Name,
    pub description: String,
    pub spec_ref: Option<String>,
    pub done_when: Option<String>,
    pub scope: Option<String>,
    pub priority: Option<u64>,
    pub depends_on: Vec<Name>,
    pub supersedes: Option<Name>,
    /// Whether it is a draft, which no coder may claim yet.
    pub is_draft: bool,
}

impl NewTask {
    pub fn new(
        id: Name,
        description: impl Into<String>,
        spec_ref: impl Into<String>,
        done_when: impl Into<String>,
    ) -> Self {
        let (spec_ref, done_when) = (Some(spec_ref.into()), Some(done_when.into()));
        let description = description.into();
        Self { description, spec_ref, done_when, is_draft: false, ..Self::draft(id) }
    }

    /// A task that its planner has not finished.
    pub const fn draft(id: Name) -> Self {
        Self {
            id,
            description: String::new(),
            spec_ref: None,
            done_when: None,
            scope: None,
            priority: None,
            depends_on: Vec::new(),
            supersedes: None,
            is_draft: true,
        }
    }

    pub fn after(mut self, depends_on: impl IntoIterator<Item = Name>) -> Self {
        self.depends_on.extend(depends_on);
        self
    }
}

impl LockedBoard<'_> {
    pub fn add_task(&mut self, task: &NewTask) -> Result<()> {
        let same =
            |other: &super::BoardTask| other.id.as_str().eq_ignore_ascii_case(task.id.as_str());
        if let Some(other) = self.state().tasks.iter().find(|other| same(other)) {
            let why = BoardObstacle::TaskExists { task: other.id.clone() };
            return Err(BoardError::not_allowed(format!("add task `{}`", task.id), why));
        }
        self.check_reachable(task)?;
        let now = self.now();
        let status = if task.is_draft { TaskStatus::Draft } else { TaskStatus::Unclaimed };
        let mut entry = json!({
            "id": task.id, "description": task.description, "status": status,
            "priority": task.priority, "created": now, "spec_ref": task.spec_ref,
            "done_when": task.done_when, "scope": task.scope, "depends_on": task.depends_on,
            "supersedes": task.supersedes, "history": [{ "time": now, "event": "created" }],
        });
        if let Value::Object(fields) = &mut entry {
            fields.retain(|_, value| !value.is_null());
        }
        self.append("tasks", entry);
        self.record_step("task.created", json!({ "task": task.id, "status": status }));
        self.refresh()
    }

    /// Checks that all dependencies can still be merged.
    fn check_reachable(&self, task: &NewTask) -> Result<()> {
        for before in task.depends_on.iter().filter_map(|id| self.state().task(id)) {
            let (on, status) = (before.id.clone(), before.status);
            if before.status == TaskStatus::Merged || !before.status.is_terminal() {
                continue;
            }
            let successors = before.superseded_by.clone().unwrap_or_default();
            let why = BoardObstacle::NeverMerged { on, status, successors };
            return Err(BoardError::not_allowed(format!("add task `{}`", task.id), why));
        }
        Ok(())
    }

    /// Moves a task from DRAFT to UNCLAIMED.
    pub fn finalize(&mut self, id: &Name) -> Result<()> {
        let entry = HistoryEntry::new("finalized");
        self.step(id, Event::Finalize, "finalize", entry)
    }

    pub fn iterate(&mut self, id: &Name, holder: &TaskHolder) -> Result<()> {
        let entry = HistoryEntry::by("iteration", holder);
        self.step(id, Event::Iterate(holder.clone()), "begin an iteration of", entry)
    }

    /// The holder submits its work. So may the last holder, under the epoch that it had, as long as the task was not
    /// claimed since: its work is done and should not be done twice.
    pub fn submit(&mut self, id: &Name, holder: &TaskHolder, commit: &str) -> Result<()> {
        let holder = &self.claim_again(id, holder)?;
        self.reconcile_agent(&holder.by)?;
        let entry = HistoryEntry::by("ready_for_review", holder).with("commit", commit);
        let event = Event::Submit { holder: holder.clone(), commit: commit.to_owned() };
        self.step(id, event, "submit", entry)?;
        if self.task(id)?.handoff_pending == Some(true) {
            // The next coder after a review follows the review instead of the notes.
            self.fields(id)?.set("handoff_pending", false);
            self.refresh()?;
        }
        match self.state().agents.contains_key(&holder.by) {
            true => self.agent_step(&holder.by, agent::Event::Wait, Some(id)),
            // It was given up for dead; its work counts anyway.
            false => Ok(()),
        }
    }

    /// Blocks a task, on behalf of its holder or (without a holder) a planner or supervisor.
    pub fn block(
        &mut self,
        id: &Name,
        holder: Option<&TaskHolder>,
        reason: &str,
        questions: &[String],
    ) -> Result<()> {
        let by = self.task(id)?.assigned_to.clone();
        let entry = match holder {
            Some(holder) => HistoryEntry::by("blocked", holder),
            None => HistoryEntry::new("blocked"),
        };
        let entry = entry.with("reason", reason);
        self.step(id, Event::Block(holder.cloned()), "block", entry)?;
        let mut fields = self.fields(id)?;
        fields.set("blocked_reason", reason).set("blocked_questions", json!(questions));
        self.refresh()?;
        let agent = holder.map(|holder| &holder.by);
        self.observe("task_blocked", id, json!({ "reason": reason, "agent": agent }))?;
        by.map_or(Ok(()), |by| self.leave(&by, id))
    }

    /// Moves a task from BLOCKED to UNCLAIMED: the cause is gone, and every coder may try again.
    pub fn unblock(&mut self, id: &Name) -> Result<()> {
        let entry = HistoryEntry::new("unblocked");
        self.step(id, Event::Unblock, "unblock", entry)?;
        let mut fields = self.fields(id)?;
        fields.clear(&["blocked_reason", "blocked_questions", "failed_by"]);
        if fields.object.contains_key("review_cycles_current") {
            fields.set("review_cycles_current", 0);
        }
        self.refresh()
    }

    /// Moves a task from BLOCKED to SUPERSEDED. Its dependents depend on its successors from now
    /// on.
    pub fn supersede(&mut self, id: &Name, by: &[Name], reason: &str) -> Result<()> {
        if by.is_empty() {
            let what = format!("supersede task `{id}`");
            return Err(BoardError::not_allowed(what, BoardObstacle::NoSuccessor));
        }
        for successor in by {
            self.task(successor)?;
        }
        let entry = HistoryEntry::new("superseded").with("reason", reason);
        self.step(id, Event::Supersede, "supersede", entry)?;
        self.fields(id)?.set("superseded_by", json!(by)).set("rescope_reason", reason);
        for successor in by {
            if self.task(successor)?.supersedes.is_none() {
                self.fields(successor)?.set("supersedes", json!(id));
            }
        }
        let waits =
            |task: &&super::BoardTask| !task.status.is_terminal() && task.depends_on.contains(id);
        let waiting: Vec<(Name, Vec<Name>)> = self
            .state()
            .tasks
            .iter()
            .filter(waits)
            .map(|task| (task.id.clone(), replaced(&task.depends_on, id, by)))
            .collect();
        for (waiting, depends_on) in waiting {
            self.fields(&waiting)?.set("depends_on", json!(depends_on));
            self.record_step("task.retargeted", json!({ "task": waiting, "from": id }));
        }
        self.refresh()
    }

    /// Moves a task from BLOCKED to ABANDONED.
    pub fn abandon(&mut self, id: &Name, reason: &str) -> Result<()> {
        let entry = HistoryEntry::new("abandoned").with("reason", reason);
        self.step(id, Event::Abandon, "abandon", entry)
    }

    pub fn approve(&mut self, id: &Name, reviewer: &TaskHolder, commit: &str) -> Result<()> {
        let author = self.task(id)?.assigned_to.clone();
        let entry = HistoryEntry::by("approved", reviewer).with("commit", commit);
        let event = Event::Approve { holder: reviewer.clone(), commit: commit.to_owned() };
        self.step(id, event, "approve", entry)?;
        self.fields(id)?.set("approved_by", json!(reviewer.by)).clear(&["rejection_reason"]);
        self.refresh()?;
        self.leave(&reviewer.by, id)?;
        author.map_or(Ok(()), |author| self.leave(&author, id))
    }

    /// The reviewer rejects this commit. The coder keeps the task, unless this rejection makes the
    /// coder fail.
    pub fn reject(
        &mut self,
        id: &Name,
        reviewer: &TaskHolder,
        commit: &str,
        reason: &str,
    ) -> Result<()> {
        let entry = HistoryEntry::by("rejected", reviewer);
        let entry = entry.with("commit", commit).with("reason", reason);
        let event = Event::Reject { holder: reviewer.clone(), commit: commit.to_owned() };
        self.step(id, event, "reject", entry)?;
        self.fields(id)?.set("rejection_reason", reason);
        self.refresh()?;
        self.leave(&reviewer.by, id)
    }

    /// Moves a task from APPROVED to MERGED.
    pub fn merged(&mut self, id: &Name, commit: &str) -> Result<()> {
        let entry = HistoryEntry::new("merged").with("commit", commit);
        self.step(id, Event::Merge, "merge", entry)?;
        self.fields(id)?.set("merge_commit", commit);
        self.refresh()
    }

    /// Moves a task from APPROVED to INTEGRATION_FAILED.
    pub fn integration_failed(&mut self, id: &Name, reason: &str) -> Result<()> {
        let entry = HistoryEntry::new("integration_failed").with("reason", reason);
        self.step(id, Event::FailIntegration, "report a failed merge of", entry)
    }

    /// Notes why an approved task cannot be merged now. The task stays APPROVED; the next merge clears
    /// the note. The same reason is noted once.
    pub fn merge_refused(&mut self, id: &Name, reason: &str) -> Result<()> {
        let task = self.task(id)?;
        if task.status != TaskStatus::Approved {
            let what = format!("note that task `{id}` cannot be merged");
            let why = BoardObstacle::Status { status: task.status };
            return Err(BoardError::not_allowed(what, why));
        }
        if task.merge_error.as_deref() == Some(reason) {
            return Ok(());
        }
        let now = self.now();
        let mut fields = self.fields(id)?;
        fields.set("merge_error", reason);
        fields.push("history", json!({ "time": now, "event": "merge_refused", "reason": reason }));
        self.refresh()?;
        self.observe("merge_impossible", id, json!({ "reason": reason }))
    }

    /// Notes why a task that is free cannot be claimed. The next step of the task clears the note.
    pub fn claim_refused(&mut self, id: &Name, reason: &str) -> Result<()> {
        if self.task(id)?.claim_error.as_deref() == Some(reason) {
            return Ok(());
        }
        self.fields(id)?.set("claim_error", reason);
        self.record_step("task.claim_refused", json!({ "task": id, "reason": reason }));
        self.refresh()
    }

    /// End of a lease that begins now, for people to read.
    pub(super) fn lease_end(&self, duration: Duration) -> Value {
        json!(self.now().plus(duration))
    }
}

/// Replaces `id` in the dependencies by its successors.
fn replaced(depends_on: &[Name], id: &Name, by: &[Name]) -> Vec<Name> {
    let mut new: Vec<Name> = Vec::new();
    for dependency in depends_on {
        let instead = if dependency == id { by } else { std::slice::from_ref(dependency) };
        for name in instead {
            if !new.contains(name) {
                new.push(name.clone());
            }
        }
    }
    new
}
