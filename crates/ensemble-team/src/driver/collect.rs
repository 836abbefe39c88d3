//! Dispatch as a role of a program (seed 002): reads `reports/` at each rest's end, lets `collect::Collect`
//! decide, and reports the batch once.
//!
//! It keeps nothing in memory that cannot be read again: a role that is killed is simply started again.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use super::batches::{Batches, SummaryOutcome};
use super::ends::TaskEnds;
use super::reviews::ReviewCounts;
use super::task_reports::{REPORT_BYTES_MAX, report_names, report_of};
use crate::collect::{BatchLimits, Collect, Effect, Event, TaskProgress};
use ensemble_core::durable::{Dir, FileStat};
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::message::fields::{agent_of_text, is_same_task};
use ensemble_core::proto::Machine as _;
use ensemble_core::spool::{Spool, State};
use ensemble_core::{Result, allow_missing, allow_unreadable};
use ensemble_reports::contract::{
    Review, Status, Summary, TaskReport, TaskResult, Verdict, read_whole,
};

/// How many waiting messages are searched for a task without a report, in each mailbox.
const SEARCH_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBatch {
    /// Name of the batch; its summary is published once under this name.
    pub id: Name,
    pub tasks: Vec<String>,
}

/// What `Dispatch` does: gather the reports of a batch, and report it.
pub struct Dispatcher<'a> {
    pub spool: &'a Spool,
    pub batches: Batches,
    pub reviews: ReviewCounts,
    pub ends: TaskEnds,
    pub clock: &'a dyn Clock,
    pub recorder: &'a dyn Recorder,
    pub actor: Name,
    /// Directories in which reviews are beside those in `reports/`.
    pub review_dirs: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default)]
struct KnownReport {
    report: Option<TaskReport>,
    files: HashMap<String, FileStat>,
}

