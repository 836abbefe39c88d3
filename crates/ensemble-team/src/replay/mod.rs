//! Rebuilds a project's state from its event log alone, and compares it with the disk.
//!
//! ```text
//! records --read--> Replay (messages, requests, tasks, agents, steps)  --compare--> Differences
//!                                                     what lies on disk (Disk) --^
//! ```
//!
//! The log's content for each object, and the parts that can be compared:
//!
//! | of | rebuilt and compared | not in the log |
//! |---|---|---|
//! | a mailbox | its existence | settings |
//! | a message | its state, holder and epoch; the length of its lease, its extensions | its text, priority, delay |
//! | a request | its existence, its outcome, its decider | its text |
//! | a task on the blackboard | status, holder, lease epoch; the board's revision and digest | its texts |
//! | an agent on the blackboard | its registration and epoch | its activity |
//! | a step | status, epoch | its texts, attempt |
//!
//! A record is written after its event. So a killed process leaves its last event unrecorded.
//! Scripts may move files and write no records at all. A disk state *ahead* of the log by moves
//! that PROTOCOL.md allows is therefore [`DifferenceKind::Unrecorded`]. A state that no such moves
//! reach is a [`DifferenceKind::Contradiction`]. Examples are epochs that went back, a settled
//! message that waits again, a waiting message that is gone, two holders of one epoch.
//!
//! Records of several processes may be in another order than their events. The replay depends only
//! on epochs, not on that order. Record numbers show whether the log is complete ([`LogGap`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

mod board;
mod disk;
mod look;
mod messages;
mod requests;
mod steps;
#[cfg(test)]
mod tests;
mod whole;

pub use disk::{
    BOARD_PATH, DiskBoard, DiskMailbox, DiskMessage, DiskRequest, DiskState, DiskStep, DiskTask,
    MessagePlace, UnreadPlace,
};
pub use whole::LogGap;

use ensemble_core::Result;
use ensemble_core::event_log::{Record, Segment, read_all, types};
use ensemble_core::message::Timestamp;

/// Whether a difference has an allowed explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    /// The disk state follows from the log by unrecorded moves: by a script, or by a process killed
    /// before it could record.
    Unrecorded,
    /// The disk state does not follow: a file was removed, moved back or altered, or the log has an
    /// event that never happened.
    Contradiction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayDifference {
    pub kind: DifferenceKind,
    /// Kind of object: `mailbox`, `message`, `request`, `board`, `task`, `agent`, `step`.
    pub about: &'static str,
    pub id: String,
    /// Its actual or expected path, relative to the project.
    pub path: String,
    pub log: String,
    pub disk: String,
    /// The last record about the object, as `session seq type`; empty if there is none.
    pub record: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RecordPlace {
    session: String,
    seq: u64,
    kind: String,
}

impl RecordPlace {
    fn of(record: &Record) -> Self {
        let kind = record.kind.to_string();
        Self { session: record.session_id.clone(), seq: record.seq, kind }
    }

    fn text(&self) -> String {
        if self.kind.is_empty() {
            return String::new();
        }
        format!("{} {} {}", self.session, self.seq, self.kind)
    }
}

/// The state according to the log.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    mailboxes: BTreeMap<String, (bool, RecordPlace)>,
    messages: BTreeMap<(String, String), messages::MessageTrail>,
    requests: BTreeMap<String, requests::RequestTrail>,
    board: board::BoardTrail,
    steps: BTreeMap<(String, u64), steps::StepTrail>,
    gaps: Vec<LogGap>,
    records: u64,
}

