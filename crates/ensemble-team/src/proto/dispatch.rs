//! One batch of Dispatch: which task may be handed out, which comes again, and which never will.
//!
//! ```text
//! task      event                                 -> task       the driver then
//! Waiting   Chosen                                -> Chosen     publishes the message of this attempt
//! Chosen    Stored                                -> Given
//! Chosen, Given  Reported success                 -> Done       may hand out what waited for it
//! Chosen, Given  Reported failure, Lost; attempts are left  -> Waiting    hands it out again after the delay
//! Chosen, Given  Reported failure, Lost; it was the last    -> Failed     tells of it
//! Waiting   a task that it waits for is Failed or Blocked   -> Blocked    tells of it
//! any       any other                             -> same       (Refused)
//! ```
//!
//! A state is a value: [`next_at`] takes one and an event, and gives the next one. The driver writes
//! it to a file before it acts on it. So a process that is killed leaves a choice that the next one
//! carries out. *Silence* is not this machine's affair: each delivery has its ladder, whose end is
//! [`Event::Lost`].

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::message::Name;
use serde::{Deserialize, Serialize};

/// How often a task is handed out unless its policy says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 1;
pub const ATTEMPTS_MAX: u32 = 99;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlan {
    pub id: String,
    pub blocked_by: Vec<String>,
    pub worker: Option<Name>,
    pub attempts_max: u32,
    pub delay: Duration,
}

impl TaskPlan {
    /// A task for any worker, which is handed out once.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            blocked_by: Vec::new(),
            worker: None,
            attempts_max: ATTEMPTS_DEFAULT,
            delay: Duration::ZERO,
        }
    }

    pub fn after(mut self, task: impl Into<String>) -> Self {
        self.blocked_by.push(task.into());
        self
    }

    pub fn by(mut self, worker: Option<Name>) -> Self {
        self.worker = worker;
        self
    }

    /// Handed out so often at most, each time after this delay.
    pub fn retried(mut self, attempts_max: u32, delay: Duration) -> Self {
        self.attempts_max = attempts_max.clamp(1, ATTEMPTS_MAX);
        self.delay = delay;
        self
    }
}

/// A batch. Its driver has refused one with a circle or an unknown dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many tasks are in the hands of workers at a time, at most.
    pub worker_count: usize,
    pub tasks: Vec<TaskPlan>,
}

impl Plan {
    pub const fn new(worker_count: usize, tasks: Vec<TaskPlan>) -> Self {
        Self { worker_count, tasks }
    }

    fn task(&self, id: &str) -> Option<&TaskPlan> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHandout {
    pub worker: Name,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The version of the task's report that existed before, and does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_before: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TaskState {
    Waiting {
        /// The attempt that comes next.
        attempt: u32,
        /// Not before this time, in milliseconds of the driver's clock.
        not_before_ms: u64,
    },
    /// Its worker is chosen; the message may not be stored yet.
    Chosen(TaskHandout),
    Given(TaskHandout),
    Done {
        worker: Name,
        summary: Option<String>,
    },
    /// It will not be handed out again.
    Failed {
        worker: Name,
        attempts: u32,
        reason: String,
    },
    Blocked {
        by: String,
    },
}

impl TaskState {
    pub const fn hand(&self) -> Option<&TaskHandout> {
        match self {
            Self::Chosen(hand) | Self::Given(hand) => Some(hand),
            _ => None,
        }
    }

    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. } | Self::Blocked { .. })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub tasks: BTreeMap<String, TaskState>,
}

impl State {
    pub fn new(plan: &Plan) -> Self {
        let waiting = TaskState::Waiting { attempt: 1, not_before_ms: 0 };
        let tasks = plan.tasks.iter().map(|task| (task.id.clone(), waiting.clone())).collect();
        Self { tasks }
    }

    pub fn is_over(&self) -> bool {
        self.tasks.values().all(TaskState::is_over)
    }

