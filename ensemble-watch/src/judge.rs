//! Judges a report before and after it is delivered: its contract, and the rule against vague words.
//!
//! ```text
//! finding               lint mode   becomes
//! breaks its contract   any         set aside, the author is told (`report.rejected`)
//! refused by review     any         the same
//! vague, or incomplete  refuse      the same
//! vague, or incomplete  warn        delivered; recorded (`report.vague`), and the author is told once
//!                                   a task (`report.advice`), if it names a mailbox; see `answers`
//! another shape         any         delivered as it is
//! ```

use ensemble_core::broker::Broker as _;
use ensemble_core::env::PublishOutcome;
use ensemble_core::message::{Digest, Envelope, MessageId, Name};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_project::Project;
use ensemble_project::status::ACTOR;
use ensemble_reports::contract::{self, ContractKind, DocumentNode};
use ensemble_reports::lint::{LintFinding, LintMode, Linter, TextShape};
use ensemble_team::driver::{ReviewCounts, TaskEnds};

use crate::answers::NOTICE_DIGITS;
use crate::work_file::{contract_of, is_report, promised_contract, reported_task};
use ensemble_core::dropbox::{CompleteFile, message_source};

const ADVICE_TYPE: &str = "report.advice";
const FINDINGS_SHOWN_MAX: usize = 20;

pub(crate) struct ReportJudge {
    linter: Linter,
    mode: LintMode,
    pub(crate) reviews: ReviewCounts,
}

impl ReportJudge {
    pub(crate) fn new(project: &Project) -> Self {
        let config = &project.config.lint;
        let root = project.queue.parent().map(std::path::Path::to_owned);
        let linter = Linter::new(&config.options(root));
        Self { linter, mode: config.mode(), reviews: project.reviews() }
    }

    /// Why a file is not to be delivered; `None` if it is.
    pub(crate) fn unfit(&self, file: &CompleteFile, kind: &Name) -> Option<String> {
        let contract = contract_of(kind)?;
        if !contract::is_meant(contract, &file.fields) {
            return None;
        }
        if let Some(broken) = broken(file, contract) {
            return Some(broken);
        }
        if let Some(refusal) = self.refused_by_review(file, contract) {
            return Some(refusal);
        }
        // In the other modes the findings go to the author, after the message was delivered.
        if self.mode != LintMode::Refuse {
            return None;
        }
        let findings = self.findings(file, contract);
        (!findings.is_empty()).then(|| lines(&findings).join("; "))
    }

    /// Why a review or a report is not taken, as the verbs refuse it: a review of one's own work, and a report of a
    /// task that review has stopped.
    fn refused_by_review(&self, file: &CompleteFile, contract: ContractKind) -> Option<String> {
        let task = file.task_field().or_else(|| reported_task(file))?;
        let text = String::from_utf8_lossy(&file.content);
        match contract {
            ContractKind::Review if self.reviews.is_own(&task, &text).unwrap_or(false) => {
                Some("its reviewer has done the task: another agent reviews it".to_owned())
            }
            ContractKind::Report => {
                let count = self.reviews.get(&task).ok()?;
                // One that landed before the stop was in time.
                count.stopped_at.filter(|at| *at <= TaskEnds::written_at(&file.stat))?;
                Some(format!("{}: the conductor decides", count.refusal()?))
            }
            _ => None,
        }
    }

    /// The advice for the author of a delivered file in which something is vague or missing.
    pub(crate) fn advice(&self, file: &CompleteFile) -> Option<AuthorAdvice> {
        if self.mode != LintMode::Warn || !is_report(file) {
            return None;
        }
        let contract = promised_contract(file)?;
        if !contract::is_meant(contract, &file.fields) {
            return None;
        }
        let findings = self.findings(file, contract);
        (!findings.is_empty()).then(|| AuthorAdvice { author: file.author(), findings })
    }

    fn findings(&self, file: &CompleteFile, contract: ContractKind) -> Vec<LintFinding> {
        let is_judged = matches!(contract, ContractKind::Report | ContractKind::Review);
        if self.mode == LintMode::Off || !is_judged {
            return Vec::new();
        }
        let path = file.path();
        self.linter.file(path.as_ref(), &file.content, TextShape::Fields(Some(contract))).findings
    }
}

/// How a file breaks its contract. Its fields were read when it was found, which is enough to see that it keeps the
/// contract. Only a file that does not is read again, for the lines that its author is notified.
fn broken(file: &CompleteFile, contract: ContractKind) -> Option<String> {
    let path = file.path();
    let check = |node: &DocumentNode| contract::check(contract, node, path.as_ref());
    check(&DocumentNode::without_places(&file.fields)).err()?;
    let text = std::str::from_utf8(&file.content).ok()?;
    // A file that is not YAML was rejected before.
    let node = DocumentNode::parse(text, path.as_ref()).ok()?;
    check(&node).err().map(|broken| broken.to_string())
}

pub(crate) struct AuthorAdvice {
    pub(crate) author: Option<Name>,
    pub(crate) findings: Vec<LintFinding>,
}

impl AuthorAdvice {
    pub(crate) fn rules(&self) -> Vec<&'static str> {
        let mut rules: Vec<_> = self.findings.iter().map(|f| f.rule.as_str()).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// Stores the message for the author, once for each author and task. An author without a mailbox, or without
    /// room in it, gets none: the record remains.
    ///
    /// # Errors
    /// The disk failed; to be tried again.
    pub(crate) fn send(&self, file: &CompleteFile, spool: &Spool) -> Result<Option<Name>> {
        let Some(author) = self.author.clone() else { return Ok(None) };
        let path = file.path();
        let about = file.task_field().unwrap_or_else(|| path.clone());
        let parts = [ADVICE_TYPE.as_bytes(), about.as_bytes(), author.as_str().as_bytes()];
        let id = MessageId::new(format!("l-{}", Digest::of_parts(&parts).short(NOTICE_DIGITS)))?;
        let shown = message_source(&path);
        let body = format!(
            "{shown} was delivered, but it is vague or incomplete:\n\n{}\n\n\
             Say it exactly in the next one, or correct this one and put it there again.\n",
            lines(&self.findings).join("\n")
        );
        let kind = Name::new(ADVICE_TYPE)?;
        let envelope = Envelope::new(spool.mailbox_of(&author), body)
            .with_causation(shown)
            .with_id(id)
            .with_kind(kind)
            .from(Name::new(ACTOR)?);
        match spool.publish(&envelope) {
            Ok(published) => Ok((published == PublishOutcome::Stored).then_some(author)),
            Err(Error::Conflict { .. }) => Ok(None),
            Err(error) if error.is_undeliverable() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn lines(findings: &[LintFinding]) -> Vec<String> {
    let shown = findings.iter().take(FINDINGS_SHOWN_MAX);
    shown.map(|f| format!("line {}: {f} [{}]", f.line, f.rule)).collect()
}
