//! Answers the authors of drop-box files, and records reports.
//!
//! `judge` finds what is wrong with a file, and `answers` bounds how often an author is answered.
//! `rejection_notice` writes to the author of a file that is set aside.

use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::broker::TaskEnd;
use ensemble_core::dropbox::{CompleteFile, Routes, UnfitFile};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::message::fields::is_same_task;
use ensemble_reports::contract::{ContractKind, Reading, TaskReport, read_as};
use ensemble_team::admission::is_refusal;
use ensemble_team::driver::TaskEnds;
use serde_json::json;

use super::remote::ServerSight;
use crate::answers::{self, ANSWERS_MAX, AnswerCounts, AnswerLoop, AnswerPermit};
use crate::context::WatchContext;
use crate::judge::{AuthorAdvice, ReportJudge};
use crate::rejection_notice;
use crate::routing::RoutedFile;
use crate::servers::EndingReport;
use crate::work_file::{is_report, promised_contract};

pub(super) struct AuthorFeedback {
    context: Arc<WatchContext>,
    judge: ReportJudge,
    answers: AnswerCounts,
    ends: TaskEnds,
}

impl AuthorFeedback {
    pub(super) fn new(context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        Self {
            context: Arc::clone(context),
            judge: ReportJudge::new(project),
            answers: AnswerCounts::default(),
            ends: project.task_ends(),
        }
    }

    pub(super) const fn judge(&self) -> &ReportJudge {
        &self.judge
    }

    /// Notifies the author of a file that is not delivered, or the recipients of its route. Returns
    /// the notified agents.
    pub(super) fn reject(
        &mut self,
        unfit: &UnfitFile,
        remedy: &str,
        routes: &Routes,
    ) -> Result<Vec<Name>> {
        let spool = Arc::clone(&self.context.spool);
        let author = rejection_notice::author_of(unfit, &spool)?;
        let permit = match &author {
            Some(author) => {
                let is_about_notice = answers::is_unfit_about_notice(unfit, author, &spool);
                self.permit(author, is_about_notice, &unfit.path())
            }
            None => AnswerPermit::Recipients,
        };
        let to = author.clone().filter(|_| permit == AnswerPermit::Author);
        let sent = match permit {
            AnswerPermit::None => Ok(Vec::new()),
            AnswerPermit::Author | AnswerPermit::Recipients => {
                rejection_notice::send(unfit, to, remedy, routes, &spool)
            }
        };
        self.answers.note_sent(author.as_ref(), permit, sent)
    }

    /// Counts a delivered review, and advises the author of a delivered file. Returns the advised agent.
    ///
    /// # Errors
    /// The count or the advice cannot be stored. It may be tried again.
    pub(super) fn advise_author(&mut self, file: &CompleteFile) -> Result<Option<Name>> {
        if is_report(file) && promised_contract(file) == Some(ContractKind::Review) {
            self.judge.reviews.count(&file.file, &file.content, &*self.context.recorder)?;
        }
        match self.judge.advice(file) {
            Some(advice) => self.advise(&advice, file),
            None => {
                if let Some(author) = file.author().filter(|_| is_report(file)) {
                    self.answers.is_fine(&author);
                }
                Ok(None)
            }
        }
    }

    fn advise(&mut self, advice: &AuthorAdvice, file: &CompleteFile) -> Result<Option<Name>> {
        let spool = Arc::clone(&self.context.spool);
        let permit = advice.author.as_ref().map_or(AnswerPermit::None, |author| {
            let is_about_notice = answers::is_about_notice(file, author, &spool);
            self.permit(author, is_about_notice, &file.path())
        });
        let sent = match permit {
            AnswerPermit::Author => advice.send(file, &spool),
            AnswerPermit::Recipients | AnswerPermit::None => Ok(None),
        };
        let advised = self.answers.note_sent(advice.author.as_ref(), permit, sent)?;
        self.context.record(types::REPORT_VAGUE, json!({
            "file": file.path(), "findings": advice.findings.len(), "rules": advice.rules(), "told": advised,
        }));
        Ok(advised)
    }

    /// Whether a file is answered. Records a loop that was just found.
    fn permit(&mut self, author: &Name, is_about_notice: bool, path: &str) -> AnswerPermit {
        let (permit, found) = self.answers.permit(author, is_about_notice);
        if let Some(AnswerLoop { answers, why }) = found {
            self.context.record(types::LOOP_DETECTED, json!({
                "worker_id": author, "file": path, "cycles": answers, "limit": ANSWERS_MAX, "why": why,
            }));
        }
        permit
    }

    /// Names the task of a report as its message does that is open.
    pub(super) fn name_task(&self, file: &mut RoutedFile) {
        file.name_task(|task, author| {
            self.ends.meant_task(&*self.context.spool, task, author).ok()
        });
    }

    pub(super) fn has_ended(&self, task: &str) -> bool {
        self.ends.has_ended(task).unwrap_or(true)
    }

    /// Records how the task of a delivered report has ended, and settles its messages for the author. Returns the
    /// mailboxes of those messages.
    ///
    /// # Errors
    /// The end cannot be recorded, or a message not be settled. It may be tried again.
    pub(super) fn end_task(&self, file: &CompleteFile, remote: &ServerSight) -> Result<Vec<Name>> {
        if !is_report(file) || promised_contract(file) != Some(ContractKind::Report) {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(&file.content);
        let Ok(Reading::Whole(mut report)) = read_as::<TaskReport>(&text, file.file.as_ref())
        else {
            return Ok(Vec::new());
        };
        if let Some(task) = file.task_field().filter(|task| is_same_task(task, &report.task_id)) {
            report.task_id = task;
        }
        self.ends.reported(&self.context.spool, &report, &file.content, &*self.context.recorder)?;
        self.settle_reported(&report, file, remote)
    }

    fn settle_reported(
        &self,
        report: &TaskReport,
        file: &CompleteFile,
        remote: &ServerSight,
    ) -> Result<Vec<Name>> {
        let Some(author) = file.author() else { return Ok(Vec::new()) };
        let written_at = TaskEnds::written_at(&file.stat);
        let (task, attempt) = (report.task_id.as_str(), report.attempt());
        let end =
            TaskEnd { task, author: &author, written_at: Some(written_at), attempt, only_in: None };
        remote.share_observation(|sight| {
            let (task, author) = (task.to_owned(), author.clone());
            sight.reports.push(EndingReport { task, author, written_at, attempt });
        });
        match self.ends.settle_reported(&*self.context.spool, &end, &*self.context.recorder) {
            Ok(ended) => Ok(ended
                .into_iter()
                .flat_map(|message| message.withdrawn_from.into_iter().chain([message.mailbox]))
                .collect()),
            // Its author may not finish it now, and reports again once it may.
            Err(error) if is_refusal(&error) => {
                tracing::warn!(%task, %error, "a reported task is not settled");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}
