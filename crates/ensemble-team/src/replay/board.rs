//! The blackboard: its revision and digest, the tasks' states, holders and epochs, the
//! registrations.
//!
//! A record lists at most 16 steps of a write. After a longer write, or after a person edited the
//! board, the replayed tasks and agents may be out of date. The replay then discards them and
//! learns them again.

use std::collections::BTreeMap;

use serde_json::Value;

use super::disk::BOARD_PATH;
use super::{
    DifferenceKind, DiskBoard, DiskState, RecordPlace, ReplayDifference, difference, number, text,
};
use ensemble_core::event_log::{Record, types};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BoardTrail {
    revision: u64,
    sha256: String,
    tasks: BTreeMap<String, (LoggedTask, RecordPlace)>,
    /// Epoch of each agent's registration; `None` for unregistered agents.
    agents: BTreeMap<String, (Option<u64>, RecordPlace)>,
    last: RecordPlace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LoggedTask {
    status: String,
    /// Holder and lease epoch, where a record gave them with the status.
    held: Option<(String, u64)>,
}

impl BoardTrail {
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn apply_record(&mut self, record: &Record) {
        let Some(revision) = number(record, "revision") else { return };
        // A write may be recorded twice, the second time by the process that completed a killed
        // writer's work.
        if revision < self.revision {
            return;
        }
        self.revision = revision;
        self.sha256 = text(record, "sha256").unwrap_or_default().to_owned();
        self.last = RecordPlace::of(record);
        let steps = record.data.get("steps").and_then(Value::as_array);
        let told = steps.map_or(0, Vec::len);
        let all = number(record, "count").and_then(|count| usize::try_from(count).ok());
        if record.kind.as_str() == types::BOARD_EDITED || all != Some(told) {
            self.tasks.clear();
            self.agents.clear();
        }
        for step in steps.into_iter().flatten() {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Value) {
        let text = |name: &str| step.get(name).and_then(Value::as_str).map(str::to_owned);
        let epoch = step.get("epoch").and_then(Value::as_u64);
        match (text("what").as_deref(), text("task"), text("status"), text("agent")) {
            (Some("agent.registered"), _, _, Some(agent)) => {
                self.agents.insert(agent, (epoch, self.last.clone()));
            }
            (Some("agent.unregistered"), _, _, Some(agent)) => {
                self.agents.insert(agent, (None, self.last.clone()));
            }
            (Some(what), Some(task), Some(status), agent) if what.starts_with("task.") => {
                let held = agent.zip(epoch).filter(|_| status == "CLAIMED");
                self.tasks.insert(task, (LoggedTask { status, held }, self.last.clone()));
            }
            _ => {}
        }
    }

    pub(super) fn compare(&self, disk: &DiskState, found: &mut Vec<ReplayDifference>) {
        use DifferenceKind::{Contradiction, Unrecorded};
        let Some(board) = &disk.board else {
            if !self.sha256.is_empty() {
                let sides = (format!("revision {}", self.revision), "not there".to_owned());
                let path = BOARD_PATH.to_owned();
                found.push(difference(Contradiction, "board", "board", path, sides, &self.last));
            }
            return;
        };
        let mut more = Vec::new();
        self.compare_tasks(board, &mut more);
        self.compare_agents(board, &mut more);
        let is_same = board.sha256 == self.sha256;
        // A board that was never written through Ensemble has no record.
        if !is_same && !self.sha256.is_empty() {
            let kind = if board.revision < self.revision { Contradiction } else { Unrecorded };
            let words = |revision, sha256: &str| {
                format!("revision {revision}, sha256 {}", sha256.get(..12).unwrap_or(sha256))
            };
            let sides = (words(self.revision, &self.sha256), words(board.revision, &board.sha256));
            let path = board.path.clone();
            found.push(difference(kind, "board", "board", path, sides, &self.last));
        }
        found.append(&mut more);
    }

    /// A newer board may differ. One of the same revision must match the record.
    fn kind(&self, board: &DiskBoard) -> DifferenceKind {
        match board.revision > self.revision {
            true => DifferenceKind::Unrecorded,
            false => DifferenceKind::Contradiction,
        }
    }

    fn compare_tasks(&self, board: &DiskBoard, found: &mut Vec<ReplayDifference>) {
        for (id, (task, last)) in &self.tasks {
            let path = format!("{}: tasks.{id}", board.path);
            let log = match &task.held {
                Some((holder, epoch)) => format!("{} by {holder}, epoch {epoch}", task.status),
                None => task.status.clone(),
            };
            let is = match board.tasks.get(id) {
                None => "not there".to_owned(),
                Some(now) => {
                    let holder = now.holder.as_deref().unwrap_or("no agent");
                    let held =
                        format!("{} by {holder}, epoch {}", now.status, now.epoch.unwrap_or(0));
                    if task.held.is_some() { held } else { now.status.clone() }
                }
            };
            if is != log {
                found.push(difference(self.kind(board), "task", id, path, (log, is), last));
            }
        }
    }

    fn compare_agents(&self, board: &DiskBoard, found: &mut Vec<ReplayDifference>) {
        let words = |epoch: Option<u64>| {
            epoch.map_or_else(|| "not registered".to_owned(), |epoch| format!("epoch {epoch}"))
        };
        for (id, (epoch, last)) in &self.agents {
            let now = board.agents.get(id).copied();
            if now != *epoch {
                let path = format!("{}: agents.{id}", board.path);
                let sides = (words(*epoch), words(now));
                found.push(difference(self.kind(board), "agent", id, path, sides, last));
            }
        }
    }
}
