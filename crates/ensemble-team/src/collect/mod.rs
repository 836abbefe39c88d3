//! Gathering the reports of a batch, and reporting it once (seed 002: Dispatch).
//!
//! ```text
//! state       event / time                       -> state      effects
//! Gathering   Reported, the last one             -> Writing    Write complete
//! Gathering   Reported, others are missing       -> Gathering  (the patience begins anew)
//! Gathering   Reported success, under review     -> Gathering  (final once the verdicts are in)
//! Gathering   Reviewed needs_fix                 -> Gathering  (the task is awaited again)
//! Gathering   Stopped                            -> Gathering, or Writing if it was the last
//! Gathering   patience over (3 min)              -> Gathering  PatienceEnded, Look
//! Gathering   interval over (30 s)               -> Gathering  Look
//! Gathering   deadline                           -> Writing    Look, Write partial
//! Writing     WriteFailed                        -> Writing    Write again after RETRY
//! Writing     Stopped                            -> Writing    (it is told as stopped if written again)
//! Writing     Written                            -> Done       -
//! Done        anything                           -> Done       -
//! ```
//!
//! Reports are normally announced by an event; polling only limits how long a lost event goes unnoticed. Reading a
//! report twice changes nothing, and a later version replaces the earlier one until the summary is written. Silence:
//! at the deadline the summary has the reports that exist and names the missing ones. A crash loses nothing, since
//! everything is read again from the files; the writer makes sure that a batch is reported once (`driver::Batches`).
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::proto::patience::{CONDUCTOR_PATIENCE, DISPATCH_PATIENCE, DISPATCH_POLL_INTERVAL};
use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;
use ensemble_reports::contract::{Status, Verdict, VerdictRule};

/// How long a batch may take, unless said otherwise: Conductor must be notified before it gives up.
pub const DEADLINE: Duration = Duration::from_secs(29 * 60);
/// How soon a summary that could not be written is tried again.
pub const RETRY: Duration = Duration::from_secs(2);

