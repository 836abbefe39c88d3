//! Tasks on their way: queued, in hands, in review, stopped. One task is one track, however it came: as a message, on
//! the blackboard, or as steps.
//!
//! | record | the task is then |
//! |---|---|
//! | `message.stored` of a task, `message.released`, `message.redriven` | queued |
//! | `message.acked`, `step.taken` | in the hands of the actor |
//! | `board.written` | as the status of its step says |
//! | `message.settled`, `message.withdrawn`, `steps.done` | over |
//! | `message.dead` | a dead letter |
//! | `step.completed`, `step.failed` | queued: the next step or attempt |
//! | `step.blocked` | stopped |

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::message::Timestamp;

const TASKS_MAX: usize = 5_000;
const SPANS_MAX: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TaskStage {
    Queued,
    Held,
    Review,
    Stopped,
    Dead,
    /// Over; no span is drawn.
    Over,
}

#[derive(Clone, Debug)]
pub(super) struct TaskSpan {
    pub(super) stage: TaskStage,
    /// The agent that has it; the mailbox of one that is queued.
    pub(super) who: String,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) is_open: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TaskTrack {
    pub(super) spans: Vec<TaskSpan>,
    now: Option<(TaskStage, String, Timestamp)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SessionWork {
    pub(super) tracks: BTreeMap<String, TaskTrack>,
    pub(super) hidden: u64,
}

impl SessionWork {
    /// A task is something else from now on. Returns the stretch that has ended.
    pub(super) fn enter(
        &mut self,
        task: &str,
        at: Timestamp,
        stage: TaskStage,
        who: &str,
    ) -> Option<TaskSpan> {
        if !self.tracks.contains_key(task) && self.tracks.len() >= TASKS_MAX {
            self.hidden += 1;
            return None;
        }
        let track = self.tracks.entry(task.to_owned()).or_default();
        if let Some((now, by, _)) = &track.now
            && (*now, by.as_str()) == (stage, who)
        {
            return None;
        }
        let ended = track.close(at, false);
        track.now = (stage != TaskStage::Over).then(|| (stage, who.to_owned(), at));
        ended
    }

    /// Closes all open spans at the end of the log.
    pub(super) fn finish(&mut self, end: Timestamp) -> Vec<(String, TaskSpan)> {
        let tracks = self.tracks.iter_mut();
        tracks.filter_map(|(task, track)| Some((task.clone(), track.close(end, true)?))).collect()
    }

    pub(super) fn last_holder(&self, task: &str) -> String {
        let track = self.tracks.get(task);
        let spans = track.into_iter().flat_map(|track| track.spans.iter().rev());
        let mut held = spans.filter(|span| span.stage == TaskStage::Held);
        held.next().map_or_else(String::new, |span| span.who.clone())
    }

    pub(super) fn held_by(&self, agent: &str) -> Vec<String> {
        let is_held = |track: &TaskTrack| matches!(&track.now, Some((TaskStage::Held, who, _)) if who == agent);
        let held = self.tracks.iter().filter(|(_, track)| is_held(track));
        held.map(|(task, _)| task.clone()).collect()
    }
}

impl TaskTrack {
    fn close(&mut self, at: Timestamp, is_open: bool) -> Option<TaskSpan> {
        let (stage, who, from) = self.now.take()?;
        let span = TaskSpan { stage, who, from, to: at, is_open };
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span.clone());
        }
        Some(span)
    }

    pub(super) fn time_in(&self, stage: TaskStage) -> Duration {
        let spans = self.spans.iter().filter(|span| span.stage == stage);
        spans.map(|span| span.to.since(span.from)).sum()
    }

    fn last_stage(&self) -> TaskStage {
        self.spans.last().filter(|span| span.is_open).map_or(TaskStage::Over, |span| span.stage)
    }

    pub(super) fn outcome(&self) -> &'static str {
        match self.last_stage() {
            TaskStage::Queued => "waits",
            TaskStage::Held => "in hand",
            TaskStage::Review => "in review",
            TaskStage::Stopped => "stopped",
            TaskStage::Dead => "dead letter",
            TaskStage::Over => "over",
        }
    }

    /// The worst first: dead, stopped, then what is not over, then the rest.
    pub(super) fn rank(&self) -> u8 {
        match self.last_stage() {
            TaskStage::Dead => 0,
            TaskStage::Stopped => 1,
            TaskStage::Queued | TaskStage::Held | TaskStage::Review => 2,
            TaskStage::Over => 3,
        }
    }
}
