//! The drop boxes: examining files, routing them, and making their messages safe.
//!
//! A file with a plan is published, its recipients are notified, and only then its version is
//! entered into the ledger (`routing` says why).

use ensemble_core::event_log::types;
use ensemble_project::BoxTable;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::dropbox::{
    BoxFinding, CompleteFile, Ledger, OpenBoxes, RejectedFile, Routes, UnfitFile,
};
use ensemble_core::durable::FileStat;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::watch::{Landing, WatchError};
use ensemble_core::{Error, Result};
use ensemble_team::driver::retention;
use serde_json::{Value, json};

use super::feedback::AuthorFeedback;
use super::mail::EngineMail;
use super::team::EngineTeam;
use crate::context::WatchContext;
use crate::rejection_notice::{COMPLETE_IT, CORRECT_IT};
use crate::routing::{self, RoutedBatch, RoutedFile, RoutingPlan};
use crate::watch_set::{WatchSet, WatchedPlace};
use crate::work_file::ACK_BOX;
use acks::UnfitAcks;
use effects::UndoneFile;
use ensemble_project::stranded::rename_help;

mod acks;
mod again;
mod effects;

/// How many files of a backlog one step examines, so that a step stays short.
const FILES_A_STEP: usize = 256;
/// How many files that wait are remembered, each with its error, so that they are recorded once.
const RECORDED_WAITING_MAX: usize = 1_000;
/// How soon a file is routed again whose recipient has no mailbox or no room.
const ROUTE_RETRY: Duration = Duration::from_secs(2);

pub(super) struct DropBoxes {
    context: Arc<WatchContext>,
    /// Missing while the queue's directory is.
    boxes: Option<OpenBoxes>,
    table: BoxTable,
    routes: Routes,
    ledger: Ledger,
    feedback: AuthorFeedback,
    /// Files that cannot be routed, each with its error, that were recorded. A path alone is that of a file whose author
    /// is still to be notified.
    recorded_waiting: HashSet<String>,
    undone: Vec<UndoneFile>,
    unfit_acks: UnfitAcks,
    routed: u64,
    rejected: u64,
    overwritten: u64,
}

impl DropBoxes {
    pub(super) fn new(context: &Arc<WatchContext>) -> Result<Self> {
        let project = &context.project;
        Ok(Self {
            context: Arc::clone(context),
            boxes: None,
            table: project.drop_boxes()?,
            routes: project.routes()?,
            ledger: Ledger::open(&project.state)?,
            feedback: AuthorFeedback::new(context),
            recorded_waiting: HashSet::new(),
            undone: Vec::new(),
            unfit_acks: UnfitAcks::default(),
            routed: 0,
            rejected: 0,
            overwritten: 0,
        })
    }

    pub(super) fn open(&mut self) -> Result<()> {
        let project = &self.context.project;
        self.boxes = Some(OpenBoxes::open(
            &project.queue,
            self.table.iter(),
            project.config.report_bytes_max(),
        )?);
        Ok(())
    }

    /// Closes the boxes. Returns whether they were open.
    pub(super) fn close(&mut self) -> bool {
        self.boxes.take().is_some()
    }

    pub(super) fn watch(&self, watch_set: &mut WatchSet) -> Result<(), WatchError> {
        let mut directories = self.boxes.iter().flat_map(OpenBoxes::directories);
        directories
            .try_for_each(|(dir, name)| watch_set.watch(dir, WatchedPlace::DropBox(name.clone())))
    }

    pub(super) fn refused(&self) -> Option<&str> {
        self.boxes.as_ref().and_then(OpenBoxes::refused)
    }

    /// Whether the open boxes are those at their paths, or, while none is open, the queue is missing.
    pub(super) fn are_current(&self, queue_exists: bool) -> bool {
        self.boxes.as_ref().map_or(!queue_exists, OpenBoxes::are_current)
    }

    pub(super) fn next_timeout(&self) -> Option<Monotonic> {
        let undone = self.undone.iter().map(|undone| undone.due).min();
        let boxes = self.boxes.as_ref();
        let examined = match boxes.is_some_and(OpenBoxes::has_listed) {
            true => Some(Monotonic::ZERO),
            false => boxes.and_then(OpenBoxes::next_due),
        };
        undone.into_iter().chain(examined).min()
    }

    pub(super) fn describe(&self, status: &mut Value) {
        status["routed"] = self.routed.into();
        status["rejected"] = self.rejected.into();
        status["overwritten"] = self.overwritten.into();
        status["boxes"] = json!(self.boxes.as_ref().map(OpenBoxes::summary));
    }

    /// Lists the boxes; [`DropBoxes::examine`] works the list off.
    pub(super) fn scan(&mut self, now: Monotonic) {
        self.reject_strange();
        let scanned = self.boxes.as_mut().map_or(Ok(()), |boxes| boxes.scan(now, &mut self.ledger));
        if let Err(error) = scanned {
            tracing::warn!(%error, "cannot list the drop boxes");
        }
    }

