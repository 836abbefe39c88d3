//! Counting how often a task comes back from review (`loop_detected` of seed 002).
//!
//! ```text
//! review          what is counted                         after `cycles_max`
//! needs_fix       one more cycle, once for each review    `loop_detected`, a file for the conductor,
//!                                                         and a stop: no further report is taken
//! approved        nothing
//! ```
//!
//! Each review is recorded once, as `review_result`, with a `review_start` before it. A reviewer that
//! says beforehand that it begins ([`ReviewCounts::begin`]) has its `review_start` at that time.
//!
//! The count is in `.ensemble/reviews/<task>.yaml`, changed under the lock of the directory. A review that is seen
//! twice (by the command that wrote it and by the watcher that routes it) counts once. The conductor is notified
//! before the stop is written down: a crash in between repeats the notice, but never loses it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::task_reports::read_reports;
use ensemble_core::durable::{
    Dir, Durability, FileLock, FileModes, FileStat, make_directory, temporary_name,
};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::fields::{REVIEWER_FIELDS, agent_of_text, field_text, plain_task};
use ensemble_core::message::written::document;
use ensemble_core::message::{Digest, Name, Timestamp, yaml};
use ensemble_core::{Result, allow_missing};
use ensemble_reports::contract::{self, EscalationReport, Review, Verdict};

pub const REVIEW_CYCLES_DEFAULT: u32 = 3;
/// How long another process's count is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Only ever locked. No task's file has its name.
const LOCK_FILE: &str = ".lock";
const BYTES_MAX: usize = 64 * 1024;
/// How many reviews of a task are remembered one by one.
const SEEN_MAX: usize = 100;
const ACTOR: &str = "ensemble";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewCount {
    pub task_id: String,
    /// How often it came back since the last decision.
    pub cycles: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    /// Reviewers that have begun and have not said their verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewing: Vec<String>,
    #[serde(default)]
    seen: Vec<String>,
}

impl ReviewCount {
    fn none_of(task: &str) -> Self {
        Self { task_id: task.to_owned(), ..Self::default() }
    }

    /// Why no further report of the task is taken; `None` if one is.
    pub fn refusal(&self) -> Option<String> {
        let Self { task_id: task, cycles, stopped_at, .. } = self;
        stopped_at.map(|_| format!("{task} came back from review {cycles} times and was stopped"))
    }
}

#[derive(Clone, Debug)]
pub struct ReviewCounts {
    queue: PathBuf,
    dir: PathBuf,
    pub cycles_max: u32,
}

impl ReviewCounts {
    /// The counts of a queue, in its state directory. At most `cycles_max` cycles, 3 unless given.
    pub fn new(queue: &Path, state: &Path, cycles_max: Option<u32>) -> Self {
        let cycles_max = cycles_max.unwrap_or(REVIEW_CYCLES_DEFAULT).max(1);
        Self { queue: queue.to_owned(), dir: state.join("reviews"), cycles_max }
    }

    pub fn get(&self, task: &str) -> Result<ReviewCount> {
        match self.dir.is_dir() {
            true => read_count(&Dir::open(&self.dir)?, task),
            false => Ok(ReviewCount::none_of(task)),
        }
    }

    fn author_of(&self, task: &str) -> Result<Option<Name>> {
        let dir = allow_missing(Dir::open(&self.queue.join("reports")))?;
        let Some(dir) = dir else { return Ok(None) };
        let reports = read_reports(&dir, task, &dir.names()?)?;
        Ok(reports.first().and_then(|file| agent_of_text(file.report.author()?)))
    }

    pub fn is_by(&self, task: &str, worker: &Name) -> Result<bool> {
        let is_it = |author: Name| author.as_str().eq_ignore_ascii_case(worker.as_str());
        Ok(self.author_of(task)?.is_some_and(is_it))
    }

    /// Whether a review names the worker that has done the task as its reviewer. A `worker_id` may also mean the worker
    /// whose work it is.
    pub fn is_own(&self, task: &str, review: &str) -> Result<bool> {
        let fields: Value = yaml::read(&document(review)).unwrap_or_default();
        let reviewer = field_text(&fields, &REVIEWER_FIELDS).and_then(|name| agent_of_text(&name));
        reviewer.map_or(Ok(false), |reviewer| self.is_by(task, &reviewer))
    }

