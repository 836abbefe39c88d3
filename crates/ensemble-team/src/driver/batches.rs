//! Reporting a batch once: `reports/completion-summary.yaml` (seed 002).
//!
//! ```text
//! step  all under the lock of completion-summary.yaml        a crash behind it leaves
//! 1     decide: .ensemble/batches/<batch>.yaml, no-replace   a decided summary; the next one finishes it
//! 2     replace queue/reports/completion-summary.yaml        the same; the content is recognised
//! 3     .ensemble/batches/<batch>.told                       everything done
//! ```
//!
//! The first Dispatch decides what a batch's summary says (step 1). Each lock holder first completes what an earlier
//! one began, so at most one batch is ever between 1 and 3, and the document contains either its summary or an older
//! one. The watcher treats the same content written twice as one version, so the summary is routed once, no matter
//! how many Dispatchers there are and which of them is killed. The summary of an earlier batch that the watcher has
//! not delivered yet is not overwritten: that is [`BatchError::Undelivered`], to be tried again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::dropbox::Ledger;
use ensemble_core::durable::{Dir, Durability, FileModes, FileStat, MoveOutcome, temporary_name};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{Digest, Name, yaml};
use ensemble_core::{AreaError, Error, Result, allow_missing, allow_unreadable};
use ensemble_reports::contract::{self, Reading, Summary};

/// The document, below the queue.
pub const SUMMARY_PATH: &str = "reports/completion-summary.yaml";
/// How long another Dispatcher is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 1024 * 1024;

/// The summary of a batch was not written. Callers find it by
/// [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("{} was not delivered yet: wait for the watcher, or start one", path.display())]
    Undelivered { path: PathBuf },
    #[error("{}: the summary is gone: write it again", path.display())]
    Gone { path: PathBuf },
}

