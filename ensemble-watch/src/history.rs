//! Removes what is kept for people once its time has passed (docs/operating/retention.md). This is old segments of
//! the event log, rejected files, attachments that nothing names, counts of reviews, batches, and the output of
//! merges.
//!
//! A thread does it, since each message may have to be read. *A crash* leaves what was not removed yet; the next
//! watcher continues. *A jump* of the wall clock removes nothing: all ages are by the queue's calendar. Records of
//! open work stay, no matter how old they are. A team on servers has its open work there, so segments, counts and
//! outputs stay.
//!
//! *A watcher that stops* waits for the part of a sweep that runs, and leaves the others.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::{FileStat, remove_where};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::{self, types};
use ensemble_core::history;
use ensemble_core::proto::calendar::Calendar;
use ensemble_project::status::ACTOR;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::driver::{Batches, retention};
use serde_json::json;

use crate::context::WatchContext;

/// Delay of the first sweep, and time between two.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);
/// The directory of merges, beside the board, and how the names of its files end.
const MERGES: (&str, &str) = ("merges", ".log");

pub(crate) struct HistorySweep {
    context: Arc<WatchContext>,
    next: Monotonic,
    running: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
}

impl Drop for HistorySweep {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

impl HistorySweep {
    pub(crate) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let context = Arc::clone(context);
        Self { context, next: now + FIRST_AFTER, running: None, ends: Arc::default() }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next
    }

    pub(crate) fn drive(&mut self, now: Monotonic) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        if self.running.take_if(|running| running.is_finished()).is_none() && self.running.is_some()
        {
            return;
        }
        let (context, ends) = (Arc::clone(&self.context), Arc::clone(&self.ends));
        let sweep = move || SweepRun { context: &context, open: None }.run(&ends);
        self.running = thread::Builder::new().name("history".to_owned()).spawn(sweep).ok();
    }
}

/// A part of a sweep: it says how much it removed.
type SweepPart<'c> = fn(&mut SweepRun<'c>, &mut Calendar) -> Result<usize>;

struct SweepRun<'c> {
    context: &'c WatchContext,
    open: Option<BTreeSet<String>>,
}

