//! The part of a step that routes files.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_core::contract::{Kind, Reading, Report, read_as};
use ensemble_core::dropbox::Entry;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use serde_json::json;

use super::{Engine, ROUTE_RETRY};
use crate::answers::{self, ANSWERS_MAX, Loop, Permit};
use crate::boxes::{Complete, Look, Unfit};
use crate::judge::Advice;
use crate::rejection_notice::{self, author_in};
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
            self.changed.insert(envelope.to.clone());
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
        // Before their messages are settled: an end names the messages that were open.
        self.record_ends(&batch.routed);
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
            match self.judge.advice(file) {
                Some(advice) => {
                    let told =
                        self.permit_advice(&advice, file).then(|| advice.tell(file, &self.spool));
                    let told = told.flatten();
                    self.recorder.record("report.vague", ACTOR, json!({
                        "file": file.path(), "findings": advice.findings.len(), "rules": advice.rules(), "told": told,
                    }));
                    self.changed.extend(told);
                }
                None if file.box_name == "reports" => {
                    if let Some(author) = author_in(&file.fields) {
                        self.answers.is_fine(&author);
                    }
                }
                None => {}
            }
            if file.box_name == "reports" && file.file.ends_with("-review.yaml") {
                let counted = self.reviews.count(&file.file, &file.content, &*self.recorder);
                if let Err(error) = counted {
                    tracing::warn!(%error, "cannot count a review");
                }
            }
        }
    }

    fn permit_advice(&mut self, advice: &Advice, file: &Complete) -> bool {
        let Some(author) = &advice.author else { return false };
        let is_about_notice = answers::is_about_notice(file, author, &self.spool);
        let (permit, found) = self.answers.permit(author, is_about_notice);
        self.record_loop(author, &file.path(), found);
        permit == Permit::Author
    }

    fn record_loop(&self, author: &Name, path: &str, found: Option<Loop>) {
        if let Some(Loop { answers, why }) = found {
            self.recorder.record("loop_detected", ACTOR, json!({
                "worker_id": author, "file": path, "cycles": answers, "limit": ANSWERS_MAX, "why": why,
            }));
        }
    }

    /// Records how the tasks of delivered reports have ended.
    fn record_ends(&self, routed: &[Complete]) {
        for file in routed.iter().filter(|file| file.box_name == "reports") {
            if Kind::of(&file.file) != Some(Kind::Report) {
                continue;
            }
            let text = String::from_utf8_lossy(&file.content);
            if let Ok(Reading::Whole(report)) = read_as::<Report>(&text, file.file.as_ref()) {
                let ends = self.ends.reported(&self.spool, &report, &file.content, &*self.recorder);
                if let Err(error) = ends {
                    tracing::warn!(%error, "cannot record how a task ended");
                }
            }
        }
    }

    /// Who is told that a file is put aside. The loop bound may leave its author out.
    fn tell_aside(&mut self, unfit: &Unfit) -> Result<Vec<Name>> {
        let author = rejection_notice::author_of(unfit, &self.spool)?;
        let permit = author.as_ref().map_or(Permit::Recipients, |author| {
            let is_about_notice = answers::is_unfit_about_notice(unfit, author, &self.spool);
            let (permit, found) = self.answers.permit(author, is_about_notice);
            self.record_loop(author, &unfit.path(), found);
            permit
        });
        match permit {
            Permit::Author => rejection_notice::tell(unfit, author, &self.routes, &self.spool),
            Permit::Recipients => rejection_notice::tell(unfit, None, &self.routes, &self.spool),
            Permit::Silence => Ok(Vec::new()),
        }
    }

    /// Tells the author of a file, or its recipients, that it is unfit; then puts it aside.
    fn set_aside(&mut self, now: Monotonic, unfit: &Unfit) {
        let told = match self.tell_aside(unfit) {
            Ok(told) => told,
            // No message may be lost for want of room in a mailbox.
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
        self.changed.extend(told);
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
                    self.changed.insert(lease.mailbox);
                    entry.lease = Some(acked);
                } else {
                    // Said again: the message that was received before is still to be settled.
                    entry.lease = self.ledger.get(&entry.path).and_then(|last| last.lease.clone());
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
            match routing::settle_acked(&lease, &self.spool) {
                Ok(_) | Err(Error::LeaseLost { .. }) => {}
                Err(error) => tracing::warn!(%error, "cannot settle a reported task"),
            }
        }
    }
}
