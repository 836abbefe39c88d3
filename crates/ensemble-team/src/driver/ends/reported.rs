//! Settles the messages of a reported task, and remembers that its report has ended them.
//!
//! ```text
//! under the lock of the task's shard in .ensemble/ends/:
//! 1 the messages are settled, wherever they lie     ensemble_core::broker::Broker::end_task
//! 2 their ids are noted with the task
//! ```
//!
//! An agent may settle a message after its report, or after another agent's. The note lets that settle succeed
//! without a second end. *A crash* before step 2 leaves settled messages without a note, whose settle is refused
//! as that of any settled message.

use std::time::Duration;

use super::{TaskEnds, timestamp_of};
use ensemble_core::Result;
use ensemble_core::broker::{Broker, EndedMessage, TaskEnd};
use ensemble_core::durable::FileStat;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{MessageId, Name, Timestamp};

/// How far the stamps of files lag behind the clock that stamps messages.
const STAMP_STEP_MAX: Duration = Duration::from_millis(100);

impl TaskEnds {
    /// When a report was written at the latest. A rename into the box is a change; the file may have been written long
    /// before.
    pub fn written_at(report: &FileStat) -> Timestamp {
        timestamp_of(report.changed_ns).plus(STAMP_STEP_MAX)
    }

    /// The task of a report: an agent may write its open task in another case, or with a `#` in front. One that has
    /// ended under exactly this name is meant.
    pub fn meant_task(&self, queue: &dyn Broker, task: &str, author: &Name) -> Result<String> {
        let meant = if self.has_ended(task)? { None } else { queue.meant_task(task, author)? };
        Ok(meant.unwrap_or_else(|| task.to_owned()))
    }

    /// Whether a message of exactly this task has ended.
    pub fn has_ended(&self, task: &str) -> Result<bool> {
        Ok(!self.record_of(task)?.messages.is_empty())
    }

    pub fn settle_reported(
        &self,
        queue: &dyn Broker,
        end: &TaskEnd<'_>,
        recorder: &dyn Recorder,
    ) -> Result<Vec<EndedMessage>> {
        let mut ended = Vec::new();
        // Under the lock, so that a process which finds the messages settled finds the note, too.
        self.change(end.task, |known| {
            ended = queue.end_task(end, recorder)?;
            let ids: Vec<String> = ended.iter().map(|message| message.id.to_string()).collect();
            add(&mut known.messages, &ids);
            add(&mut known.reported, &ids);
            Ok((!ids.is_empty()).then_some(false))
        })?;
        Ok(ended)
    }

    pub fn was_reported(&self, task: &str, id: &MessageId) -> Result<bool> {
        Ok(self.record_of(task)?.reported.iter().any(|reported| reported == id.as_str()))
    }
}

fn add(known: &mut Vec<String>, ids: &[String]) {
    let new: Vec<String> = ids.iter().filter(|id| !known.contains(id)).cloned().collect();
    known.extend(new);
}