    /// Puts aside the files whose names are not UTF-8: no route matches them, and no message can name them.
    pub(super) fn reject_strange(&mut self) {
        for RejectedFile { path, kept_as, error } in
            self.boxes.as_mut().map(OpenBoxes::reject_strange).unwrap_or_default()
        {
            self.rejected += 1;
            let data = json!({ "file": path, "kept_as": kept_as, "error": error, "told": [] });
            self.context.record(types::FILE_REJECTED, data);
        }
    }

    /// Forgets files that are gone and were routed longer ago than any mailbox keeps settled messages. Their
    /// ids are free again then.
    pub(super) fn sweep(&mut self) {
        let mut calendar = self.context.spool.calendar();
        let swept =
            retention(&self.context.spool).and_then(|keep| self.ledger.sweep(&mut calendar, keep));
        self.context.spool.keep_calendar(calendar);
        if let Err(error) = swept {
            tracing::warn!(%error, "cannot sweep the ledger");
        }
    }

    pub(super) fn landed(
        &mut self,
        now: Monotonic,
        box_name: &str,
        file: &str,
        how: Landing,
    ) -> Option<BoxFinding> {
        self.boxes.as_mut()?.landed(now, box_name, file, how, &mut self.ledger)
    }

    /// Examines files that are due, and some of those that were listed. Listed files wait while there are events,
    /// because the events name most of them.
    pub(super) fn examine(&mut self, now: Monotonic, has_events: bool) -> Vec<BoxFinding> {
        let Some(boxes) = &mut self.boxes else { return Vec::new() };
        let mut findings = boxes.examine_due(now, FILES_A_STEP, &mut self.ledger);
        if boxes.may_examine_listed(now, has_events) {
            findings.extend(boxes.examine_listed(now, FILES_A_STEP, &mut self.ledger));
        }
        for error in boxes.take_failures() {
            tracing::warn!(%error, "cannot read a drop-box file or put it aside: it is tried again");
        }
        findings
    }

    /// Routes what is complete, notifies the agents, and only then makes it safe.
    pub(super) fn route(
        &mut self,
        now: Monotonic,
        findings: Vec<BoxFinding>,
        mail: &mut EngineMail,
        team: &mut EngineTeam,
    ) {
        let routed = self.plan(now, findings, mail);
        self.record_overwritten();
        let mut batch = routing::publish(routed, &self.context.spool);
        for envelope in &batch.stored {
            mail.changed([envelope.to.clone()]);
            team.roles.stored(now, envelope.kind.as_str());
        }
        mail.notify(now);
        self.record_batch(now, &mut batch, mail);
        let entries = self.take_effects(now, batch.routed, mail);
        if let Err(error) = routing::commit(batch.unsynced, entries, &mut self.ledger) {
            // Not in the ledger, so it is found again and published under the same ids.
            tracing::warn!(%error, "cannot make the routed messages safe yet");
        }
    }

    /// Decides on each file. Returns those that are to be published.
    fn plan(
        &mut self,
        now: Monotonic,
        findings: Vec<BoxFinding>,
        mail: &mut EngineMail,
    ) -> Vec<RoutedFile> {
        let mut routed = Vec::new();
        let mut planned: HashMap<String, FileStat> = HashMap::new();
        for finding in findings {
            let (file, again) = match finding {
                BoxFinding::Complete(file) => (file, None),
                BoxFinding::Unfit(unfit) => {
                    self.set_aside(now, &unfit, mail);
                    continue;
                }
                BoxFinding::Again(file, entry) => {
                    match self.counted_again(now, file, entry, mail) {
                        Some((file, entry)) => (file, Some(entry)),
                        None => continue,
                    }
                }
            };
            if self.is_undone(&file) {
                continue;
            }
            match planned.insert(file.path(), file.stat) {
                None => {}
                Some(stat) if stat == file.stat => {
                    if let Some(boxes) = &mut self.boxes {
                        boxes.note_overwritten(&file.box_name, &file.file);
                    }
                    continue;
                }
                Some(_) => {
                    // Its versions are counted in the ledger, so they are routed one after the other.
                    self.retry(now, &file, Duration::ZERO);
                    continue;
                }
            }
            let judge = self.feedback.judge();
            match routing::plan(file, again, &self.routes, &self.ledger, &self.context.spool, judge)
            {
                RoutingPlan::Publish(mut file) => {
                    self.feedback.name_task(&mut file);
                    routed.push(file);
                }
                RoutingPlan::Ack { file, entry, task } => {
                    self.acknowledge(now, file, entry, &task, mail);
                }
                RoutingPlan::Unmatched { file } => {
                    let why = "no route matches its name".to_owned();
                    self.unmatched(now, file, why, mail);
                }
                RoutingPlan::Impossible { file, error } => {
                    self.record_waiting(&file.path(), &error);
                    self.unmatched(now, file, error.to_string(), mail);
                }
                RoutingPlan::Broken { unfit, may_grow: true } => {
                    if let Some(boxes) = &mut self.boxes {
                        boxes.await_writer(now, &unfit);
                    }
                }
                RoutingPlan::Broken { unfit, may_grow: false } => {
                    self.set_aside(now, &unfit, mail);
                }
                RoutingPlan::Known => {}
            }
        }
        routed
    }

