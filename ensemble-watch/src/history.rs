//! What is kept for people goes after its time (docs/operating/retention.md). This is old segments of the event log,
//! rejected files, attachments that nothing names, counts of reviews, batches, and the output of merges.
//!
//! A thread does it, since each message may have to be read. *A crash* leaves what was not removed yet; the next
//! watcher goes on. *A jump* of the wall clock removes nothing: all ages are by the queue's calendar. What names open
//! work stays, however old it is.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::{FileStat, remove_where};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::{self, Recorder, types};
use ensemble_core::history;
use ensemble_core::proto::calendar::Calendar;
use ensemble_core::spool::Spool;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::driver::{Batches, retention};
use ensemble_team::steps::{STEPS_FILE, StepStore};
use serde_json::json;

use crate::project::Project;
use crate::status::ACTOR;
use crate::steps::step_options;

/// Delay of the first sweep, and time between two.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);
/// The directory of merges, beside the board, and how the names of its files end.
const MERGES: (&str, &str) = ("merges", ".log");

/// Starts a sweep when one is due.
#[derive(Debug)]
pub(crate) struct HistorySweep {
    next: Monotonic,
    running: Option<JoinHandle<()>>,
}

impl Drop for HistorySweep {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

impl HistorySweep {
    pub(crate) fn new(now: Monotonic) -> Self {
        Self { next: now + FIRST_AFTER, running: None }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next
    }

    /// Starts a sweep if one is due and none runs.
    pub(crate) fn drive(
        &mut self,
        now: Monotonic,
        project: &Project,
        spool: &Arc<Spool>,
        recorder: &Arc<dyn Recorder>,
    ) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        if self.running.take_if(|running| running.is_finished()).is_none() && self.running.is_some()
        {
            return;
        }
        let (project, spool, recorder) = (project.clone(), Arc::clone(spool), Arc::clone(recorder));
        let sweep = move || {
            Sweep { project: &project, spool: &spool, recorder: &recorder, open: None }.run()
        };
        self.running = thread::Builder::new().name("history".to_owned()).spawn(sweep).ok();
    }
}

/// One sweep.
struct Sweep<'p> {
    project: &'p Project,
    spool: &'p Spool,
    recorder: &'p Arc<dyn Recorder>,
    /// The names of open work, once something is old.
    open: Option<BTreeSet<String>>,
}

impl Sweep<'_> {
    fn run(mut self) {
        let mut calendar = self.spool.calendar();
        let removed = [
            ("rejected", Self::rejected as fn(&mut Self, &mut Calendar) -> Result<usize>),
            ("attachments", Self::attachments),
            ("reviews", Self::reviews),
            ("batches", Self::batches),
            ("merges", Self::merges),
            ("logs", Self::logs),
        ]
        .map(|(what, sweep)| {
            let removed = sweep(&mut self, &mut calendar).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot sweep {what}");
                0
            });
            (what, removed)
        });
        self.spool.keep_calendar(calendar);
        if removed.iter().any(|(_, removed)| *removed > 0) {
            let counts = removed.map(|(what, removed)| (what.to_owned(), json!(removed)));
            let data = serde_json::Map::from_iter(counts);
            self.recorder.record(types::HISTORY_SWEPT, ACTOR, data.into());
        }
    }

    fn keep(&self) -> Duration {
        self.project.config.history_kept()
    }

    fn rejected(&mut self, calendar: &mut Calendar) -> Result<usize> {
        history::sweep_rejected(self.spool, calendar, self.keep())
    }

    /// An attachment is kept as long as a settled message is.
    fn attachments(&mut self, calendar: &mut Calendar) -> Result<usize> {
        history::sweep_attachments(self.spool, calendar, retention(self.spool)?)
    }

    fn reviews(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let keep = self.keep();
        let is_old = &mut |stat: &FileStat| history::is_older(calendar, stat, keep);
        self.project.reviews().sweep(is_old, &mut || self.open())
    }

    fn batches(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let (project, keep) = (self.project, self.keep());
        let batches = Batches::new(&project.queue, &project.state, self.spool.durability());
        batches.sweep(&mut |stat| history::is_older(calendar, stat, keep))
    }

    fn merges(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let Some(board) = self.board() else { return Ok(0) };
        let place = board.path().parent().unwrap_or_else(|| Path::new(".")).join(MERGES.0);
        let keep = self.keep();
        if !place.is_dir() {
            return Ok(0);
        }
        let open = self.open()?;
        remove_where(&place, &mut |name, stat| {
            let task = name.strip_suffix(MERGES.1).unwrap_or(name);
            !open.contains(task) && history::is_older(calendar, stat, keep)
        })
    }

    fn logs(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let (logs, keep) = (self.project.logs(), self.keep());
        let is_old = &mut |stat: &FileStat| history::is_older(calendar, stat, keep);
        event_log::sweep(&logs, is_old, &mut || self.open())
    }

    fn board(&self) -> Option<Board> {
        Board::find(self.project.root(), BoardOptions::new(ACTOR)).ok()
    }

    /// The names of what is not over: messages and requests, tasks of the board, and step queues with an open step.
    fn open(&mut self) -> Result<BTreeSet<String>> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let mut open = history::open_work(self.spool)?;
        if let Some(board) = self.board() {
            let tasks = board.read()?.tasks.into_iter();
            open.extend(tasks.filter(|it| !it.status.is_terminal()).map(|it| it.id.to_string()));
        }
        let steps = self.project.state.join(STEPS_FILE);
        if steps.exists() {
            let options = step_options(self.project, Arc::clone(self.recorder));
            let queues = StepStore::open(&steps, options)?.queues()?;
            open.extend(queues.into_iter().filter(|it| it.is_open()).map(|it| it.task_id));
        }
        self.open = Some(open.clone());
        Ok(open)
    }
}