    /// Counts a review by its file's content. A file that is not a readable review does not count, and neither does a
    /// review of its author's own work.
    pub fn count(
        &self,
        file: &str,
        content: &[u8],
        recorder: &dyn Recorder,
    ) -> Result<Option<ReviewCount>> {
        let Ok(text) = std::str::from_utf8(content) else { return Ok(None) };
        let Some(review) = contract::read_whole::<Review>(text, Path::new(file)) else {
            return Ok(None);
        };
        if self.is_own(&review.task_id, text)? {
            return Ok(None);
        }
        let digest = Digest::of(content).short(16);
        self.change(&review.task_id, |count| {
            if count.seen.contains(&digest) {
                return Ok(false);
            }
            count.seen.push(digest);
            count.seen.drain(..count.seen.len().saturating_sub(SEEN_MAX));
            let reviewer = review.reviewer.as_deref().unwrap_or(ACTOR);
            start(count, reviewer, recorder);
            count.reviewing.retain(|begun| begun != reviewer);
            let is_back = review.status == Verdict::NeedsFix;
            count.cycles += u32::from(is_back);
            recorder.record(types::REVIEW_RESULT, reviewer, json!({
                "task_id": count.task_id, "reviewer": review.reviewer, "status": review.status.as_str(),
                "findings": review.findings.len(), "cycles": count.cycles, "file": file,
            }));
            if is_back && count.cycles >= self.cycles_max && count.stopped_at.is_none() {
                count.stopped_at = Some(SystemClock.wall());
                self.stop(count, &review, recorder)?;
            }
            Ok(true)
        })
        .map(Some)
    }

    /// A reviewer begins. Saying it again before the verdict changes nothing.
    pub fn begin(
        &self,
        task: &str,
        reviewer: &Name,
        recorder: &dyn Recorder,
    ) -> Result<ReviewCount> {
        self.change(task, |count| Ok(start(count, reviewer.as_str(), recorder)))
    }

    /// Resumes a stopped task after a decision, and resets its count of cycles.
    pub fn lift(&self, task: &str) -> Result<ReviewCount> {
        self.change(task, |count| {
            (count.cycles, count.stopped_at) = (0, None);
            Ok(true)
        })
    }

    fn change(
        &self,
        task: &str,
        change: impl FnOnce(&mut ReviewCount) -> Result<bool>,
    ) -> Result<ReviewCount> {
        make_directory(&self.dir)?;
        let name = count_file(task);
        let _lock = FileLock::acquire(&self.dir.join(LOCK_FILE), LOCK_PATIENCE)?;
        let dir = Dir::open(&self.dir)?;
        let mut count = read_count(&dir, task)?;
        if change(&mut count)? {
            let (text, tmp) = (yaml::render(&count), format!(".{}", temporary_name(&name)));
            let modes = FileModes::default();
            dir.replace_by(&name, text.as_bytes(), &dir, &tmp, modes, Durability::Power)?;
        }
        Ok(count)
    }

    /// Forgets counts that are old by `is_old`, unless their task is one that `open` returns, or is stopped. Also
    /// removes what killed processes have left. `open` is called once, if something is old. Returns how many files
    /// were removed.
    pub fn sweep(
        &self,
        is_old: &mut dyn FnMut(&FileStat) -> bool,
        open: &mut dyn FnMut() -> Result<BTreeSet<String>>,
    ) -> Result<usize> {
        if !self.dir.is_dir() {
            return Ok(0);
        }
        let _lock = FileLock::acquire(&self.dir.join(LOCK_FILE), LOCK_PATIENCE)?;
        let dir = Dir::open(&self.dir)?;
        let mut old = dir.names()?;
        old.retain(|name| {
            name != LOCK_FILE && dir.stat(name).is_ok_and(|it| it.is_some_and(|it| is_old(&it)))
        });
        if old.is_empty() {
            return Ok(0);
        }
        let open: BTreeSet<String> = open()?.iter().map(|task| count_file(task)).collect();
        old.retain(|name| {
            !name.ends_with(".yaml") || (!open.contains(name) && !is_stopped(&dir, name))
        });
        old.iter().try_for_each(|name| dir.remove(name))?;
        Ok(old.len())
    }

    fn stop(&self, count: &ReviewCount, review: &Review, recorder: &dyn Recorder) -> Result<()> {
        let findings = review.findings.len();
        let mut escalation = EscalationReport::new(&count.task_id, "review_loop");
        escalation.detail = Some(format!(
            "{} reviews in a row say needs_fix, the last one with {findings} findings",
            count.cycles
        ));
        let author = self.author_of(&count.task_id).unwrap_or_default();
        escalation.worker = author.map(String::from);
        escalation.from = Some(ACTOR.to_owned());
        escalation.escalated_at = count.stopped_at.map(|at| at.to_string());
        escalation.action = Some("decide: change the task, or lift the stop".to_owned());
        let queue = Dir::open(&self.queue)?;
        let tmp = queue.ensure_child("tmp", FileModes::default())?;
        let reports = queue.ensure_child("reports", FileModes::default())?;
        let text = contract::write(&escalation);
        let file = ensemble_core::driver::file_name(&count.task_id);
        reports.replace(&file, text.as_bytes(), &tmp, FileModes::default(), Durability::Power)?;
        recorder.record(
            types::LOOP_DETECTED,
            review.reviewer.as_deref().unwrap_or(ACTOR),
            json!({
                "task_id": count.task_id, "cycles": count.cycles, "limit": self.cycles_max,
                "file": format!("reports/{file}"),
            }),
        );
        Ok(())
    }
}