impl Dispatcher<'_> {
    /// Gathers reports until the batch is complete or its deadline has passed, and publishes the summary. `rest` must
    /// sleep for at most the given time, and return early if a file lands in `reports/`; its error ends the wait.
    ///
    /// # Errors
    /// The queue cannot be read, or the disk failed. A summary that cannot be written at the moment is
    /// tried again until the deadline, and once after it.
    pub fn collect(
        &self,
        batch: &TaskBatch,
        limits: BatchLimits,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<SummaryOutcome> {
        let start = self.clock.monotonic();
        let give_up = start + limits.deadline + Duration::from_secs(60);
        let mut machine = Collect::new(start, batch.tasks.iter().cloned(), limits);
        let mut known = BTreeMap::new();
        if let Some(summary) = self.batches.published_summary(&batch.id)? {
            return Ok(SummaryOutcome::Before(summary));
        }
        loop {
            self.update_reports(self.clock.monotonic(), batch, &mut machine, &mut known)?;
            machine.handle_timeout(self.clock.monotonic());
            while let Some(effect) = machine.poll_effect() {
                let now = self.clock.monotonic();
                match effect {
                    Effect::Look => self.update_reports(now, batch, &mut machine, &mut known)?,
                    Effect::PatienceEnded => self.recorder.record(
                        types::ROLE_PATIENCE_ENDED,
                        self.actor.as_str(),
                        serde_json::json!({ "role": "dispatch" }),
                    ),
                    Effect::Write { is_complete } => {
                        let summary = self.summary(batch, &machine, &known, is_complete)?;
                        let told =
                            self.batches.announce(&batch.id, &summary, &self.actor, self.recorder);
                        match told {
                            Ok(told) => return Ok(told),
                            Err(error) if error.is_transient() && now < give_up => {
                                machine.handle(now, Event::WriteFailed);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
            let now = self.clock.monotonic();
            if let Some(due) = machine.poll_timeout() {
                rest(due.since(now))?;
            }
        }
    }

    fn update_reports(
        &self,
        now: Monotonic,
        batch: &TaskBatch,
        machine: &mut Collect,
        known: &mut BTreeMap<String, KnownReport>,
    ) -> Result<()> {
        let Some(reports) = allow_missing(Dir::open(&self.spool.root().join("reports")))? else {
            return Ok(());
        };
        let mut names = reports.names()?;
        names.sort_unstable();
        let mut further = Vec::new();
        // One that is not there yet has no reviews.
        for dir in self.review_dirs.iter().filter_map(|dir| Dir::open(dir).ok()) {
            let names = dir.names()?;
            further.push((dir, names));
        }
        let mut events = Vec::new();
        for task in &batch.tasks {
            let known = known.entry(task.clone()).or_default();
            self.read_reports((&reports, &names), task, known, &mut events)?;
            let safe = super::reviews::file_stem(task);
            let (plain, others) = (format!("{safe}-review.yaml"), format!("{safe}."));
            let is_review = |name: &str| {
                name == plain || (name.starts_with(&others) && name.ends_with("-review.yaml"))
            };
            self.read_reviews((&reports, &names), &is_review, task, known, &mut events)?;
            let is_named = |name: &str| {
                let rest = name.strip_prefix(&safe).filter(|_| name.ends_with(".yaml"));
                rest.is_some_and(|rest| rest.starts_with(['-', '.']))
            };
            for (dir, names) in &further {
                self.read_reviews((dir, names), &is_named, task, known, &mut events)?;
            }
            if self.reviews.get(task)?.stopped_at.is_some() {
                events.push(Event::Stopped { task: task.clone() });
            }
        }
        // All that was read counts, whichever task and whichever file came first.
        events.sort_by_key(rank);
        for event in events {
            machine.handle(now, event);
        }
        Ok(())
    }

    fn read_reports(
        &self,
        (reports, names): (&Dir, &[String]),
        task: &str,
        known: &mut KnownReport,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let mut best = None;
        for file in report_names(task, names) {
            if let Some(text) = changed(reports, file, &mut known.files)?
                && let Some(report) = report_of(task, file, &text)
            {
                self.ends.reported(self.spool, &report, text.as_bytes(), self.recorder)?;
                best = best.or(Some(report));
            }
        }
        if let Some(report) = best {
            events.push(Event::Reported { task: task.to_owned(), status: report.status });
            known.report = Some(report);
        }
        Ok(())
    }

    /// The reviews of a task that have changed. Counting one may stop the task.
    fn read_reviews(
        &self,
        (dir, names): (&Dir, &[String]),
        is_review: &dyn Fn(&str) -> bool,
        task: &str,
        known: &mut KnownReport,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        for file in names.iter().filter(|name| is_review(name)) {
            if let Some(text) = changed(dir, file, &mut known.files)?
                && let Some(review) = read_whole::<Review>(&text, file.as_ref())
                && is_same_task(&review.task_id, task)
            {
                if self.reviews.count(file, text.as_bytes(), self.recorder)?.is_none() {
                    continue;
                }
                // Two spellings of a name are one reviewer.
                let agent = |text: &str| agent_of_text(text).map(|it| it.as_str().to_lowercase());
                let reviewer = review.reviewer.map(|name| agent(&name).unwrap_or(name));
                let reviewer = reviewer.unwrap_or_else(|| file.clone());
                let (task, verdict) = (task.to_owned(), review.status);
                events.push(Event::Reviewed { task, reviewer, verdict });
            }
        }
        Ok(())
    }

    fn summary(
        &self,
        batch: &TaskBatch,
        machine: &Collect,
        known: &BTreeMap<String, KnownReport>,
        is_complete: bool,
    ) -> Result<Summary> {
        let mut summary = Summary::new(batch.tasks.len() as u64);
        summary.batch_id = Some(batch.id.to_string());
        for (task, progress) in machine.tasks() {
            let report = known.get(task).and_then(|known| known.report.as_ref());
            let mut result = TaskResult::new(task, word(progress));
            result.worker_id = report.and_then(TaskReport::author).map(str::to_owned);
            result.summary = report.and_then(|report| {
                report.failure_reason.clone().or_else(|| report.summary.clone())
            });
            match progress {
                TaskProgress::Ended { status: Status::Success } => summary.completed_tasks += 1,
                TaskProgress::Ended { .. } | TaskProgress::Stopped => {
                    summary.failed_tasks += 1;
                    let why = result.summary.as_deref().unwrap_or("no reason was given");
                    summary.errors.push(format!("{task} {}: {why}", word(progress)));
                }
                TaskProgress::Awaited => {
                    let whereabouts = self.whereabouts(task)?;
                    summary.errors.push(format!("{task} is missing: {whereabouts}"));
                    result.summary = Some(whereabouts);
                    summary.missing_tasks.push(task.clone());
                }
                TaskProgress::UnderReview { verdicts } => {
                    let had = format!("({} of the verdicts)", verdicts.len());
                    summary.errors.push(format!("{task}: its review is missing {had}"));
                    summary.missing_tasks.push(task.clone());
                }
                TaskProgress::NeedsFix => {
                    summary.errors.push(format!("{task}: a new report after needs_fix is missing"));
                    summary.missing_tasks.push(task.clone());
                }
            }
            summary.task_results.push(result);
        }
        let missing = match summary.missing_tasks.len() {
            0 => String::new(),
            count => format!(", {count} missing: {}", summary.missing_tasks.join(", ")),
        };
        let late = if is_complete { "" } else { " at the deadline" };
        summary.conclude(late, &missing, self.clock.wall());
        Ok(summary)
    }

    fn whereabouts(&self, task: &str) -> Result<String> {
        for mailbox in self.spool.mailboxes()? {
            // The task may be in another one than the one that cannot be read.
            let Ok(unfinished) = self.spool.unfinished(&mailbox, SEARCH_MAX) else { continue };
            for found in unfinished {
                let envelope = self.spool.peek(&mailbox, &found.id);
                if envelope.is_ok_and(|e| e.task_id.as_deref() == Some(task)) {
                    return Ok(match found.state {
                        State::Acked { holder, .. } => format!("{holder} has it, without a report"),
                        _ => format!("it waits in the mailbox of {mailbox}"),
                    });
                }
            }
        }
        Ok("it is in no mailbox, and there is no report".to_owned())
    }
}

/// The order in which the machine handles the events of one look. A stop comes first: after the last report the
/// machine writes the summary. An objection comes before an approval, which would end the task.
const fn rank(event: &Event) -> u8 {
    match event {
        Event::Stopped { .. } => 0,
        Event::Reported { .. } => 1,
        Event::Reviewed { verdict: Verdict::NeedsFix, .. } => 2,
        Event::Reviewed { .. } => 3,
        Event::Written | Event::WriteFailed => 4,
    }
}

fn word(progress: &TaskProgress) -> &'static str {
    match progress {
        TaskProgress::Ended { status } => status.as_str(),
        TaskProgress::Stopped => "stopped",
        TaskProgress::NeedsFix => "needs_fix",
        TaskProgress::Awaited | TaskProgress::UnderReview { .. } => "missing",
    }
}

/// A file's text if it is another one than at the last look.
pub(super) fn changed(
    dir: &Dir,
    file: &str,
    files: &mut HashMap<String, FileStat>,
) -> Result<Option<String>> {
    let Some(stat) = dir.stat(file)?.filter(|stat| stat.is_file) else { return Ok(None) };
    if files.get(file) == Some(&stat) {
        return Ok(None);
    }
    // The watcher sets what cannot be read aside.
    let content = allow_unreadable(dir.read(file, REPORT_BYTES_MAX))?.flatten();
    files.insert(file.to_owned(), stat);
    Ok(content.and_then(|content| String::from_utf8(content).ok()))
}