    fn record_batch(&mut self, now: Monotonic, batch: &mut RoutedBatch, mail: &mut EngineMail) {
        for envelope in &batch.stored {
            self.context.record(types::FILE_ROUTED, json!({
                "file": envelope.source, "mailbox": envelope.to, "id": envelope.id, "type": envelope.kind, "task_id": envelope.task_id,
            }));
        }
        for (file, error) in batch.failed.drain(..) {
            self.retry(now, &file, ROUTE_RETRY);
            let is_owed = self.recorded_waiting.remove(&file.path());
            let is_new = self.record_waiting(&file.path(), &error);
            if (is_new || is_owed) && matches!(error, Error::NoMailbox { .. }) {
                let help = rename_help(&file.box_name, &file.file);
                let unfit = file.into_unfit(error.to_string());
                self.notify_of_stranded(now, &unfit, &help, mail);
            }
        }
        self.routed += batch.routed.len() as u64;
    }

    /// Notifies the author of an unfit file, or its recipients; then puts it aside, or leaves it to its writer.
    fn set_aside(&mut self, now: Monotonic, unfit: &UnfitFile, mail: &mut EngineMail) {
        let remedy = if unfit.is_final { CORRECT_IT } else { COMPLETE_IT };
        let Some(notified) = self.reject(now, unfit, remedy) else { return };
        let boxes = self.boxes.as_mut();
        let Some(rejected) = boxes.and_then(|boxes| boxes.set_aside(now, unfit)) else { return };
        self.rejected += 1;
        self.context.record(
            types::FILE_REJECTED,
            json!({ "file": rejected.path, "kept_as": rejected.kept_as, "error": rejected.error, "told": notified }),
        );
        mail.changed(notified);
    }

    fn record_overwritten(&mut self) {
        for (file, versions) in self.boxes.iter_mut().flat_map(OpenBoxes::take_overwritten) {
            self.overwritten += versions;
            self.context
                .record(types::FILE_OVERWRITTEN, json!({ "file": file, "versions": versions }));
        }
    }

    /// Records once that a file leads nowhere, and notifies its author.
    fn unmatched(
        &mut self,
        now: Monotonic,
        file: CompleteFile,
        why: String,
        mail: &mut EngineMail,
    ) {
        let is_owed = self.recorded_waiting.remove(&file.path());
        if (self.note_unmatched(&file) || is_owed) && &*file.box_name != ACK_BOX {
            let help = rename_help(&file.box_name, &file.file);
            self.notify_of_stranded(now, &file.into_unfit(why), &help, mail);
        }
    }

    /// Notifies the author of a file that stays where it is, because it leads to no mailbox. Returns `false` if that is
    /// tried again.
    fn notify_of_stranded(
        &mut self,
        now: Monotonic,
        unfit: &UnfitFile,
        help: &str,
        mail: &mut EngineMail,
    ) -> bool {
        let Some(notified) = self.reject(now, unfit, help) else {
            self.recorded_waiting.insert(unfit.path());
            return false;
        };
        mail.changed(notified);
        true
    }

    /// Notifies the author of an unfit file, or its recipients, and returns them; `None` if it is tried again.
    fn reject(&mut self, now: Monotonic, unfit: &UnfitFile, help: &str) -> Option<Vec<Name>> {
        let rejected = self.feedback.reject(unfit, help, &self.routes);
        rejected.map_err(|error| self.wait(now, &unfit.box_name, &unfit.file, &error)).ok()
    }

    /// Records that no route matches a file. Whether that is new.
    fn note_unmatched(&mut self, file: &CompleteFile) -> bool {
        let boxes = self.boxes.as_mut();
        let is_new = boxes.is_some_and(|boxes| boxes.note_unmatched(&file.box_name, &file.file));
        if is_new {
            self.context.record(types::FILE_UNMATCHED, json!({ "file": file.path() }));
        }
        is_new
    }

    fn retry(&mut self, now: Monotonic, file: &CompleteFile, after: Duration) {
        if let Some(boxes) = &mut self.boxes {
            boxes.retry(now, &file.box_name, &file.file, after);
        }
    }

    fn wait(&mut self, now: Monotonic, box_name: &str, file: &str, error: &Error) {
        self.record_waiting(&format!("{box_name}/{file}"), error);
        if let Some(boxes) = &mut self.boxes {
            boxes.retry(now, box_name, file, ROUTE_RETRY);
        }
    }

    /// Records once that a file cannot be routed at the moment. Whether that is new. If it lasts, it is a need; that a
    /// mailbox is missing is one anyway.
    fn record_waiting(&mut self, path: &str, error: &Error) -> bool {
        if !matches!(error, Error::NoMailbox { .. }) {
            tracing::warn!(%path, %error, "cannot deliver a drop-box file, and tries again");
        }
        if self.recorded_waiting.len() >= RECORDED_WAITING_MAX {
            self.recorded_waiting.clear();
        }
        let is_new = self.recorded_waiting.insert(format!("{path}: {error}"));
        if is_new {
            self.context
                .record(types::FILE_WAITING, json!({ "file": path, "error": error.to_string() }));
        }
        is_new
    }
}