    pub fn hands(&self) -> impl Iterator<Item = (&String, &TaskHandout)> {
        self.tasks.iter().filter_map(|(task, state)| Some((task, state.hand()?)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ready worker was chosen for it.
    Chosen {
        worker: Name,
        report_before: Option<String>,
    },
    Stored,
    Reported {
        is_success: bool,
        /// Summary, or the reason of the failure.
        summary: Option<String>,
    },
    /// The hand-out came to nothing.
    Lost {
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchRefusal;

/// The state after an event, at this time of the driver's clock, in milliseconds. Nothing changes by one that is refused.
pub fn next_at(
    plan: &Plan,
    state: &State,
    task: &str,
    event: Event,
    now_ms: u64,
) -> Result<State, DispatchRefusal> {
    let (Some(task_plan), Some(before)) = (plan.task(task), state.tasks.get(task)) else {
        return Err(DispatchRefusal);
    };
    let after = match (before, event) {
        (TaskState::Waiting { attempt, .. }, Event::Chosen { worker, report_before }) => {
            TaskState::Chosen(TaskHandout { worker, attempt: *attempt, report_before })
        }
        (TaskState::Chosen(hand), Event::Stored) => TaskState::Given(hand.clone()),
        (
            TaskState::Chosen(hand) | TaskState::Given(hand),
            Event::Reported { is_success, summary },
        ) => match is_success {
            true => TaskState::Done { worker: hand.worker.clone(), summary },
            false => {
                let reason = summary.unwrap_or_else(|| "no reason was given".to_owned());
                failed(task_plan, hand, reason, now_ms)
            }
        },
        (TaskState::Chosen(hand) | TaskState::Given(hand), Event::Lost { reason }) => {
            failed(task_plan, hand, reason, now_ms)
        }
        (_, Event::Chosen { .. } | Event::Stored | Event::Reported { .. } | Event::Lost { .. }) => {
            return Err(DispatchRefusal);
        }
    };
    let mut next = state.clone();
    next.tasks.insert(task.to_owned(), after);
    block(plan, &mut next);
    Ok(next)
}

fn failed(plan: &TaskPlan, hand: &TaskHandout, reason: String, now_ms: u64) -> TaskState {
    if hand.attempt < plan.attempts_max {
        let delay = u64::try_from(plan.delay.as_millis()).unwrap_or(u64::MAX);
        let not_before_ms = now_ms.saturating_add(delay);
        return TaskState::Waiting { attempt: hand.attempt + 1, not_before_ms };
    }
    TaskState::Failed { worker: hand.worker.clone(), attempts: hand.attempt, reason }
}

/// Blocks what waits for a task that was not done, and what waits for that.
fn block(plan: &Plan, state: &mut State) {
    loop {
        let not_done = |id: &String| {
            matches!(
                state.tasks.get(id),
                Some(TaskState::Failed { .. } | TaskState::Blocked { .. })
            )
        };
        let waits =
            |task: &&TaskPlan| matches!(state.tasks.get(&task.id), Some(TaskState::Waiting { .. }));
        let next = plan.tasks.iter().filter(waits).find_map(|task| {
            Some((task.id.clone(), task.blocked_by.iter().find(|id| not_done(id))?.clone()))
        });
        let Some((task, by)) = next else { return };
        state.tasks.insert(task, TaskState::Blocked { by });
    }
}

/// The tasks that can be handed out now, in the order of the instruction: as many as workers may be at
/// work.
pub fn ready<'a>(plan: &'a Plan, state: &State, now_ms: u64) -> Vec<&'a str> {
    let room = plan.worker_count.saturating_sub(state.hands().count());
    let is_done = |id: &String| matches!(state.tasks.get(id), Some(TaskState::Done { .. }));
    let is_due = |task: &&TaskPlan| {
        matches!(state.tasks.get(&task.id),
            Some(TaskState::Waiting { not_before_ms, .. }) if *not_before_ms <= now_ms)
    };
    let free = |task: &&TaskPlan| task.blocked_by.iter().all(is_done);
    plan.tasks.iter().filter(is_due).filter(free).take(room).map(|task| &*task.id).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::testing::variant;

    fn worker() -> Name {
        Name::new("worker-1").unwrap()
    }

    type Next = Result<State, DispatchRefusal>;

    fn next(plan: &Plan, state: &State, task: &str, event: Event) -> Next {
        next_at(plan, state, task, event, 0)
    }

    fn chosen() -> Event {
        Event::Chosen { worker: worker(), report_before: None }
    }

    fn reported(is_success: bool) -> Event {
        Event::Reported { is_success, summary: Some("said".to_owned()) }
    }

    fn lost() -> Event {
        Event::Lost { reason: "unanswered".to_owned() }
    }

    #[test]
    fn every_pair_of_state_and_event() {
        let plan = Plan::new(1, vec![TaskPlan::new("a"), TaskPlan::new("b").after("a")]);
        let start = State::new(&plan);
        let on = |state: &State, event| next(&plan, state, "a", event).unwrap();
        let given = on(&on(&start, chosen()), Event::Stored);
        let mut blocked = start.clone();
        blocked.tasks.insert("a".to_owned(), TaskState::Blocked { by: "b".to_owned() });
        let states = [
            start.clone(),
            on(&start, chosen()),
            given.clone(),
            on(&given, reported(true)),
            on(&given, lost()),
            blocked,
        ];
        for (event, expected) in [
            (chosen(), ["Chosen", "-", "-", "-", "-", "-"]),
            (Event::Stored, ["-", "Given", "-", "-", "-", "-"]),
            (reported(true), ["-", "Done", "Done", "-", "-", "-"]),
            (reported(false), ["-", "Failed", "Failed", "-", "-", "-"]),
            (lost(), ["-", "Failed", "Failed", "-", "-", "-"]),
        ] {
            let row = states.each_ref().map(|state| match next(&plan, state, "a", event.clone()) {
                Ok(state) => variant(&state.tasks["a"]),
                Err(DispatchRefusal) => "-".to_owned(),
            });
            assert_eq!(row, expected, "{event:?}");
        }
    }

    #[test]
    fn a_task_is_retried_by_its_policy_and_then_blocks_what_waits_for_it() {
        let again = TaskPlan::new("a").retried(2, Duration::from_secs(30));
        let tasks = vec![again, TaskPlan::new("b").after("a"), TaskPlan::new("c").after("b")];
        let plan = Plan::new(4, tasks);
        let state = next(&plan, &State::new(&plan), "a", chosen()).unwrap();
        let state = next_at(&plan, &state, "a", reported(false), 1_000).unwrap();
        assert_eq!(ready(&plan, &state, 30_999), [] as [&str; 0]);
        assert_eq!(ready(&plan, &state, 31_000), ["a"]);
        let state = next(&plan, &state, "a", chosen()).unwrap();
        assert_eq!(state.tasks["a"].hand().unwrap().attempt, 2);
        let state = next(&plan, &state, "a", lost()).unwrap();
        let states: Vec<String> = state.tasks.values().map(variant).collect();
        assert_eq!(states, ["Failed", "Blocked", "Blocked"]);
        assert_eq!(state.tasks["c"], TaskState::Blocked { by: "b".to_owned() });
        assert!(state.is_over());
    }

    proptest! {
        /// For any acts of workers: never more than this many at work, no task before those it waits
        /// for, and an end.
        #[test]
        fn a_batch_keeps_its_order_and_ends(
            worker_count in 1..5_usize,
            edges in prop::collection::vec((0..8_usize, 0..8_usize), 0..16),
            outcomes in prop::collection::vec(0..4_u8, 1..64),
        ) {
            let mut tasks: Vec<TaskPlan> =
                (0..8).map(|n| TaskPlan::new(n.to_string()).retried(1 + n % 3, Duration::ZERO)).collect();
            for (before, after) in edges.into_iter().filter(|(before, after)| before < after) {
                tasks[after].blocked_by.push(before.to_string());
            }
            let plan = Plan::new(worker_count, tasks);
            let mut state = State::new(&plan);
            let mut steps = outcomes.into_iter().cycle();
            for _ in 0..1_000 {
                for task in ready(&plan, &state, 0) {
                    let done = |id: &String| matches!(state.tasks[id], TaskState::Done { .. });
                    prop_assert!(plan.task(task).unwrap().blocked_by.iter().all(done));
                    state = next(&plan, &state, task, chosen()).unwrap();
                }
                prop_assert!(state.hands().count() <= worker_count);
                let Some((task, _)) = state.hands().next().map(|(task, hand)| (task.clone(), hand)) else { break };
                let event = match steps.next().unwrap() {
                    0 => reported(false),
                    1 => lost(),
                    _ => reported(true),
                };
                state = next(&plan, &state, &task, event).unwrap();
            }
            prop_assert!(state.is_over(), "{state:?}");
        }
    }
}
