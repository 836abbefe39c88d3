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
use ensemble_core::event_log::{self, Recorder, types};
use ensemble_core::history;
use ensemble_core::proto::calendar::Calendar;
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_project::status::ACTOR;
use ensemble_team::board::{Board, BoardOptions};
use ensemble_team::driver::{Batches, retention};
use serde_json::json;

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
    pub(crate) fn new(now: Monotonic) -> Self {
        Self { next: now + FIRST_AFTER, running: None, ends: Arc::default() }
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
        let ends = Arc::clone(&self.ends);
        let sweep = move || {
            SweepRun { project: &project, spool: &spool, recorder: &recorder, open: None }
                .run(&ends)
        };
        self.running = thread::Builder::new().name("history".to_owned()).spawn(sweep).ok();
    }
}

/// A part of a sweep: it says how much it removed.
type SweepPart<'p> = fn(&mut SweepRun<'p>, &mut Calendar) -> Result<usize>;

struct SweepRun<'p> {
    project: &'p Project,
    spool: &'p Spool,
    recorder: &'p Arc<dyn Recorder>,
    /// The names of open work, once something is old.
    open: Option<BTreeSet<String>>,
}

impl<'p> SweepRun<'p> {
    fn run(mut self, ends: &AtomicBool) {
        let mut calendar = self.spool.calendar();
        let is_open_elsewhere = self.project.shared_copy().is_some();
        let by_open_work = |part: SweepPart<'p>| {
            if is_open_elsewhere { |_: &mut Self, _: &mut _| Ok(0) } else { part }
        };
        let parts: [(&str, SweepPart<'p>); 6] = [
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
        self.spool.keep_calendar(calendar);
        if removed.iter().any(|(_, removed)| *removed > 0) {
            let counts = removed.map(|(what, removed)| (what.to_owned(), json!(removed)));
            let data = serde_json::Map::from_iter(counts);
            self.recorder.record(types::HISTORY_SWEPT, ACTOR, data.into());
        }
    }

    fn kept_duration(&self) -> Duration {
        self.project.config.history_kept()
    }

    fn rejected(&mut self, calendar: &mut Calendar) -> Result<usize> {
        history::sweep_rejected(self.spool, calendar, self.kept_duration())
    }

    /// An attachment is kept as long as a settled message is.
    fn attachments(&mut self, calendar: &mut Calendar) -> Result<usize> {
        history::sweep_attachments(self.spool, calendar, retention(self.spool)?)
    }

    fn reviews(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let keep = self.kept_duration();
        let is_old = &mut |stat: &FileStat| history::is_older(calendar, stat, keep);
        self.project.reviews().sweep(is_old, &mut || self.open())
    }

    fn batches(&mut self, calendar: &mut Calendar) -> Result<usize> {
        let (project, keep) = (self.project, self.kept_duration());
        let batches = Batches::new(&project.queue, &project.state, self.spool.durability());
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
        let (logs, keep) = (self.project.logs(), self.kept_duration());
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
        if self.project.has_steps() {
            let options = self.project.step_options(Arc::clone(self.recorder));
            let queues = self.project.open_steps(options)?.queues()?;
            open.extend(queues.into_iter().filter(|it| it.is_open()).map(|it| it.task_id));
        }
        self.open = Some(open.clone());
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ensemble_core::event_log::{EventLog, NullRecorder};

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
        let recorder: Arc<dyn Recorder> = Arc::new(NullRecorder);
        let begin = Instant::now();
        let sweep = || {
            let mut history = HistorySweep::new(Monotonic::ZERO);
            history.drive(Monotonic::ZERO + FIRST_AFTER, &project, &spool, &recorder);
            history.running.take().unwrap().join().unwrap();
        };
        while rejected.exists() {
            assert!(begin.elapsed() < PATIENCE, "it is older than no day");
            sweep();
        }
        // The last one may have met the segments when they were too young.
        sweep();
        let logs = std::fs::read_dir(project.logs()).unwrap().map(|entry| entry.unwrap().path());
        logs.filter(|path| path.extension().is_some_and(|it| it == "ndjson")).count()
    }

    #[test]
    fn old_segments_go_but_where_the_open_work_is_on_servers() {
        assert_eq!(segments_left("history: 0\n"), 1);
        assert_eq!(segments_left("history: 0\ntransport: nats://127.0.0.1:1\n"), 2);
    }
}