impl Replay {
    /// Reads the log in `dir` from its first record to its last.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut all = read_all(dir)?;
        let mut replay = Self::from_records(all.by_ref());
        if let Some(failure) = all.into_failure() {
            return Err(failure);
        }
        let is_there = |segment: &Segment| dir.join(segment.to_string()).exists();
        replay.gaps.retain(|gap| !matches!(gap, LogGap::End { next } if is_there(next)));
        Ok(replay)
    }

    /// As [`Replay::read`], from records already read, in the order of the log.
    pub fn from_records(records: impl IntoIterator<Item = Record>) -> Self {
        let (mut replay, mut numbers) = (Self::default(), whole::RecordNumbers::default());
        for record in records {
            numbers.check_number(&record);
            replay.apply_record(&record);
            replay.records += 1;
        }
        replay.gaps = numbers.gaps();
        replay
    }

    /// The gaps in the log; empty if it is complete.
    pub fn gaps(&self) -> &[LogGap] {
        &self.gaps
    }

    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Number of objects in the log: messages, requests, tasks, steps.
    pub fn counts(&self) -> [(&'static str, usize); 4] {
        [
            ("messages", self.messages.len()),
            ("requests", self.requests.len()),
            ("tasks", self.board.tasks()),
            ("steps", self.steps.len()),
        ]
    }

    fn apply_record(&mut self, record: &Record) {
        let namespace = record.kind.as_str().split_once('.').map(|(namespace, _)| namespace);
        match namespace {
            Some("message") => self.message(record),
            Some("mailbox") => self.mailbox(record),
            Some("request") => {
                if let Some(id) = text(record, "request_id") {
                    self.requests.entry(id.to_owned()).or_default().apply_record(record);
                }
            }
            Some("board") => self.board.apply_record(record),
            Some("step") => {
                let index = record.data.get("step_index").and_then(Value::as_u64);
                if let (Some(task), Some(index)) = (text(record, "task_id"), index) {
                    self.steps.entry((task.to_owned(), index)).or_default().apply_record(record);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, record: &Record) {
        let (Some(mailbox), Some(id)) = (text(record, "mailbox"), text(record, "id")) else {
            return;
        };
        let key = (mailbox.to_owned(), id.to_owned());
        self.messages.entry(key).or_default().apply_record(record);
    }

    fn mailbox(&mut self, record: &Record) {
        let Some(name) = text(record, "mailbox") else { return };
        match record.kind.as_str() {
            types::MAILBOX_ADDED | types::MAILBOX_CONFIGURED => {
                self.mailboxes.insert(name.to_owned(), (true, RecordPlace::of(record)));
            }
            types::MAILBOX_REMOVED => {
                self.mailboxes.insert(name.to_owned(), (false, RecordPlace::of(record)));
                self.messages.retain(|(mailbox, _), _| mailbox != name);
            }
            _ => {}
        }
    }

    /// All differences between log and disk, contradictions first. `now` decides which settled
    /// messages may have been swept.
    pub fn compare(&self, disk: &DiskState, now: Timestamp) -> Vec<ReplayDifference> {
        let mut found = Vec::new();
        self.compare_mailboxes(disk, &mut found);
        messages::compare(&self.messages, disk, now, &mut found);
        requests::compare(&self.requests, disk, &mut found);
        self.board.compare(disk, &mut found);
        steps::compare(&self.steps, disk, &mut found);
        found.retain(|difference| !disk.is_unread(&difference.path));
        found.sort_by_key(|difference| std::cmp::Reverse(difference.kind));
        found
    }

    /// As [`Replay::compare`], for a project at work: `earlier` was read before `disk`, this replay
    /// after it. Objects with new records in between are in transition, and skipped.
    pub fn compare_moving(
        &self,
        earlier: &Self,
        disk: &DiskState,
        now: Timestamp,
    ) -> Vec<ReplayDifference> {
        let before: BTreeSet<_> = earlier
            .compare(disk, now)
            .into_iter()
            .map(|d| (d.about, d.id, d.path, d.log, d.record))
            .collect();
        let mut found = self.compare(disk, now);
        found.retain(|d| {
            let same = (d.about, d.id.clone(), d.path.clone(), d.log.clone(), d.record.clone());
            before.contains(&same)
        });
        found
    }

    fn compare_mailboxes(&self, disk: &DiskState, found: &mut Vec<ReplayDifference>) {
        for (name, (is_there, place)) in &self.mailboxes {
            let on_disk = disk.mailboxes.contains_key(name);
            let (kind, log, is) = match (is_there, on_disk) {
                (true, false) => (DifferenceKind::Contradiction, "there", "not there"),
                (false, true) => (DifferenceKind::Unrecorded, "removed", "there"),
                (true, true) | (false, false) => continue,
            };
            let path = format!("queue/mailbox/{name}");
            found.push(difference(kind, "mailbox", name, path, (log, is), place));
        }
    }
}

fn difference(
    kind: DifferenceKind,
    about: &'static str,
    id: &str,
    path: String,
    (log, disk): (impl Into<String>, impl Into<String>),
    place: &RecordPlace,
) -> ReplayDifference {
    let (log, disk) = (log.into(), disk.into());
    ReplayDifference { kind, about, id: id.to_owned(), path, log, disk, record: place.text() }
}

fn text<'r>(record: &'r Record, name: &str) -> Option<&'r str> {
    record.data.get(name)?.as_str()
}

fn number(record: &Record, name: &str) -> Option<u64> {
    record.data.get(name)?.as_u64()
}
