//! The part of a step that routes files.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::dropbox::Entry;
use ensemble_core::env::Monotonic;
use serde_json::json;

use super::{Engine, ROUTE_RETRY};
use crate::aside;
use crate::boxes::{Complete, Look, Unfit};
use crate::routing::{self, Plan};
use crate::run::ACTOR;

impl Engine {
    /// Routes what is complete, tells the agents, and only then makes it safe.
    pub(super) fn route(&mut self, now: Monotonic, look: Look) {
        for unfit in look.unfit {
            self.set_aside(now, &unfit);
        }
        let mut plans = Vec::new();
        let mut planned = HashSet::new();
        for file in look.complete {
            if !planned.insert(file.path()) {
                // Its versions are counted in the ledger, so they are routed one after the other.
                self.retry(now, &file, Duration::ZERO);
                continue;
            }
            match routing::plan(file, &self.routes, &self.ledger, &self.spool, &self.judge) {
                Plan::Publish { file, entry, envelopes } => plans.push((file, entry, envelopes)),
                Plan::Ack { file, entry, task } => self.acknowledge(now, &file, entry, &task),
                Plan::Unmatched { file } => self.unmatched(&file),
                Plan::Impossible { file, error } => {
                    self.unmatched(&file);
                    self.trouble(&file.path(), &error);
                }
                Plan::Broken { unfit } => self.set_aside(now, &unfit),
                Plan::Known => {}
            }
        }
        let batch = routing::publish(plans, &self.spool);
        for envelope in &batch.stored {
            self.rung.insert(envelope.to.clone());
            self.roles.stored(now, envelope.kind.as_str());
        }
        self.tell(now);
        for envelope in &batch.stored {
            self.recorder.record("file.routed", ACTOR, json!({
                "file": envelope.source, "mailbox": envelope.to, "id": envelope.id, "type": envelope.kind, "task_id": envelope.task_id,
            }));
        }
        for (file, error) in &batch.failed {
            self.trouble(&file.path(), error);
            self.retry(now, file, ROUTE_RETRY);
        }
        self.routed += batch.routed.len() as u64;
        self.settle_reported(&batch.routed);
        self.advise(&batch.routed);
        if let Err(error) = routing::commit(batch, &mut self.ledger) {
            // Not in the ledger, so it is found again and published under the same ids.
            tracing::warn!(%error, "what was routed is not safe yet");
        }
    }

    /// Tells the authors of delivered reports what is vague in them, and counts reviews.
    fn advise(&mut self, routed: &[Complete]) {
        for file in routed {
            if let Some(advice) = self.judge.advice(file) {
                let told = advice.tell(file, &self.spool);
                self.recorder.record("report.vague", ACTOR, json!({
                    "file": file.path(), "findings": advice.findings.len(), "rules": advice.rules(), "told": told,
                }));
                self.rung.extend(told);
            }
            if file.box_name == "reports" && file.file.ends_with("-review.yaml") {
                let counted = self.reviews.count(&file.file, &file.content, &*self.recorder);
                if let Err(error) = counted {
                    tracing::warn!(%error, "cannot count a review");
                }
            }
        }
    }

    /// Tells whoever wrote a file, or waits for it, that it is unfit; then puts it aside.
    fn set_aside(&mut self, now: Monotonic, unfit: &Unfit) {
        let told = match aside::tell(unfit, &self.routes, &self.spool) {
            Ok(told) => told,
            // Nobody's mail may be lost for want of room in a mailbox.
            Err(error) => {
                self.trouble(&unfit.path(), &error);
                if let Some(boxes) = &mut self.boxes {
                    boxes.retry(now, unfit.box_name, &unfit.file, ROUTE_RETRY);
                }
                return;
            }
        };
        let Some(rejected) = self.boxes.as_mut().and_then(|b| b.set_aside(now, unfit)) else {
            return;
        };
        self.rejected += 1;
        self.recorder.record(
            "file.rejected",
            ACTOR,
            json!({ "file": rejected.path, "kept_as": rejected.kept_as, "error": rejected.error, "told": told }),
        );
        self.rung.extend(told);
    }

    fn unmatched(&mut self, file: &Complete) {
        let is_new =
            self.boxes.as_mut().is_some_and(|b| b.note_unmatched(file.box_name, &file.file));
        if is_new {
            self.recorder.record("file.unmatched", ACTOR, json!({ "file": file.path() }));
        }
    }

    fn retry(&mut self, now: Monotonic, file: &Complete, after: Duration) {
        if let Some(boxes) = &mut self.boxes {
            boxes.retry(now, file.box_name, &file.file, after);
        }
    }

    /// Tells once of a file that cannot be routed at the moment.
    fn trouble(&mut self, path: &str, error: &Error) {
        if self.troubled.insert(format!("{path}: {error}")) {
            self.recorder.record(
                "file.waiting",
                ACTOR,
                json!({ "file": path, "error": error.to_string() }),
            );
        }
    }

    /// An `ack/` file: its writer has read the task.
    fn acknowledge(&mut self, now: Monotonic, file: &Complete, mut entry: Entry, task: &str) {
        match routing::acknowledge(&file.content, task, &self.spool) {
            Ok(acked) => {
                let lease = acked.as_ref().map(|(lease, _)| lease.to_string());
                self.recorder.record(
                    "ack.received",
                    ACTOR,
                    json!({ "task_id": task, "lease": lease }),
                );
                if let Some((lease, acked)) = acked {
                    self.rung.insert(lease.mailbox);
                    entry.lease = Some(acked);
                }
                if let Err(error) = self.ledger.append(vec![entry]) {
                    tracing::warn!(%error, "cannot enter an ack into the ledger");
                }
            }
            Err(error) => {
                self.trouble(&file.path(), &error);
                self.retry(now, file, ROUTE_RETRY);
            }
        }
    }

    /// A report settles the task that its author has read by an `ack/` file; who has received
    /// the message by its rename settles it by its rename.
    fn settle_reported(&self, routed: &[Complete]) {
        for file in routed.iter().filter(|f| f.box_name == "reports") {
            let Some(task) = file.file.strip_suffix("-completed.yaml") else { continue };
            let Some(lease) = routing::acked_lease(task, &self.ledger) else { continue };
            match self.spool.settle(&lease) {
                Ok(()) | Err(Error::LeaseLost { .. }) => {}
                Err(error) => tracing::warn!(%error, "cannot settle a reported task"),
            }
        }
    }
}
