//! `ack/` files, whose writers have read a task. One that fits no open task is tried again for some seconds, as it
//! may land before its task. Then its author is notified, unless the task has ended or was received by an earlier ack.

use std::collections::HashMap;

use ensemble_core::dropbox::{CompleteFile, LedgerEntry};
use ensemble_core::durable::FileStat;
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use serde_json::json;

use super::effects::UndoneFile;
use super::{DropBoxes, EngineMail, ROUTE_RETRY};
use crate::routing;
use crate::servers::AckFile;

/// How many acks wait; more are not tried again.
const UNFIT_MAX: usize = 1_000;
const WHY: &str = "no open task fits its name, or more than one agent has it";
const HELP: &str = "Name it after the task_id of the message, as in ack/TASK.ack.";

/// Acks by their paths, each with its version and when it was first read.
pub(super) type UnfitAcks = HashMap<String, (FileStat, Monotonic)>;

impl DropBoxes {
    pub(super) fn acknowledge(
        &mut self,
        now: Monotonic,
        file: CompleteFile,
        mut entry: LedgerEntry,
        task: &str,
        mail: &mut EngineMail,
    ) {
        if !mail.remote.is_alone() {
            // Its task may wait for the servers, too, and the ack waits for it only for a moment.
            if !mail.remote.are_reached() {
                return self.retry(now, &file, ROUTE_RETRY);
            }
            let (task, read) = (task.to_owned(), file.clone());
            let ack = AckFile { task, file: read, since: now, is_recorded: false };
            mail.remote.share_observation(|sight| sight.acks.push(ack));
            let due = now + ROUTE_RETRY;
            return self.remember_undone(UndoneFile { due, file, entry, is_left: true });
        }
        let acked = match routing::acknowledge(&file.content, task, &*self.context.spool) {
            Ok(acked) => acked,
            Err(error) => {
                return self.wait(now, &file.box_name, &file.file, &error);
            }
        };
        let waiting = self.unfit_acks.remove(&file.path()).filter(|(stat, _)| *stat == file.stat);
        let lease = acked.as_ref().map(ToString::to_string);
        if lease.is_some() || waiting.is_none() {
            self.context.record(types::ACK_RECEIVED, json!({ "task_id": task, "lease": lease }));
        }
        if let Some(lease) = acked {
            mail.changed([lease.mailbox.clone()]);
            entry.lease = Some(Box::new(lease));
            return self.enter_ack(entry);
        }
        // Repeated: the message that was received before is still to be settled.
        entry.lease = self.ledger.get(&entry.path).and_then(|last| last.lease);
        if entry.lease.is_none() && !self.feedback.has_ended(task) {
            let since = waiting.map_or(now, |(_, since)| since);
            let ack = AckFile { task: task.to_owned(), file, since, is_recorded: true };
            if ack.may_wait(now) && self.unfit_acks.len() < UNFIT_MAX {
                self.unfit_acks.insert(ack.file.path(), (ack.file.stat, since));
                return self.retry(now, &ack.file, ROUTE_RETRY);
            }
            let path = ack.file.path();
            if !self.notify_of_unfit_ack(now, ack, mail) {
                self.unfit_acks.extend(waiting.map(|waiting| (path, waiting)));
                return;
            }
        }
        self.enter_ack(entry);
    }

    /// Notifies the author of an ack that has waited long enough. Returns `false` if that is tried again.
    pub(in crate::engine) fn notify_of_unfit_ack(
        &mut self,
        now: Monotonic,
        ack: AckFile,
        mail: &mut EngineMail,
    ) -> bool {
        self.feedback.has_ended(&ack.task)
            || self.notify_of_stranded(now, &ack.file.into_unfit(WHY.to_owned()), HELP, mail)
    }

    fn enter_ack(&mut self, entry: LedgerEntry) {
        let entered = self.ledger.append(vec![entry]);
        let _ = entered.inspect_err(|error| tracing::warn!(%error, "cannot enter an ack"));
    }
}
