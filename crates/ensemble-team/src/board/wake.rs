//! Reasons to wake a planner (seed 001, "Planner Startup").
//!
//! | call | condition |
//! |---|---|
//! | `INITIAL_PLANNING` | there are no tasks, or only DRAFTs while the goal is being planned |
//! | `BLOCKED_TASKS` | a task is BLOCKED |
//! | `INTEGRATION_FAILED` | a merge has failed, and no coder has claimed its repair; or an approved task cannot be merged |
//! | `HYPOTHESIS_EXHAUSTED` | too many coders failed at a task, so that no coder, or none that is registered, may claim it |
//! | `IMMEDIATE_DISCOVERY` | a discovery is immediate and not a task yet |
//! | `AGENT_GONE` | an agent lost its lease with a task in its hands, and no free agent can take the task |
//! | `GOAL_ASSESSMENT` | every task is finished, and the goal or the sprint is open |
//! | `PLAN_SUBMITTED` | plans of coders wait for this planner's review; the requests say so, not the board |
//!
//! The first five are the seed's; its assessment of the goal has no name there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::graph::{able_coders, active_task, can_be_taken, have_all_failed, is_left_behind};
use super::state::{BoardTask, State, TaskStatus};
use crate::proto::goal::{GoalState, SprintState};
use crate::proto::task::EXHAUSTED_BY;
use ensemble_core::message::Name;

/// Why a planner is needed; in the order of the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlannerWake {
    InitialPlanning,
    BlockedTasks,
    IntegrationFailed,
    HypothesisExhausted,
    ImmediateDiscovery,
    AgentGone,
    GoalAssessment,
    PlanSubmitted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PlannerCall {
    pub wake: PlannerWake,
    /// The tasks, discoveries or requests concerned.
    pub about: Vec<Name>,
}

pub fn wake(state: &State) -> Vec<PlannerCall> {
    let those = |wanted: &dyn Fn(&super::BoardTask) -> bool| -> Vec<Name> {
        state.tasks.iter().filter(|task| wanted(task)).map(|task| task.id.clone()).collect()
    };
    let drafts = those(&|task| task.status == TaskStatus::Draft);
    let is_over =
        |goal: &super::Goal| matches!(goal.status, Some(GoalState::Completed | GoalState::Aborted));
    let only_drafts = drafts.len() == state.tasks.len();
    let discovered = state.discovered.iter().filter(|discovery| discovery.is_urgent());
    let found = [
        (PlannerWake::BlockedTasks, those(&|task| task.status == TaskStatus::Blocked)),
        (PlannerWake::IntegrationFailed, those(&is_unmerged)),
        (PlannerWake::HypothesisExhausted, those(&|task| is_exhausted(state, task))),
        (
            PlannerWake::ImmediateDiscovery,
            discovered.map(|discovery| discovery.id.clone()).collect(),
        ),
        (
            PlannerWake::AgentGone,
            those(&|task| is_left_behind(task) && !is_taken_soon(state, task)),
        ),
        (
            PlannerWake::GoalAssessment,
            unassessed(state).map_or_else(Vec::new, |_| those(&|_| true)),
        ),
    ];
    let mut calls = Vec::new();
    if only_drafts && !state.goal.as_ref().is_some_and(is_over) {
        calls.push(PlannerCall { wake: PlannerWake::InitialPlanning, about: drafts });
    }
    let others = found.into_iter().filter(|(_, about)| !about.is_empty());
    calls.extend(others.map(|(wake, about)| PlannerCall { wake, about }));
    calls
}

/// One occurrence of a reason: a task that was blocked again is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakeOccurrence {
    wake: PlannerWake,
    about: Option<Name>,
    /// How often it has happened to that task.
    number: usize,
}

/// The single occurrences behind calls: a planner that has answered one is not called for it again.
pub fn occurrences(state: &State, calls: &[PlannerCall]) -> BTreeSet<WakeOccurrence> {
    let number = |wake: PlannerWake, id: &Name| -> usize {
        let Some(task) = state.task(id) else { return 0 };
        match wake {
            PlannerWake::BlockedTasks => task.times("blocked"),
            PlannerWake::IntegrationFailed => {
                task.times("integration_failed") + task.times("merge_refused")
            }
            PlannerWake::HypothesisExhausted => task.failed_by.len(),
            PlannerWake::AgentGone => {
                task.times("coder_claim_released") + task.times("review_claim_released")
            }
            _ => 0,
        }
    };
    let of = |call: &PlannerCall| -> Vec<WakeOccurrence> {
        let wake = call.wake;
        match call.about.as_slice() {
            [] => vec![WakeOccurrence { wake, about: None, number: 0 }],
            about => about
                .iter()
                .map(|id| WakeOccurrence {
                    wake,
                    about: Some(id.clone()),
                    number: number(wake, id),
                })
                .collect(),
        }
    };
    calls.iter().flat_map(of).collect()
}