const _: () = assert!(DEADLINE.as_secs() < CONDUCTOR_PATIENCE.as_secs());
const _: () = assert!(RETRY.as_secs() < DISPATCH_POLL_INTERVAL.as_secs());

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// How long to wait for an event before polling.
    pub patience: Duration,
    pub poll_interval: Duration,
    /// After how long to write a summary of what there is.
    pub deadline: Duration,
    /// The rule that the reviews of a task must satisfy before it counts as done; `None` for no reviews.
    pub accept: Option<VerdictRule>,
    pub reviewers: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            patience: DISPATCH_PATIENCE,
            poll_interval: DISPATCH_POLL_INTERVAL,
            deadline: DEADLINE,
            accept: None,
            reviewers: 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Reported {
        task: String,
        status: Status,
    },
    Reviewed {
        task: String,
        reviewer: String,
        verdict: Verdict,
    },
    /// A task came back from review too often and does not continue.
    Stopped {
        task: String,
    },
    /// The summary is written, by this process or another.
    Written,
    WriteFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Record that no report came in time.
    PatienceEnded,
    Look,
    Write {
        /// Every task is accounted for.
        is_complete: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskProgress {
    Awaited,
    /// It is reported as done, and not every reviewer has said something.
    UnderReview {
        verdicts: BTreeMap<String, Verdict>,
    },
    /// A reviewer wants it changed, and there is no new report.
    NeedsFix,
    Ended {
        status: Status,
    },
    /// It came back too often.
    Stopped,
}

impl TaskProgress {
    const fn is_final(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Stopped)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gathering { look_at: Monotonic, was_patient: bool },
    Writing { is_complete: bool, retry_at: Option<Monotonic> },
    Done,
}

#[derive(Clone, Debug)]
pub struct Collect {
    limits: BatchLimits,
    deadline: Monotonic,
    tasks: BTreeMap<String, TaskProgress>,
    state: State,
    effects: VecDeque<Effect>,
}

impl Collect {
    /// A batch of these tasks, begun now.
    pub fn new<T: Into<String>>(
        now: Monotonic,
        tasks: impl IntoIterator<Item = T>,
        limits: BatchLimits,
    ) -> Self {
        let tasks = tasks.into_iter().map(|task| (task.into(), TaskProgress::Awaited)).collect();
        let state = State::Gathering { look_at: now + limits.patience, was_patient: false };
        let deadline = now + limits.deadline;
        let mut batch = Self { limits, deadline, tasks, state, effects: VecDeque::new() };
        batch.end_if_all_are_final();
        batch
    }

    pub const fn tasks(&self) -> &BTreeMap<String, TaskProgress> {
        &self.tasks
    }

    fn reported(&mut self, task: &str, status: Status) -> bool {
        let is_reviewed = self.limits.accept.is_some() && status == Status::Success;
        let Some(progress) = self.tasks.get_mut(task) else { return false };
        let next = match (&*progress, is_reviewed) {
            // Said twice, or its review is under way.
            (TaskProgress::UnderReview { .. }, true) | (TaskProgress::Stopped, _) => return false,
            (TaskProgress::Ended { status: Status::Success }, true) => return false,
            (_, true) => TaskProgress::UnderReview { verdicts: BTreeMap::new() },
            (_, false) => TaskProgress::Ended { status },
        };
        let is_new = *progress != next;
        *progress = next;
        is_new
    }

    fn reviewed(&mut self, task: &str, reviewer: String, verdict: Verdict) -> bool {
        let Some(TaskProgress::UnderReview { verdicts }) = self.tasks.get_mut(task) else {
            return false;
        };
        if verdicts.insert(reviewer, verdict) == Some(verdict) {
            return false;
        }
        let words: Vec<&str> = verdicts.values().map(|verdict| verdict.as_str()).collect();
        let is_accepted = words.len() >= self.limits.reviewers
            && self.limits.accept.as_ref().is_none_or(|rule| rule.holds(words.iter().copied()));
        let next = if is_accepted {
            Some(TaskProgress::Ended { status: Status::Success })
        } else {
            (verdict == Verdict::NeedsFix).then_some(TaskProgress::NeedsFix)
        };
        if let Some(next) = next {
            self.tasks.insert(task.to_owned(), next);
        }
        true
    }

    fn stopped(&mut self, task: &str) -> bool {
        match self.tasks.get_mut(task) {
            None | Some(TaskProgress::Stopped) => false,
            Some(progress) => {
                *progress = TaskProgress::Stopped;
                true
            }
        }
    }

    fn end_if_all_are_final(&mut self) {
        if self.tasks.values().all(TaskProgress::is_final) {
            self.write(true);
        }
    }

    fn write(&mut self, is_complete: bool) {
        self.state = State::Writing { is_complete, retry_at: None };
        self.effects.push_back(Effect::Write { is_complete });
    }
}

impl Machine for Collect {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        match (self.state, event) {
            (State::Gathering { .. }, Event::Reported { task, status }) => {
                if self.reported(&task, status) {
                    let look_at = now + self.limits.patience;
                    self.state = State::Gathering { look_at, was_patient: false };
                    self.end_if_all_are_final();
                }
            }
            (State::Gathering { .. }, Event::Reviewed { task, reviewer, verdict }) => {
                if self.reviewed(&task, reviewer, verdict) {
                    self.end_if_all_are_final();
                }
            }
            (State::Gathering { .. }, Event::Stopped { task }) => {
                if self.stopped(&task) {
                    self.end_if_all_are_final();
                }
            }
            // Another process has published the summary.
            (State::Gathering { .. } | State::Writing { .. }, Event::Written) => {
                self.effects.clear();
                self.state = State::Done;
            }
            (State::Writing { is_complete, .. }, Event::WriteFailed) => {
                self.state = State::Writing { is_complete, retry_at: Some(now + RETRY) };
            }
            // Count the stop: if the summary is written again, it must not list the task as done.
            (State::Writing { .. }, Event::Stopped { task }) => {
                self.stopped(&task);
            }
            // Too late for the summary that is being written, but not lost: the files remain.
            (
                _,
                Event::Reported { .. }
                | Event::Reviewed { .. }
                | Event::Stopped { .. }
                | Event::Written
                | Event::WriteFailed,
            ) => {}
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        match self.state {
            State::Gathering { .. } if now >= self.deadline => {
                self.effects.push_back(Effect::Look);
                self.write(false);
            }
            State::Gathering { look_at, was_patient } if now >= look_at => {
                if !was_patient {
                    self.effects.push_back(Effect::PatienceEnded);
                }
                self.effects.push_back(Effect::Look);
                let look_at = now + self.limits.poll_interval;
                self.state = State::Gathering { look_at, was_patient: true };
            }
            State::Writing { is_complete, retry_at: Some(at) } if now >= at => {
                self.write(is_complete);
            }
            State::Gathering { .. } | State::Writing { .. } | State::Done => {}
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Gathering { look_at, .. } => Some(look_at.min(self.deadline)),
            State::Writing { retry_at, .. } => retry_at,
            State::Done => None,
        }
    }
}

#[cfg(test)]
mod tests;
