//! Which task an agent held when, by the event log.
//!
//! | taken up | by the record | given up |
//! |---|---|---|
//! | a message with a task | `message.acked` | `message.settled`, `released`, `dead`, `withdrawn` of the same epoch |
//! | a claim or review on the board | `board.written`, with the task's new holder | `board.written`, with another status or holder |
//! | a step | `step.taken` | `step.completed`, `failed`, `blocked`, `lease_ended` of the same epoch |
//!
//! A task that was not given up is held until now.

use std::collections::HashMap;

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTask {
    pub agent: String,
    pub task: String,
    pub from: Timestamp,
    /// When the agent gave it up; `None` if it holds it.
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub struct HeldTasks {
    held: Vec<HeldTask>,
    /// What each agent has held: indices into `held`.
    by_agent: HashMap<String, Vec<usize>>,
    /// How often what an agent held has changed.
    changes: HashMap<String, u64>,
    tasks: HashMap<String, String>,
    /// The work that is held now, by its place: index into `held`.
    open: HashMap<String, usize>,
}

impl HeldTasks {
    /// The types of records that say what was held.
    pub const TYPES: [&'static str; 12] = [
        types::MESSAGE_STORED,
        types::MESSAGE_ACKED,
        types::MESSAGE_SETTLED,
        types::MESSAGE_RELEASED,
        types::MESSAGE_DEAD,
        types::MESSAGE_WITHDRAWN,
        types::STEP_TAKEN,
        types::STEP_COMPLETED,
        types::STEP_FAILED,
        types::STEP_BLOCKED,
        types::STEP_LEASE_ENDED,
        types::BOARD_WRITTEN,
    ];

    pub fn apply_record(&mut self, record: &Record) {
        let text = |field: &str| record.data.get(field).and_then(Value::as_str).unwrap_or_default();
        let number =
            |field: &str| record.data.get(field).and_then(Value::as_u64).unwrap_or_default();
        let message = || format!("message {} {} {}", text("mailbox"), text("id"), number("epoch"));
        let step =
            || format!("step {} {} {}", text("task_id"), number("step_index"), number("epoch"));
        match record.kind.as_str() {
            types::MESSAGE_STORED if !text("task_id").is_empty() => {
                self.tasks.insert(text("id").to_owned(), text("task_id").to_owned());
            }
            types::MESSAGE_ACKED => {
                if let Some(task) = self.tasks.get(text("id")).cloned() {
                    self.begin(message(), &record.actor, &task, record.timestamp);
                }
            }
            types::MESSAGE_SETTLED
            | types::MESSAGE_RELEASED
            | types::MESSAGE_DEAD
            | types::MESSAGE_WITHDRAWN => self.end(&message(), record.timestamp),
            types::STEP_TAKEN => {
                self.begin(step(), &record.actor, text("task_id"), record.timestamp);
            }
            types::STEP_COMPLETED
            | types::STEP_FAILED
            | types::STEP_BLOCKED
            | types::STEP_LEASE_ENDED => self.end(&step(), record.timestamp),
            types::BOARD_WRITTEN => {
                let steps = record.data.get("steps").and_then(Value::as_array);
                for step in steps.into_iter().flatten() {
                    self.on_board(step, record.timestamp);
                }
            }
            _ => {}
        }
    }

    /// A task of the board has a new status, so its holder of before has it no more.
    fn on_board(&mut self, step: &Value, at: Timestamp) {
        let text = |field: &str| step[field].as_str().unwrap_or_default();
        let (what, task) = (text("what"), text("task"));
        if !what.starts_with("task.") || text("status").is_empty() {
            return;
        }
        // An iteration of the same coder continues with its claim.
        if what == "task.iteration" {
            return;
        }
        let place = format!("board {task}");
        self.end(&place, at);
        if text("status") == "CLAIMED" || what == "task.review_claimed" {
            self.begin(place, text("agent"), task, at);
        }
    }

    fn begin(&mut self, place: String, agent: &str, task: &str, from: Timestamp) {
        let held = HeldTask { agent: agent.to_owned(), task: task.to_owned(), from, until: None };
        self.by_agent.entry(agent.to_owned()).or_default().push(self.held.len());
        *self.changes.entry(agent.to_owned()).or_default() += 1;
        self.open.insert(place, self.held.len());
        self.held.push(held);
    }

    fn end(&mut self, place: &str, at: Timestamp) {
        if let Some(index) = self.open.remove(place) {
            self.held[index].until = Some(at);
            *self.changes.entry(self.held[index].agent.clone()).or_default() += 1;
        }
    }

    pub(super) fn changes(&self, agent: &str) -> u64 {
        self.changes.get(agent).copied().unwrap_or_default()
    }

    /// The task that an agent held at a time; of several, the one that it received last.
    pub fn task_at(&self, agent: &str, at: Timestamp) -> Option<&str> {
        let mut held = self.by_agent.get(agent)?.iter().rev().map(|index| &self.held[*index]);
        let is_held =
            |held: &&HeldTask| held.from <= at && held.until.is_none_or(|until| at < until);
        held.find(is_held).map(|held| held.task.as_str())
    }
}
