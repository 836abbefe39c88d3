//! How tasks end, once for each end: `task_complete` and `task_failed` of seed 002.
//!
//! ```text
//! evidence                        is an end                                         status
//! a report                        if a message of its task was open; or if it has   the report's
//!                                 other content than the last one, and another
//!                                 status, or a review had asked for a fix
//! a `task` message is settled     if its end is not in the log yet                  that of a report that
//!                                                                                   nothing has read yet, or success
//! a `task` message dies           always; the spool records it                      failed
//! ```
//!
//! `success` becomes `task_complete`; `failed` and `blocked` become `task_failed`. The command, the MCP
//! server, the watcher and `ensemble task summary` meet the same report or message. What was recorded
//! is in `.ensemble/ends/<shard>.ndjson`, where a task's last line counts, changed under the shard's lock:
//! so they record it once. The same line names the messages that a report has settled (`reported`). The record is
//! written before the line: a crash in between records an end twice, and never not at all. A report costs one
//! appended line or two, and ten thousand tasks no more files than one. A shard that has grown over its limit
//! keeps its newest tasks. A sweep forgets tasks that ended before any message that is still in a `done/`, except
//! those whose report still is in `reports/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::reviews::ReviewCounts;
use super::task_reports::{read_reports, report_files};
use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::durable::{Dir, Durability, make_directory};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::fields::{agent_among, agent_of_text};
use ensemble_core::message::{Digest, Envelope, MessageId, Name, Timestamp};
use ensemble_core::proto::calendar::Calendar;
use ensemble_core::spool::{Settings, Spool};
use ensemble_core::{Error, Result, allow_missing, allow_no_mailbox};
use ensemble_reports::contract::{Status, TaskReport};

/// How long the lock of a shard is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The number of files among which tasks are spread by their digest's first two digits, so that two
/// reports seldom wait for each other.
const SHARDS: u8 = 64;
const SHARD_SUFFIX: &str = ".ndjson";
/// A shard that is larger, in bytes, loses the lines that no longer count, and then its oldest tasks.
const SHARD_BYTES_MAX: usize = 256 * 1024;
/// The largest shard that is read, in bytes: one line more than [`SHARD_BYTES_MAX`].
const READ_BYTES_MAX: usize = 2 * SHARD_BYTES_MAX;
/// How many ended messages of a task are remembered.
const MESSAGES_MAX: usize = 100;
/// How many unfinished messages of an author are searched for the task of a report. Held messages come first.
const SEARCH_MAX: usize = 100;
const ACTOR: &str = "ensemble";

/// What the log reports on a task's ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TaskEndRecord {
    task_id: String,
    /// How it ended last; nothing if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<String>,
    /// How often the task had come back from review when it ended.
    #[serde(default)]
    cycles: u32,
    #[serde(default)]
    messages: Vec<String>,
    /// Those of them that a report has settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reported: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
}

/// Records how tasks end; see the table at the top of this page.
#[derive(Clone, Debug)]
pub struct TaskEnds {
    reports: PathBuf,
    dir: PathBuf,
    reviews: ReviewCounts,
}

impl TaskEnds {
    pub fn new(queue: &Path, state: &Path, reviews: ReviewCounts) -> Self {
        Self { reports: queue.join("reports"), dir: state.join("ends"), reviews }
    }

    /// A report was written. Returns whether it was an end. `content` is that of its file.
    pub fn reported(
        &self,
        spool: &Spool,
        report: &TaskReport,
        content: &[u8],
        recorder: &dyn Recorder,
    ) -> Result<bool> {
        let digest = Digest::of(content).short(16);
        let cycles = self.reviews.get(&report.task_id)?.cycles;
        let author = author_of(report, &spool.mailboxes()?);
        self.change(&report.task_id, |ended| {
            let open = open_messages(spool, (report.task_id.as_str(), author.as_ref()), ended)?;
            // A task that was handed out again may end with the same words.
            if ended.report.as_deref() == Some(digest.as_str()) && open.is_empty() {
                return Ok(None);
            }
            ended.report = Some(digest);
            let status = Some(report.status.as_str().to_owned());
            if open.is_empty() && ended.status == status && ended.cycles == cycles {
                return Ok(Some(false));
            }
            (ended.status, ended.cycles) = (status, cycles);
            let data = json!({ "by": "report", "worker_id": author });
            record(recorder, author.as_ref().map(Name::as_str), report, data);
            ended.messages.extend(open.iter().map(ToString::to_string));
            Ok(Some(true))
        })
    }