impl AreaError for BatchError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Undelivered { .. })
    }

    fn is_invariant_broken(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum SummaryOutcome {
    Now(Summary),
    /// It had been published before, with this content.
    Before(Summary),
}

impl SummaryOutcome {
    pub fn summary(&self) -> &Summary {
        match self {
            Self::Now(summary) | Self::Before(summary) => summary,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Batches {
    queue: PathBuf,
    state: PathBuf,
    durability: Durability,
}

impl Batches {
    pub fn new(queue: &Path, state: &Path, durability: Durability) -> Self {
        Self { queue: queue.to_owned(), state: state.to_owned(), durability }
    }

    /// The published summary of a batch; `None` if there is none yet.
    pub fn published_summary(&self, batch: &Name) -> Result<Option<Summary>> {
        let Some(dir) = self.open_existing()? else { return Ok(None) };
        if dir.stat(&told_name(batch))?.is_none() {
            return Ok(None);
        }
        Ok(decided(&dir, &decided_name(batch))?.map(|(_, summary)| summary))
    }

    /// The decided summary of a batch, if there is one; who decided it and was killed is done for.
    pub fn resume(
        &self,
        batch: &Name,
        actor: &Name,
        recorder: &dyn Recorder,
    ) -> Result<Option<Summary>> {
        if let Some(summary) = self.published_summary(batch)? {
            return Ok(Some(summary));
        }
        let Some(dir) = self.open_existing()? else { return Ok(None) };
        let Some((_, summary)) = decided(&dir, &decided_name(batch))? else { return Ok(None) };
        Ok(Some(self.announce(batch, &summary, actor, recorder)?.summary().clone()))
    }

    /// Publishes the summary of a batch, unless that was done. The first summary counts.
    pub fn announce(
        &self,
        batch: &Name,
        summary: &Summary,
        actor: &Name,
        recorder: &dyn Recorder,
    ) -> Result<SummaryOutcome> {
        let document = self.lock()?;
        let dir = self.dir()?;
        self.finish_others(&document, &dir, batch, (actor, recorder))?;
        if dir.stat(&told_name(batch))?.is_some()
            && let Some((_, summary)) = decided(&dir, &decided_name(batch))?
        {
            return Ok(SummaryOutcome::Before(summary));
        }
        let (content, counts) = self.decide(&dir, batch, summary)?;
        self.publish(&document, &content)?;
        self.remember(&dir, batch, &counts, (actor, recorder))?;
        Ok(SummaryOutcome::Now(counts))
    }

    /// Removes the files of published batches for which `is_old` is true, and returns their number. A summary that
    /// was decided and not published stays.
    pub fn sweep(&self, is_old: &mut dyn FnMut(&FileStat) -> bool) -> Result<usize> {
        let Some(dir) = self.open_existing()? else { return Ok(0) };
        let mut forgotten = 0;
        for told in dir.names()? {
            let batch = told.strip_suffix(".told").and_then(|batch| Name::new(batch).ok());
            let Some(batch) = batch else { continue };
            if dir.stat(&told)?.is_some_and(|stat| is_old(&stat)) {
                // In this order: a decided summary without its `.told` file would be published again.
                dir.remove(&decided_name(&batch))?;
                dir.remove(&told)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    fn lock(&self) -> Result<LockedDocument> {
        let options = DocumentOptions {
            bytes_max: BYTES_MAX,
            durability: self.durability,
            tmp: Some(self.queue.join("tmp")),
            ..DocumentOptions::default()
        };
        Dir::open(&self.queue)?.ensure_child("reports", FileModes::default())?;
        LockedDocument::lock_with(self.queue.join(SUMMARY_PATH), LOCK_PATIENCE, options)
    }

    fn open_existing(&self) -> Result<Option<Dir>> {
        allow_missing(Dir::open(&self.state.join("batches")))
    }

    fn dir(&self) -> Result<Dir> {
        if !self.state.is_dir()
            && let (Some(project), Some(name)) = (self.state.parent(), self.state.file_name())
        {
            let (project, name) = (Dir::open(project)?, name.to_string_lossy());
            project.ensure_child_safe(&name, FileModes::default(), self.durability)?;
        }
        Dir::open(&self.state)?.ensure_child_safe("batches", FileModes::default(), self.durability)
    }

    /// Publishes summaries that a killed Dispatcher had decided but not published.
    fn finish_others(
        &self,
        document: &LockedDocument,
        dir: &Dir,
        own: &Name,
        by: (&Name, &dyn Recorder),
    ) -> Result<()> {
        let mut names = dir.names()?;
        names.sort_unstable();
        for batch in names.iter().filter_map(|name| name.strip_suffix(".yaml")) {
            if batch == own.as_str() || names.contains(&format!("{batch}.told")) {
                continue;
            }
            let Ok(batch) = Name::new(batch) else { continue };
            // A damaged one is an error for that batch alone.
            let decided = allow_unreadable(decided(dir, &decided_name(&batch)))?.flatten();
            if let Some((content, summary)) = decided {
                self.publish(document, &content)?;
                self.remember(dir, &batch, &summary, by)?;
            }
        }
        Ok(())
    }

    /// Writes the summary, or reads the one that another process has decided.
    fn decide(&self, dir: &Dir, batch: &Name, summary: &Summary) -> Result<(String, Summary)> {
        let content = contract::write(summary);
        let tmp = Dir::open(&self.queue)?.ensure_child("tmp", FileModes::default())?;
        let tmp_name = temporary_name(&format!("batch-{batch}"));
        tmp.write_new(&tmp_name, content.as_bytes(), FileModes::default(), self.durability)?;
        let moved = tmp.move_new(&tmp_name, dir, &decided_name(batch));
        if !matches!(moved, Ok(MoveOutcome::Done)) {
            tmp.remove(&tmp_name)?;
        }
        let moved = moved?;
        // Before the words can be read, they must be the ones that are found after a power cut.
        if self.durability == Durability::Power {
            dir.sync()?;
        }
        if moved == MoveOutcome::Done {
            return Ok((content, summary.clone()));
        }
        let gone = || BatchError::Gone { path: dir.path().join(decided_name(batch)) };
        Ok(decided(dir, &decided_name(batch))?.ok_or_else(gone)?)
    }

    fn publish(&self, document: &LockedDocument, content: &str) -> Result<()> {
        if let Some(current) = document.read()? {
            if current == content.as_bytes() {
                return Ok(());
            }
            self.is_delivered(&current)?;
        }
        document.replace(content.as_bytes())
    }

    /// Checks that the watcher has delivered the current document. If no watcher ever ran, it counts as delivered.
    fn is_delivered(&self, current: &[u8]) -> Result<()> {
        match Ledger::last_routed(&self.state, SUMMARY_PATH)? {
            Some(Some(sha256)) if sha256 == Digest::of(current) => Ok(()),
            None => Ok(()),
            Some(_) => Err(BatchError::Undelivered { path: self.queue.join(SUMMARY_PATH) }.into()),
        }
    }

    fn remember(
        &self,
        dir: &Dir,
        batch: &Name,
        summary: &Summary,
        (actor, recorder): (&Name, &dyn Recorder),
    ) -> Result<()> {
        let name = told_name(batch);
        if dir.stat(&name)?.is_some() {
            return Ok(());
        }
        dir.write_new(&name, b"", FileModes::default(), self.durability)?;
        if self.durability == Durability::Power {
            dir.sync()?;
        }
        let data = json!({
            "batch_id": batch, "status": summary.status.as_str(), "total": summary.total_tasks,
            "completed": summary.completed_tasks, "failed": summary.failed_tasks,
            "missing": summary.missing_tasks.len(),
        });
        recorder.record(types::BATCH_TOLD, actor.as_str(), data);
        Ok(())
    }
}

fn decided_name(batch: &Name) -> String {
    format!("{batch}.yaml")
}

fn told_name(batch: &Name) -> String {
    format!("{batch}.told")
}

/// A batch's name for tasks: the same tasks give the same one.
pub fn batch_of<'a>(tasks: impl IntoIterator<Item = &'a str>) -> String {
    let mut tasks: Vec<&str> = tasks.into_iter().collect();
    tasks.sort_unstable();
    let parts: Vec<&[u8]> = tasks.iter().map(|task| task.as_bytes()).collect();
    format!("batch-{}", Digest::of_parts(&parts).short(12))
}

fn decided(dir: &Dir, name: &str) -> Result<Option<(String, Summary)>> {
    let Some(content) = dir.read(name, BYTES_MAX)? else { return Ok(None) };
    let path = dir.path().join(name);
    let text = yaml::decode_text(&content, &path)?;
    match contract::read_as::<Summary>(text, &path) {
        Ok(Reading::Whole(summary)) => Ok(Some((text.to_owned(), summary))),
        Ok(Reading::Foreign) => Err(Error::malformed(&path, "file", "is not a summary")),
        Err(broken) => Err(Error::malformed(&path, "file", broken.to_string())),
    }
}
