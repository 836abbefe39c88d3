//! What the watcher answers to the authors of drop-box files, and what it records of reports.
//!
//! `judge` finds what is wrong with a file, and `answers` bounds how often an author is answered.
//! `rejection_notice` writes to the author of a file that is put aside.

use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::broker::TaskEnd;
use ensemble_core::dropbox::Routes;
use ensemble_core::event_log::types;
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::contract::{Kind, Reading, Report, read_as};
use ensemble_team::driver::{Reviews, TaskEnds};
use serde_json::json;

use super::Context;
use super::remote::Remote;
use crate::answers::{self, ANSWERS_MAX, Answers, Loop, Permit};
use crate::boxes::{Complete, Unfit};
use crate::judge::{Advice, Judge};
use crate::project::Project;
use crate::rejection_notice::{self, author_in};
use crate::servers::Reported;

/// How far the stamps of files lag behind the clock that stamps messages.
const STAMP_STEP_MAX: Duration = Duration::from_millis(100);

/// The judge of files, and the memory of what was answered and recorded.
pub(super) struct Feedback {
    judge: Judge,
    answers: Answers,
    reviews: Reviews,
    ends: TaskEnds,
}

impl Feedback {
    pub(super) fn new(project: &Project) -> Self {
        Self {
            judge: Judge::new(project),
            answers: Answers::default(),
            reviews: project.reviews(),
            ends: project.task_ends(),
        }
    }

    pub(super) const fn judge(&self) -> &Judge {
        &self.judge
    }

    /// Notifies the author of a file that is to be put aside, or the recipients of its route. Returns
    /// the notified agents.
    ///
    /// # Errors
    /// The notice could not be stored. The file is not put aside before it is.
    pub(super) fn reject(
        &mut self,
        unfit: &Unfit,
        routes: &Routes,
        context: &Context,
    ) -> Result<Vec<Name>> {
        let spool = &context.spool;
        let author = rejection_notice::author_of(unfit, spool)?;
        let permit = match &author {
            Some(author) => {
                let is_about_notice = answers::is_unfit_about_notice(unfit, author, spool);
                self.permit(author, is_about_notice, &unfit.path(), context)
            }
            None => Permit::Recipients,
        };
        match permit {
            Permit::Author => rejection_notice::send(unfit, author, routes, spool),
            Permit::Recipients => rejection_notice::send(unfit, None, routes, spool),
            Permit::None => Ok(Vec::new()),
        }
    }

    /// Advises the authors of delivered files, and counts reviews. Returns the advised agents.
    pub(super) fn give(&mut self, routed: &[Complete], context: &Context) -> Vec<Name> {
        let mut advised = Vec::new();
        for file in routed {
            match self.judge.advice(file) {
                Some(advice) => advised.extend(self.advise(&advice, file, context)),
                None if file.is_report() => {
                    if let Some(author) = author_in(&file.fields) {
                        self.answers.is_fine(&author);
                    }
                }
                None => {}
            }
            if file.is_report() && file.contract() == Some(Kind::Review) {
                let counted = self.reviews.count(&file.file, &file.content, &*context.recorder);
                if let Err(error) = counted {
                    tracing::warn!(%error, "cannot count a review");
                }
            }
        }
        advised
    }

    /// Records what is vague in a report, and sends it to its author if that is permitted.
    fn advise(&mut self, advice: &Advice, file: &Complete, context: &Context) -> Option<Name> {
        let spool = &context.spool;
        let permit = advice.author.as_ref().map_or(Permit::None, |author| {
            let is_about_notice = answers::is_about_notice(file, author, spool);
            self.permit(author, is_about_notice, &file.path(), context)
        });
        let advised = (permit == Permit::Author).then(|| advice.send(file, spool)).flatten();
        context.record(types::REPORT_VAGUE, json!({
            "file": file.path(), "findings": advice.findings.len(), "rules": advice.rules(), "told": advised,
        }));
        advised
    }

    /// Whether a file is answered. Records a loop that was just found.
    fn permit(
        &mut self,
        author: &Name,
        is_about_notice: bool,
        path: &str,
        context: &Context,
    ) -> Permit {
        let (permit, found) = self.answers.permit(author, is_about_notice);
        if let Some(Loop { answers, why }) = found {
            context.record(types::LOOP_DETECTED, json!({
                "worker_id": author, "file": path, "cycles": answers, "limit": ANSWERS_MAX, "why": why,
            }));
        }
        permit
    }

    /// Records how the tasks of delivered reports have ended, and settles their messages for the authors.
    /// Returns the mailboxes of those messages.
    pub(super) fn end_tasks(
        &self,
        routed: &[Complete],
        context: &Context,
        remote: &Remote,
    ) -> Vec<Name> {
        let mut changed = Vec::new();
        for file in routed.iter().filter(|file| file.is_report()) {
            if file.contract() != Some(Kind::Report) {
                continue;
            }
            let text = String::from_utf8_lossy(&file.content);
            if let Ok(Reading::Whole(report)) = read_as::<Report>(&text, file.file.as_ref()) {
                let (spool, recorder) = (&context.spool, &*context.recorder);
                let ends = self.ends.reported(spool, &report, &file.content, recorder);
                if let Err(error) = ends {
                    tracing::warn!(%error, "cannot record how a task ended");
                }
                changed.extend(self.settle_reported(&report, file, context, remote));
            }
        }
        changed
    }

    fn settle_reported(
        &self,
        report: &Report,
        file: &Complete,
        context: &Context,
        remote: &Remote,
    ) -> Vec<Name> {
        let Some(author) = author_in(&file.fields) else { return Vec::new() };
        // A rename into the box is a change; the file may have been written long before.
        let landed_ms = i64::try_from(file.stat.changed_ns / 1_000_000).unwrap_or(i64::MAX);
        let written_at = Timestamp::from_unix_millis(landed_ms).plus(STAMP_STEP_MAX);
        let (task, attempt) = (report.task_id.as_str(), report.attempt());
        let end =
            TaskEnd { task, author: &author, written_at: Some(written_at), attempt, only_in: None };
        remote.tell(|sight| {
            let (task, author) = (task.to_owned(), author.clone());
            sight.reports.push(Reported { task, author, written_at, attempt });
        });
        match self.ends.settle_reported(&*context.spool, &end, &*context.recorder) {
            Ok(ended) => ended
                .into_iter()
                .flat_map(|message| message.withdrawn_from.into_iter().chain([message.mailbox]))
                .collect(),
            Err(error) => {
                tracing::warn!(%task, %error, "cannot settle a reported task");
                Vec::new()
            }
        }
    }
}