/// The goal or the sprint that is open although every task is finished, as people name it.
pub(super) fn unassessed(state: &State) -> Option<String> {
    let is_done = !state.tasks.is_empty() && state.tasks.iter().all(|it| it.status.is_terminal());
    let goal = state.goal.as_ref().filter(|goal| {
        matches!(goal.status, None | Some(GoalState::Planning | GoalState::InProgress))
    });
    let sprint = state
        .sprint
        .as_ref()
        .filter(|sprint| matches!(sprint.status, None | Some(SprintState::InProgress)));
    let named = match (goal, sprint) {
        (Some(goal), _) => format!("goal {}", goal.id),
        (None, Some(sprint)) => format!("sprint {}", sprint.id),
        (None, None) => return None,
    };
    Some(named).filter(|_| is_done)
}

fn is_unmerged(task: &BoardTask) -> bool {
    match task.status {
        TaskStatus::IntegrationFailed => true,
        TaskStatus::Approved => task.merge_error.is_some(),
        _ => false,
    }
}

/// No coder may claim the task, or none that is here.
fn is_exhausted(state: &State, task: &BoardTask) -> bool {
    task.status.is_claimable()
        && (task.failed_by.len() >= EXHAUSTED_BY || have_all_failed(state, task))
}

/// Whether a registered agent is free to take the task.
fn is_taken_soon(state: &State, task: &BoardTask) -> bool {
    match task.status {
        TaskStatus::ReadyForReview => can_be_taken(state, task),
        _ => able_coders(state, task).any(|coder| active_task(state, coder).is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    /// Each call with the tasks that it is about.
    fn calls(rest: &str) -> Vec<(PlannerWake, String)> {
        let board = format!("version: 1\n{rest}");
        let state = check(&board, std::path::Path::new("state.yaml")).unwrap();
        let about = |call: &PlannerCall| call.about.iter().map(Name::to_string).collect::<Vec<_>>();
        wake(&state).iter().map(|call| (call.wake, about(call).join(" "))).collect()
    }

    fn called(wake: PlannerWake, about: &str) -> Vec<(PlannerWake, String)> {
        vec![(wake, about.to_owned())]
    }

    const TASK: &str = "spec_ref: a.md, done_when: it works";

    #[test]
    fn empty_boards_and_drafts_need_planning() {
        assert_eq!(calls("tasks: []\n"), called(PlannerWake::InitialPlanning, ""));
        let drafts = "tasks:\n  - {id: a, status: DRAFT}\n";
        assert_eq!(calls(drafts), called(PlannerWake::InitialPlanning, "a"));
        let over = "goal: {id: g, status: COMPLETED}\ntasks: []\n";
        assert_eq!(calls(over), []);
    }

    #[test]
    fn active_work_needs_no_planner() {
        let board = format!(
            "tasks:\n  - {{id: a, status: UNCLAIMED, {TASK}}}\n  - {{id: b, status: DRAFT}}\n"
        );
        assert_eq!(calls(&board), []);
    }

    #[test]
    fn each_stuck_condition_has_its_wake_reason() {
        let board = format!(
            "tasks:\n  - {{id: a, status: BLOCKED, blocked_reason: why, blocked_questions: [what], {TASK}}}\n  \
             - {{id: b, status: INTEGRATION_FAILED, worktree: w, {TASK}}}\n  \
             - {{id: c, status: UNCLAIMED, failed_by: [x, y], {TASK}}}\n\
             discovered:\n  - {{id: d, urgency: immediate, converted_to_task: null}}\n  \
             - {{id: e, urgency: deferred, converted_to_task: null}}\n"
        );
        let expected = [
            (PlannerWake::BlockedTasks, "a"),
            (PlannerWake::IntegrationFailed, "b"),
            (PlannerWake::HypothesisExhausted, "c"),
            (PlannerWake::ImmediateDiscovery, "d"),
        ];
        assert_eq!(calls(&board), expected.map(|(wake, id)| (wake, id.to_owned())));
    }

    #[test]
    fn work_that_no_agent_can_finish_wakes_a_planner() {
        let approved = format!(
            "tasks:\n  - {{id: a, status: APPROVED, approved_by: rev, assigned_to: x, {TASK}, merge_error: checked out}}\n"
        );
        assert_eq!(calls(&approved), called(PlannerWake::IntegrationFailed, "a"));
        assert_eq!(calls(&approved.replace(", merge_error: checked out", "")), []);

        let failed = format!("tasks:\n  - {{id: a, status: UNCLAIMED, failed_by: [x], {TASK}}}\n");
        let agents = |names: &str| format!("{failed}agents: {{{names}}}\n");
        assert_eq!(calls(&failed), [], "no coder has come yet");
        let alone = agents("x: {role: coder, status: IDLE}");
        assert_eq!(calls(&alone), called(PlannerWake::HypothesisExhausted, "a"));
        let two = agents("x: {role: coder, status: IDLE}, y: {role: coder, status: IDLE}");
        assert_eq!(calls(&two), []);

        let lost = "history: [{time: 2026-01-01T00:00:00Z, event: coder_claim_released, reason: the lease ran out}]";
        let tasks = format!("tasks:\n  - {{id: a, status: UNCLAIMED, {TASK}, {lost}}}\n");
        assert_eq!(calls(&tasks), called(PlannerWake::AgentGone, "a"));
        let free = format!("{tasks}agents: {{y: {{role: coder, status: IDLE}}}}\n");
        assert_eq!(calls(&free), [], "a free coder takes it");
        let given = tasks.replace("the lease ran out", "given back");
        assert_eq!(calls(&given), []);
    }
}