    /// Records that `holder` has settled a message. Returns whether that ended a task, which is so if the message has
    /// the type `task` and a `task_id`, and the end is not recorded yet.
    pub fn settled(
        &self,
        envelope: &Envelope,
        holder: &Name,
        recorder: &dyn Recorder,
    ) -> Result<bool> {
        let Some(task) = envelope.handed_over_task() else { return Ok(false) };
        let id = envelope.id.to_string();
        self.change(task, |ended| {
            if ended.messages.contains(&id) {
                return Ok(None);
            }
            let mut outcome = TaskReport::new(task, Status::Success);
            if let Some((report, digest)) = self.unread_report(envelope, task, ended)? {
                outcome.status = report.status;
                ended.report = Some(digest);
            }
            let attempt = envelope.attempt;
            let data = json!({ "by": "settle", "worker_id": holder, "id": id, "attempt": attempt });
            record(recorder, Some(holder.as_str()), &outcome, data);
            ended.status = Some(outcome.status.as_str().to_owned());
            ended.cycles = self.reviews.get(task)?.cycles;
            ended.messages.push(id);
            Ok(Some(true))
        })
    }

    /// The report of a task, if nothing has recorded it and it is not older than the message.
    fn unread_report(
        &self,
        envelope: &Envelope,
        task: &str,
        ended: &TaskEndRecord,
    ) -> Result<Option<(TaskReport, String)>> {
        let Some(dir) = allow_missing(Dir::open(&self.reports))? else { return Ok(None) };
        let reports = read_reports(&dir, task, &report_files(task))?.into_iter();
        let mut unread = reports.filter_map(|file| {
            let digest = Digest::of(&file.content).short(16);
            let is_old = envelope.is_later_than(timestamp_of(file.stat.modified_ns))
                || ended.report.as_deref() == Some(digest.as_str());
            (!is_old).then_some((file.report, digest))
        });
        Ok(unread.next())
    }

    /// Changes what is known of a task, under its shard's lock. The change says whether it was an end; `None` if
    /// all stays as it is.
    fn change(
        &self,
        task: &str,
        change: impl FnOnce(&mut TaskEndRecord) -> Result<Option<bool>>,
    ) -> Result<bool> {
        let document = self.lock_shard(task)?;
        let content = document.read()?.unwrap_or_default();
        let mut ended = last_line_of(task, &content).unwrap_or_else(|| TaskEndRecord {
            task_id: task.to_owned(),
            ..TaskEndRecord::default()
        });
        let Some(is_end) = change(&mut ended)? else { return Ok(false) };
        for ids in [&mut ended.messages, &mut ended.reported] {
            ids.drain(..ids.len().saturating_sub(MESSAGES_MAX));
        }
        ended.at = Some(SystemClock.wall());
        let line = json!(ended).to_string();
        if content.len() + line.len() < SHARD_BYTES_MAX {
            document.append_line(line.as_bytes())?;
        } else {
            document.replace(&compacted(&content, &line))?;
        }
        Ok(is_end)
    }

    /// What is known of a task.
    fn record_of(&self, task: &str) -> Result<TaskEndRecord> {
        let mut found = TaskEndRecord::default();
        self.change(task, |known| {
            found.clone_from(known);
            Ok(None)
        })?;
        Ok(found)
    }

    fn lock_shard(&self, task: &str) -> Result<LockedDocument> {
        make_directory(&self.dir)?;
        let digest = Digest::of(task.as_bytes()).short(2);
        let shard = u8::from_str_radix(&digest, 16).unwrap_or_default() % SHARDS;
        lock(&self.dir.join(format!("{shard:02}{SHARD_SUFFIX}")), LOCK_PATIENCE)
    }

    /// Removes tasks that ended longer ago than any mailbox keeps settled messages, and returns their number. A task
    /// whose report is still in `reports/` stays, because the next reader of the report would record it again. Ages
    /// are measured by the queue's calendar, so a jump of the wall clock removes nothing.
    ///
    /// A shard that another process changes is left to the next sweep.
    pub fn sweep(&self, spool: &Spool, calendar: &mut Calendar) -> Result<usize> {
        let Some(dir) = allow_missing(Dir::open(&self.dir))? else { return Ok(0) };
        let keep = retention(spool)?;
        let mut forgotten = 0;
        for shard in dir.names()?.iter().filter(|name| name.ends_with(SHARD_SUFFIX)) {
            let document = match lock(&self.dir.join(shard), Duration::ZERO) {
                Err(Error::Locked { .. }) => continue,
                other => other?,
            };
            let Some(stat) = dir.stat(shard)? else { continue };
            let content = document.read()?.unwrap_or_default();
            let changed = timestamp_of(stat.changed_ns);
            let mut is_kept = |ended: &TaskEndRecord| {
                calendar.age(ended.at.unwrap_or(changed)) <= keep || self.has_report(&ended.task_id)
            };
            let (kept, old): (Vec<_>, Vec<_>) =
                newest_lines(&content).partition(|(ended, _)| is_kept(ended));
            if !old.is_empty() {
                document.replace(&oldest_first(kept.iter().map(|(_, line)| *line)))?;
                forgotten += old.len();
            }
        }
        Ok(forgotten)
    }