/// The file of a task's count, in whichever spelling its reviews name the task.
fn count_file(task: &str) -> String {
    format!("{}.yaml", file_stem(&plain_task(task)))
}

fn read_count(dir: &Dir, task: &str) -> Result<ReviewCount> {
    let name = count_file(task);
    let content = dir.read(&name, BYTES_MAX)?;
    content.map_or_else(|| Ok(ReviewCount::none_of(task)), |it| parse(&it, &dir.path().join(name)))
}

fn is_stopped(dir: &Dir, name: &str) -> bool {
    let count = dir.read(name, BYTES_MAX).ok().flatten();
    let count = count.and_then(|content| parse(&content, &dir.path().join(name)).ok());
    count.is_some_and(|count| count.stopped_at.is_some())
}

fn start(count: &mut ReviewCount, reviewer: &str, recorder: &dyn Recorder) -> bool {
    if count.reviewing.iter().any(|begun| begun == reviewer) {
        return false;
    }
    let data = json!({ "task_id": count.task_id, "reviewer": reviewer });
    recorder.record(types::REVIEW_START, reviewer, data);
    count.reviewing.push(reviewer.to_owned());
    count.reviewing.drain(..count.reviewing.len().saturating_sub(SEEN_MAX));
    true
}

fn parse(content: &[u8], path: &Path) -> Result<ReviewCount> {
    yaml::parse(&String::from_utf8_lossy(content), path)
}

/// How the names of a task's files begin: what has no place in a name becomes `_`, and a digest keeps
/// such tasks apart.
pub fn file_stem(task: &str) -> String {
    let name = ensemble_core::driver::file_name(task);
    let name = name.strip_prefix("escalation-").unwrap_or(&name);
    name.strip_suffix(".yaml").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::event_log::NullRecorder;

    fn review(task: &str, number: u32, status: &str) -> Vec<u8> {
        format!("task_id: {task}\nreviewer: w-2\nstatus: {status}\nround: {number}\n").into_bytes()
    }

    #[test]
    fn the_third_needs_fix_stops_the_task_and_the_same_review_counts_once() {
        let home = tempfile::tempdir().unwrap();
        let queue = home.path().join("queue");
        std::fs::create_dir(&queue).unwrap();
        let reviews = ReviewCounts::new(&queue, &home.path().join("state"), None);
        let count = |content: &[u8]| {
            reviews.count("x-review.yaml", content, &NullRecorder).unwrap().map(|c| c.cycles)
        };
        assert_eq!(reviews.get("t").unwrap().cycles, 0);
        assert_eq!(count(&review("t", 1, "needs_fix")), Some(1));
        assert_eq!(count(&review("t", 1, "needs_fix")), Some(1), "the same one again");
        assert_eq!(count(&review("t", 2, "approved")), Some(1));
        assert_eq!(count(&review("u", 1, "rejected")), Some(1), "another task");
        assert_eq!(count(b"not a review"), None);
        assert_eq!(count(&review("'#T'", 3, "NEEDS-FIX")), Some(2), "another spelling of it");
        assert!(reviews.get("t").unwrap().stopped_at.is_none());
        assert_eq!(count(&review("t", 4, "needs_fix")), Some(3));
        assert!(reviews.get("t").unwrap().stopped_at.is_some());
        let told = std::fs::read_to_string(queue.join("reports/escalation-t.yaml")).unwrap();
        assert!(told.contains("review_loop") && told.contains("3 reviews in a row"), "{told}");
        let report = "task_id: v\nworker_id: W-2\nstatus: success\n";
        std::fs::write(queue.join("reports/v-completed.yaml"), report).unwrap();
        assert_eq!(count(&review("v", 1, "needs_fix")), None, "its author has reviewed it");
        let none = &mut || Ok(BTreeSet::new());
        let open = &mut || Ok(BTreeSet::from(["u".to_owned()]));
        assert_eq!(reviews.sweep(&mut |_| false, none).unwrap(), 0, "nothing is old");
        assert_eq!(reviews.sweep(&mut |_| true, open).unwrap(), 0, "one is stopped, one is open");
        assert_eq!(reviews.sweep(&mut |_| true, none).unwrap(), 1);
        assert_eq!([reviews.get("u").unwrap().cycles, reviews.get("t").unwrap().cycles], [0, 3]);
        assert_eq!(reviews.lift("t").unwrap().cycles, 0);
        assert!(reviews.get("t").unwrap().stopped_at.is_none());
    }
}
