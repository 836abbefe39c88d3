//! Telling the conductor: `queue/reports/escalation-<task>.yaml` (seed 002, P0-3).
//!
//! The file is the message: the watcher's routes hand it to `conductor`, once for each version of
//! it. It is written elsewhere and renamed, so no reader sees half of it.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::ladder_file::LadderFile;
use crate::Result;
use crate::durable::{Dir, Durability, FileModes};
use crate::message::{Digest, MessageId, Name, Timestamp, yaml};
use crate::proto::ack::{EscalationReason, LadderEscalation, WorkerActivity};

const PREFIX: &str = "escalation-";
const SUFFIX: &str = ".yaml";
const ACTION: &str = "manual_intervention";
/// How much of a task's name is in the file's name, in bytes.
const TASK_BYTES_MAX: usize = 100;
/// The largest such file that is read, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// The content of an escalation of [`AckManager`](crate::AckManager), in its file and in [`Ended`](crate::Ended).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Notice {
    /// Id of the task.
    pub task_id: String,
    /// The worker that has not acked it.
    pub worker: Name,
    /// The last attempt at it.
    pub attempt: u32,
    /// The message of that attempt, in the worker's mailbox.
    pub message: MessageId,
    /// The highest phase that was reached, 0 to 3.
    pub phase: u8,
    /// Why: `unanswered`, `not_pressable`, `crashed` or `undeliverable`.
    pub reason: &'static str,
    /// The worker's activity, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_state: Option<&'static str>,
    /// Further evidence, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// For how long the ack was waited for, in seconds.
    pub waited_seconds: u64,
    /// The agent that waited.
    pub from: Name,
    /// When it was given up.
    pub escalated_at: Timestamp,
    /// The action for the conductor.
    pub action: &'static str,
}

impl Notice {
    pub(super) fn new(
        escalation: &LadderEscalation,
        worker: Name,
        message: MessageId,
        from: Name,
        escalated_at: Timestamp,
    ) -> Self {
        let (reason, worker_state) = match escalation.reason {
            EscalationReason::Unanswered => ("unanswered", None),
            EscalationReason::NotPressable(state) => {
                ("not_pressable", Some(WorkerActivity::word(state)))
            }
            EscalationReason::Crashed => ("crashed", Some(WorkerActivity::Crashed.word())),
            EscalationReason::Undeliverable => ("undeliverable", None),
        };
        Self {
            task_id: escalation.task.clone(),
            worker,
            attempt: escalation.attempt,
            message,
            phase: escalation.phase.number(),
            reason,
            worker_state,
            detail: None,
            waited_seconds: escalation.waited.as_secs(),
            from,
            escalated_at,
            action: ACTION,
        }
    }

    /// The notice about a task whose ladder is not running.
    pub(super) fn of_file(
        file: &LadderFile,
        reason: &'static str,
        escalated_at: Timestamp,
    ) -> Self {
        Self {
            task_id: file.task.clone(),
            worker: file.worker.clone(),
            attempt: file.attempt,
            message: file.message.clone(),
            phase: file.phase,
            reason,
            worker_state: None,
            detail: None,
            waited_seconds: 0,
            from: file.from.clone(),
            escalated_at,
            action: ACTION,
        }
    }

    /// Parses an escalation file; `None` if this program did not write it.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let fields: Map<String, Value> = yaml::parse(text, Path::new(PREFIX)).ok()?;
        let word = |field: &str| fields.get(field).and_then(Value::as_str);
        let number = |field: &str| fields.get(field).and_then(Value::as_u64);
        let reasons = ["unanswered", "not_pressable", "crashed", "undeliverable"];
        Some(Self {
            task_id: word("task_id")?.to_owned(),
            worker: Name::new(word("worker")?).ok()?,
            attempt: u32::try_from(number("attempt")?).ok()?,
            message: MessageId::new(word("message")?).ok()?,
            phase: u8::try_from(number("phase")?).ok()?,
            reason: reasons.into_iter().find(|reason| word("reason") == Some(*reason))?,
            worker_state: word("worker_state")
                .and_then(WorkerActivity::of_word)
                .map(WorkerActivity::word),
            detail: word("detail").map(str::to_owned),
            waited_seconds: number("waited_seconds")?,
            from: Name::new(word("from")?).ok()?,
            escalated_at: word("escalated_at")?.parse().ok()?,
            action: ACTION,
        })
    }

    /// Puts the file into the drop box of the queue at `root`; its path below the queue.
    pub(super) fn file(&self, root: &Path, durability: Durability) -> Result<String> {
        put(root, &self.task_id, &yaml::render(self), durability)
    }
}

/// Puts a task's escalation file with this text into the drop box; its path below the queue. The same text
/// twice is one version for the watcher.
pub(super) fn put(root: &Path, task: &str, text: &str, durability: Durability) -> Result<String> {
    let queue = Dir::open(root)?;
    let tmp = queue.ensure_child("tmp", FileModes::default())?;
    let reports = queue.ensure_child("reports", FileModes::default())?;
    let name = file_name(task);
    reports.replace(&name, text.as_bytes(), &tmp, FileModes::default(), durability)?;
    Ok(format!("reports/{name}"))
}

/// The name of a task's escalation file. Characters that have no place in a name become `_`, and a
/// digest keeps such tasks apart.
///
/// ```
/// use ensemble_core::driver::file_name;
/// assert_eq!(file_name("task-001"), "escalation-task-001.yaml");
/// assert!(file_name("../x").starts_with("escalation-.._x-"));
/// ```
pub fn file_name(task: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let kept: String =
        task.chars().map(|c| if harmless(c) { c } else { '_' }).take(TASK_BYTES_MAX).collect();
    let mark = match kept == task {
        true => String::new(),
        false => format!("-{}", Digest::of(task.as_bytes()).short(12)),
    };
    format!("{PREFIX}{kept}{mark}{SUFFIX}")
}

/// A file, as its path below the queue, and its fields or what is wrong with it.
pub type EscalationFile = (String, Result<Map<String, Value>>);

/// The escalation files of the queue at `root`, by name. Files that others have written are listed as well.
pub fn read_escalations(root: &Path) -> Result<Vec<EscalationFile>> {
    let reports = Dir::open(&root.join("reports"))?;
    let mut names = reports.names()?;
    names.retain(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
    names.sort_unstable();
    let read = |name: &str| -> Result<Map<String, Value>> {
        let content = reports.read(name, BYTES_MAX)?.unwrap_or_default();
        yaml::parse(&String::from_utf8_lossy(&content), &reports.path().join(name))
    };
    Ok(names
        .into_iter()
        .map(|name| {
            let fields = read(&name);
            (format!("reports/{name}"), fields)
        })
        .collect())
}