    fn has_report(&self, task: &str) -> bool {
        report_files(task).iter().any(|file| self.reports.join(file).symlink_metadata().is_ok())
    }
}

fn timestamp_of(unix_ns: i128) -> Timestamp {
    Timestamp::from_unix_millis(i64::try_from(unix_ns / 1_000_000).unwrap_or(i64::MAX))
}

fn lock(shard: &Path, patience: Duration) -> Result<LockedDocument> {
    let (bytes_max, durability) = (READ_BYTES_MAX, Durability::Process);
    let options = DocumentOptions { bytes_max, durability, ..DocumentOptions::default() };
    LockedDocument::lock_with(shard, patience, options)
}

/// The longest time for which a mailbox keeps settled messages. One whose settings cannot be read has no say: nothing
/// is settled in it, either.
pub fn retention(spool: &Spool) -> Result<Duration> {
    let mailboxes = spool.mailboxes()?;
    let settings = mailboxes.iter().filter_map(|mailbox| spool.settings(mailbox).ok());
    let longest = settings.map(|settings| settings.done_days).max();
    let days = longest.unwrap_or_else(|| Settings::default().done_days);
    Ok(Duration::from_secs(days.saturating_mul(24 * 60 * 60)))
}

/// What a shard's last whole line of a task says. A killed writer may have left a part of a line.
fn last_line_of(task: &str, shard: &[u8]) -> Option<TaskEndRecord> {
    // `task_id` is the first member of every line.
    let start = format!("{{\"task_id\":{},", json!(task));
    lines_backwards(shard)
        .filter(|line| line.starts_with(start.as_bytes()))
        .find_map(|line| serde_json::from_slice(line).ok())
}

/// The newest line of each task and `line`, in half of the limit; the oldest tasks are left out.
fn compacted(shard: &[u8], line: &str) -> Vec<u8> {
    let task =
        serde_json::from_str(line).map(|ended: TaskEndRecord| ended.task_id).unwrap_or_default();
    let mut kept = vec![line.as_bytes()];
    let mut bytes = line.len();
    for (_, line) in newest_lines(shard).filter(|(ended, _)| ended.task_id != task) {
        bytes += line.len() + 1;
        if bytes > SHARD_BYTES_MAX / 2 {
            break;
        }
        kept.push(line);
    }
    oldest_first(kept.into_iter())
}

fn newest_lines(shard: &[u8]) -> impl Iterator<Item = (TaskEndRecord, &[u8])> {
    let mut seen = BTreeSet::new();
    lines_backwards(shard)
        .filter_map(|line| Some((serde_json::from_slice::<TaskEndRecord>(line).ok()?, line)))
        .filter(move |(ended, _)| seen.insert(ended.task_id.clone()))
}

/// The lines come newest first.
fn oldest_first<'a>(lines: impl DoubleEndedIterator<Item = &'a [u8]>) -> Vec<u8> {
    lines.rev().flat_map(|line| line.iter().chain(b"\n")).copied().collect()
}

fn lines_backwards(shard: &[u8]) -> impl Iterator<Item = &[u8]> {
    shard.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Messages of a task that wait for the author of its report or are held by it, and whose end is not recorded.
fn open_messages(
    spool: &Spool,
    (task, author): (&str, Option<&Name>),
    ended: &TaskEndRecord,
) -> Result<Vec<MessageId>> {
    let Some(author) = author else { return Ok(Vec::new()) };
    let found = allow_no_mailbox(spool.unfinished(author, SEARCH_MAX))?.unwrap_or_default();
    let is_open = |id: &MessageId| {
        !ended.messages.iter().any(|known| known == id.as_str())
            && spool.peek(author, id).is_ok_and(|it| it.handed_over_task() == Some(task))
    };
    Ok(found.into_iter().map(|found| found.id).filter(is_open).collect())
}

/// The agent that has written a report, in its mailbox's case. The seeds' workers are numbers: `1` is `worker-1`.
fn author_of(report: &TaskReport, mailboxes: &[Name]) -> Option<Name> {
    let text = report.author()?;
    agent_among(text, mailboxes).cloned().or_else(|| agent_of_text(text))
}

fn record(recorder: &dyn Recorder, actor: Option<&str>, report: &TaskReport, mut data: Value) {
    let kind = match report.status {
        Status::Success => types::TASK_COMPLETE,
        Status::Failed | Status::Blocked => types::TASK_FAILED,
    };
    data["task_id"] = report.task_id.as_str().into();
    data["status"] = report.status.as_str().into();
    if let Some(reason) = &report.failure_reason {
        data["reason"] = reason.as_str().into();
    }
    recorder.record(kind, actor.unwrap_or(ACTOR), data);
}

mod attempt;
mod reported;
#[cfg(test)]
mod tests;