impl<'c> SweepRun<'c> {
    fn run(mut self, ends: &AtomicBool) {
        let WatchContext { project, spool, .. } = self.context;
        let mut calendar = spool.calendar();
        let is_open_elsewhere = project.shared_copy().is_some();
        let by_open_work = |part: SweepPart<'c>| {
            if is_open_elsewhere { |_: &mut Self, _: &mut _| Ok(0) } else { part }
        };
        let parts: [(&str, SweepPart<'c>); 6] = [
            ("rejected", Self::rejected),
            ("attachments", Self::attachments),
            ("batches", Self::batches),
            ("reviews", by_open_work(Self::reviews)),
            ("merges", by_open_work(Self::merges)),
            ("logs", by_open_work(Self::logs)),
        ];
        let removed = parts.map(|(what, part)| {
            if ends.load(Ordering::Relaxed) {
                return (what, 0);
            }
            let removed = part(&mut self, &mut calendar).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot sweep {what}");
                0
            });
            (what, removed)
        });
        spool.keep_calendar(calendar);
        if removed.iter().any(|(_, removed)| *removed > 0) {
            let counts = removed.map(|(what, removed)| (what.to_owned(), json!(removed)));
            let data = serde_json::Map::from_iter(counts);
            self.context.record(types::HISTORY_SWEPT, data.into());
        }
    }

    fn kept_duration(&self) -> Duration {
        self.context.project.config.history_kept()
    }

    fn rejected(&mut self, calendar: &mut Calendar) -> Result<usize> {
        history::sweep_rejected(&self.context.spool, calendar, self.kept_duration())
    }

    /// An attachment is kept as long as a settled message is.
    fn attachments(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let spool = &self.context.spool;
        history::sweep_attachments(spool, calendar, retention(spool)?)
    }

    fn reviews(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let keep = self.kept_duration();
        let is_old = &mut |stat: &FileStat| history::is_older(calendar, stat, keep);
        self.context.project.reviews().sweep(is_old, &mut || self.open())
    }

    fn batches(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let (WatchContext { project, spool, .. }, keep) = (self.context, self.kept_duration());
        let batches = Batches::new(&project.queue, &project.state, spool.durability());
        batches.sweep(&mut |stat| history::is_older(calendar, stat, keep))
    }

    fn merges(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let Some(board) = self.board() else { return Ok(0) };
        let place = board.path().parent().unwrap_or_else(|| Path::new(".")).join(MERGES.0);
        let keep = self.kept_duration();
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
        let (logs, keep) = (self.context.project.logs(), self.kept_duration());
        let is_old = &mut |stat: &FileStat| history::is_older(calendar, stat, keep);
        event_log::sweep(&logs, is_old, &mut || self.open())
    }

    fn board(&self) -> Option<Board> {
        Board::find(self.context.project.root(), BoardOptions::new(ACTOR)).ok()
    }

    /// The names of what is not over: messages and requests, tasks of the board, and step queues with an open step.
    fn open(&mut self) -> Result<BTreeSet<String>> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let WatchContext { project, spool, recorder } = self.context;
        let mut open = history::open_work(spool)?;
        if let Some(board) = self.board() {
            let tasks = board.read()?.tasks.into_iter();
            open.extend(tasks.filter(|it| !it.status.is_terminal()).map(|it| it.id.to_string()));
        }
        if project.has_steps() {
            let options = project.step_options(Arc::clone(recorder));
            let queues = project.open_steps(options)?.queues()?;
            open.extend(queues.into_iter().filter(|it| it.is_open()).map(|it| it.task_id));
        }
        self.open = Some(open.clone());
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ensemble_core::event_log::{EventLog, NullRecorder, Recorder as _};
    use ensemble_core::spool::Spool;
    use ensemble_project::Project;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// How many of two segments are left once the files of `rejected/`, which are younger, are gone.
    fn segments_left(config: &str) -> usize {
        let home = tempfile::tempdir().unwrap();
        let queue = home.path().join("queue");
        std::fs::write(home.path().join("ensemble.yaml"), config).unwrap();
        let spool = Arc::new(Spool::create(&queue, Default::default()).unwrap());
        let project = Project::discover(Some(&queue)).unwrap();
        for _ in 0..2 {
            let log = EventLog::start_session(&project.logs(), "test").unwrap();
            log.record("task_start", "test", json!({ "task_id": "t1" }));
        }
        let rejected = queue.join("rejected/a.yaml");
        std::fs::create_dir(queue.join("rejected")).unwrap();
        std::fs::write(&rejected, "").unwrap();
        let logs = project.logs();
        let context = Arc::new(WatchContext { project, spool, recorder: Arc::new(NullRecorder) });
        let begin = Instant::now();
        let sweep = || {
            let mut history = HistorySweep::new(Monotonic::ZERO, &context);
            history.drive(Monotonic::ZERO + FIRST_AFTER);
            history.running.take().unwrap().join().unwrap();
        };
        while rejected.exists() {
            assert!(begin.elapsed() < PATIENCE, "it is older than no day");
            sweep();
        }
        // The last one may have met the segments when they were too young.
        sweep();
        let logs = std::fs::read_dir(logs).unwrap().map(|entry| entry.unwrap().path());
        logs.filter(|path| path.extension().is_some_and(|it| it == "ndjson")).count()
    }

    #[test]
    fn old_segments_go_but_where_the_open_work_is_on_servers() {
        assert_eq!(segments_left("history: 0\n"), 1);
        assert_eq!(segments_left("history: 0\ntransport: nats://127.0.0.1:1\n"), 2);
    }
}
