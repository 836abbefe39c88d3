//! The Conductor as a role of a program (seed 002): sends instructions and waits for their summaries.
//!
//! ```text
//! Conductor::instruct ──dispatch.instruction──> mailbox of Dispatch ──> Dispatcher::collect
//! Conductor::await_summary <──reports/completion-summary.yaml── Batches::tell
//!                          <──reports/escalation-<task>.yaml── ladders, reviews, people
//! ```
//!
//! It waits for an event, polls every 30 seconds in case one is lost, and gives up after 30 minutes. If it crashes,
//! nothing is lost: the same instruction is stored only once, and it can wait for the same batch again. If the
//! Dispatcher dies after it has decided on a summary, the waiting Conductor publishes that. Silence: after a timeout
//! it returns that and changes nothing, so the summary can still be published later.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;

use super::batches::{Batches, batch_of};
use super::collect::{TaskBatch, changed};
use crate::proto::patience::{CONDUCTOR_PATIENCE, DISPATCH_POLL_INTERVAL};
use ensemble_core::broker::Broker;
use ensemble_core::durable::{Dir, FileStat};
use ensemble_core::env::Clock;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{Envelope, KnownSender, MessageId, Name};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result, allow_missing, allow_no_mailbox};
use ensemble_reports::contract::{self, EscalationReport, Instruction, Summary};

/// The mailbox of the Conductor, and the type of a summary in it.
const CONDUCTOR: &str = "conductor";
const SUMMARY_TYPE: &str = "report.summary";
const UNREAD_MAX: usize = 1000;

pub const INSTRUCTION_TYPE: &str = "dispatch.instruction";

pub struct Conductor<'a> {
    /// The queue's directory, where reports are.
    pub spool: &'a Spool,
    /// Where the mailboxes are: that directory, or servers.
    pub queue: &'a dyn Broker,
    pub batches: Batches,
    pub clock: &'a dyn Clock,
    pub recorder: &'a dyn Recorder,
    pub actor: KnownSender,
}

impl Conductor<'_> {
    /// Sends an instruction to Dispatch, once however often it is called, and names its batch.
    pub fn instruct(&self, instruction: &Instruction) -> Result<TaskBatch> {
        let text = contract::write(instruction);
        let batch = TaskBatch::of(instruction)?;
        let envelope = Envelope::new(Name::new("dispatch")?, text)
            .with_id(MessageId::new(batch.id.as_str())?)
            .with_kind(Name::new(INSTRUCTION_TYPE)?);
        self.queue.publish(&self.actor.sign(envelope))?;
        Ok(batch)
    }

    /// Waits for the summary of a batch, for at most `patience` (by default the seed's 30 minutes); `None` after
    /// that. Calls `hear` with each escalation of one of the batch's tasks, and with each later version of it. `rest`
    /// must sleep for at most the given time, and return early if a file lands in `reports/`; its error ends the wait.
    ///
    /// # Errors
    /// The batch's files cannot be read. A file that is locked at the moment is tried again.
    pub fn await_summary(
        &self,
        batch: &TaskBatch,
        patience: Option<Duration>,
        hear: &mut dyn FnMut(&EscalationReport),
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Option<Summary>> {
        let until = self.clock.monotonic() + patience.unwrap_or(CONDUCTOR_PATIENCE);
        let mut heard = HashMap::new();
        loop {
            self.escalations(batch, &mut heard, hear)?;
            match self.batches.resume(&batch.id, &self.actor.name, self.recorder) {
                Ok(Some(summary)) => {
                    // Report tasks that were given up between the last look and the end, too.
                    self.escalations(batch, &mut heard, hear)?;
                    return Ok(Some(summary));
                }
                Ok(None) => {}
                // Another Dispatcher writes, or the summary before is not delivered yet.
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error),
            }
            match self.mailed_summary(batch) {
                Ok(None) => {}
                Err(error) if error.is_transient() => {}
                mailed => return mailed,
            }
            let now = self.clock.monotonic();
            if now >= until {
                let role = json!({ "role": "conductor" });
                self.recorder.record(types::ROLE_PATIENCE_ENDED, self.actor.name.as_str(), role);
                return Ok(None);
            }
            rest(until.since(now).min(DISPATCH_POLL_INTERVAL))?;
        }
    }

    /// The batch's summary in the Conductor's mailbox, to which another host's watcher may have sent it. It
    /// stays there.
    fn mailed_summary(&self, batch: &TaskBatch) -> Result<Option<Summary>> {
        let (mailbox, kind) = (Name::new(CONDUCTOR)?, Name::new(SUMMARY_TYPE)?);
        let unread = allow_no_mailbox(self.queue.unfinished(&mailbox, UNREAD_MAX))?;
        for found in unread.unwrap_or_default() {
            let envelope = match self.queue.peek(&mailbox, &found.id) {
                Ok(envelope) if envelope.kind == kind => envelope,
                Err(error) if error.is_server_away() => return Err(error),
                // One that cannot be read hides no summary behind it.
                Ok(_) | Err(_) => continue,
            };
            if let Some(summary) =
                contract::read_whole::<Summary>(&envelope.body, found.id.as_str().as_ref())
                && summary.batch_id.as_deref() == Some(batch.id.as_str())
            {
                return Ok(Some(summary));
            }
        }
        Ok(None)
    }

    fn escalations(
        &self,
        batch: &TaskBatch,
        heard: &mut HashMap<String, FileStat>,
        hear: &mut dyn FnMut(&EscalationReport),
    ) -> Result<()> {
        let Some(reports) = allow_missing(Dir::open(&self.spool.root().join("reports")))? else {
            return Ok(());
        };
        for task in &batch.tasks {
            let file = ensemble_core::driver::file_name(task);
            if let Some(text) = changed(&reports, &file, heard)?
                // The watcher sets aside what cannot be read.
                && let Some(escalation) = contract::read_whole(&text, file.as_ref())
            {
                hear(&escalation);
            }
        }
        Ok(())
    }
}

impl TaskBatch {
    /// The tasks of an instruction, under the name that follows from them and its `created_at`. The
    /// same instruction is the same batch, for its sender and for its collector.
    pub fn of(instruction: &Instruction) -> Result<Self> {
        let tasks: Vec<String> = instruction.tasks.iter().map(|task| task.id.clone()).collect();
        let marks = tasks.iter().map(String::as_str).chain(instruction.created_at.as_deref());
        let id = Name::new(batch_of(marks)).map_err(Error::from)?;
        Ok(Self { id, tasks })
    }
}
