//! Phase 4 of the seed: an agent's first actions, and how it ends.

use super::{PlanStanding, notes_of, said};
use crate::board::state::{BoardTask, State, TaskStatus};
use crate::board::steps::word;
use crate::board::wake::{PlannerCall, PlannerWake};
use ensemble_core::message::Name;

const HAND_OVER: &str = "If your context is nearly full before you are done: `ensemble agent \
     handoff --summary TEXT --next-action TEXT`, then exit with 42. A fresh agent continues from \
     there.";
const GIVE_BACK: &str = "If your context is nearly full before you have a verdict: exit with 42. \
     A fresh reviewer starts again.";
const FAILURE: &str = "If something is wrong with the board, the worktree or your assignment: \
     `ensemble board anomaly add TYPE --detail NAME=VALUE`, then exit with 1.";
const BY_THE_WAY: &str = "Work that you find and that is not part of your task: `ensemble board discover add \
     ID -d TEXT`, with `--immediate` if it cannot wait. Do not do it yourself.";

/// Instructions for a coder. Where a plan is not approved yet, they are about the plan alone.
pub(super) fn coder(
    state: &State,
    task: &BoardTask,
    plan: Option<&PlanStanding>,
    before: Option<String>,
) -> Vec<String> {
    let id = &task.id;
    let mut all = vec![
        "Do not claim anything: this task is yours already. Check that it is CLAIMED, assigned to \
         you, and that the worktree exists; `ensemble agent verify` does."
            .to_owned(),
    ];
    if notes_of(state, task).is_some() {
        all.push(
            "Another agent has begun: read the hand-over notes above and continue at `next_action`."
                .to_owned(),
        );
    }
    all.extend(before);
    if let Some(reason) = &task.rejection_reason {
        all.push(format!(
            "The last review rejected it. Settle every point of this first:\n  {}",
            said(Some(reason))
        ));
    }
    if task.integration_fix == Some(true) {
        all.push(format!(
            "The merge failed: repair that, here, and change nothing else.{}",
            latest_reason(task, "integration_failed")
        ));
    }
    all.push("Read the documents above, and the specification first.".to_owned());
    all.extend(plan.into_iter().flat_map(|plan| plan.instructions(id)));
    if plan.is_none_or(PlanStanding::is_approved) {
        all.extend(coder_at_work(id));
    }
    all.push(format!(
        "If you cannot continue without an answer: `ensemble task block {id} --reason TEXT --question \
         TEXT` (one to three questions), then exit with 0."
    ));
    all.extend([HAND_OVER, FAILURE, BY_THE_WAY].map(str::to_owned));
    all
}

fn coder_at_work(id: &Name) -> Vec<String> {
    vec![
        "Work in the worktree only, on its branch, within the scope, until DONE WHEN is true."
            .to_owned(),
        "Your supervisor keeps your lease. Before something that takes longer than four minutes: \
         `ensemble agent heartbeat --long TEXT`."
            .to_owned(),
        format!(
            "When it is done: commit everything, then `ensemble task submit {id}`, then exit with 0."
        ),
    ]
}

pub(super) fn reviewer(task: &BoardTask) -> Vec<String> {
    let id = &task.id;
    let mut all = vec![
        "Do not look for a task: this review is yours already. Check that it is READY_FOR_REVIEW, \
         that you review it, and that the worktree's HEAD is the commit to review; `ensemble agent \
         verify` does. If it is another commit, exit with 1."
            .to_owned(),
        "Read the documents above, and the specification first.".to_owned(),
        "Judge this commit only: does it do what DONE WHEN says, within the scope, with tests that \
         would fail without it? Run them. Change nothing in the worktree."
            .to_owned(),
    ];
    if let Some(cycles) = task.review_cycles_current.filter(|cycles| *cycles > 0) {
        let times = if cycles == 1 { "once".to_owned() } else { format!("{cycles} times") };
        all.push(format!(
            "It was rejected {times} before. Check that each point was settled:{}",
            latest_reason(task, "rejected")
        ));
    }
    all.push(format!(
        "If it is good: `ensemble task verdict {id} --approve`. If not: `ensemble task verdict {id} \
         --reject --reason TEXT`, with every point and its place, so that its author needs no second \
         question. Then exit with 0."
    ));
    all.extend([GIVE_BACK, FAILURE, BY_THE_WAY].map(str::to_owned));
    all
}

fn latest_reason(task: &BoardTask, event: &str) -> String {
    let last = task.history.iter().rev().find(|line| line.event == event);
    let reason = last.and_then(|line| line.text("reason"));
    reason.map_or_else(String::new, |reason| format!("\n  {}", said(Some(reason))))
}

/// Reasons why a planner was started, the most important first.
pub(super) fn trigger(calls: &[PlannerCall]) -> String {
    match calls {
        [] => "NONE (monitor)".to_owned(),
        some => some.iter().map(|call| word(call.wake)).collect::<Vec<_>>().join(", "),
    }
}

fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

pub(super) fn planner(state: &State, calls: &[PlannerCall]) -> Vec<String> {
    let mut all: Vec<String> = calls.iter().flat_map(|call| called(state, call)).collect();
    if calls.is_empty() {
        all.extend(general(state));
    }
    let always = [
        "You claim no tasks and write no code. Change the board with `ensemble task`, `ensemble \
         board goal`, `ensemble board sprint` and `ensemble board discover` only.",
        "When that is done, exit with 0: you are called again when something needs you. If your \
         context is nearly full, write down your progress (`ensemble board discover add ID -d TEXT \
         --immediate`) and exit with 42. If something is wrong with the board: `ensemble board anomaly \
         add TYPE --detail NAME=VALUE`, then exit with 1.",
    ];
    all.extend(always.map(str::to_owned));
    all
}

fn called(state: &State, call: &PlannerCall) -> Vec<String> {
    let about = names(&call.about);
    match call.wake {
        PlannerWake::InitialPlanning => vec![
            match call.about.is_empty() {
                true => "There are no tasks: divide the goal into tasks that one agent can finish and \
                         one can review."
                    .to_owned(),
                false => format!(
                    "There are only drafts: complete {about} with `ensemble board edit`, `ensemble \
                     task finalize ID` each, and add what is missing."
                ),
            },
            "For each new one: `ensemble task add ID -d TEXT --spec PATH --done-when TEXT --scope \
             TEXT`, with `--after ID` for what must be merged before, and `--draft` while it is \
             not finished."
                .to_owned(),
            "DONE WHEN must be a condition that any reader can check. Two tasks that change the same \
             files come one after the other."
                .to_owned(),
            "When the plan is whole: `ensemble board sprint start ID --planned ID …`, then `ensemble \
             board goal begin`."
                .to_owned(),
        ],
        PlannerWake::BlockedTasks => blocked(state, call),
        PlannerWake::IntegrationFailed => unmerged(state, call),
        PlannerWake::HypothesisExhausted => vec![format!(
            "Several coders failed at {about}. Do not let agents try it again unchanged: find the \
             root cause, `ensemble task block ID --reason TEXT --question TEXT`, add tasks that \
             are divided differently, and `ensemble task supersede ID --by ID --reason ROOT_CAUSE`."
        )],
        PlannerWake::ImmediateDiscovery => vec![format!(
            "Triage {about}, described above: make a task of each (`ensemble task add …`, then \
             `ensemble board discover convert ID --task ID`), or let it wait (`ensemble board discover defer \
             ID`)."
        )],
        PlannerWake::AgentGone => vec![format!(
            "The agent that worked on {about} is gone, its work is kept, and no free agent can take \
             it over. If the task is too large or too dangerous for one agent, block it and divide it \
             again; if agents are missing, tell a person: `ensemble board checkpoint --reason TEXT`."
        )],
        PlannerWake::GoalAssessment => general(state),
        PlannerWake::PlanSubmitted => vec![format!(
            "Review {about}: `ensemble request list ID` shows the plan and its task. Does it do what the task's \
             DONE WHEN says, within its scope? If it is good: `ensemble request answer ID --approve`. If not: \
             `ensemble request answer ID --reject --reason TEXT`, with every point. Its coder waits."
        )],
    }
}

fn blocked(state: &State, call: &PlannerCall) -> Vec<String> {
    let told = |task: &BoardTask| {
        let questions: String = task
            .blocked_questions
            .iter()
            .map(|question| format!("\n  - {}", said(Some(question))))
            .collect();
        format!("{} is blocked: {}{questions}", task.id, said(task.blocked_reason.as_deref()))
    };
    let mut all: Vec<String> =
        call.about.iter().filter_map(|id| state.task(id)).map(told).collect();
    all.push(
        "For each of them find out what blocks it and answer its questions where its specification \
         is. Then `ensemble task unblock ID`; or divide it again: add its successors and `ensemble task \
         supersede ID --by ID --reason TEXT`; or, if it is not needed, `ensemble task abandon ID \
         --reason TEXT`."
            .to_owned(),
    );
    all
}

fn unmerged(state: &State, call: &PlannerCall) -> Vec<String> {
    let told = |task: &BoardTask| match &task.merge_error {
        Some(why) => {
            format!("{} is approved, but cannot be merged now: {}", task.id, said(Some(why)))
        }
        None => {
            let why = latest_reason(task, "integration_failed");
            format!("{} was approved, but its merge failed:{why}", task.id)
        }
    };
    let tasks: Vec<&BoardTask> = call.about.iter().filter_map(|id| state.task(id)).collect();
    let mut all: Vec<String> = tasks.iter().map(|task| told(task)).collect();
    if tasks.iter().any(|task| task.merge_error.is_some()) {
        all.push(
            "What keeps an approved task from being merged is for a person to change: do not touch \
             checkouts of others. `ensemble board checkpoint --reason TEXT` asks a person; a supervisor \
             of a reviewer merges by itself as soon as it can."
                .to_owned(),
        );
    }
    if tasks.iter().all(|task| task.merge_error.is_some()) {
        return all;
    }
    all.push(
        "Find out whether its coder can repair that in its worktree (then leave it: any coder may \
         claim it), or whether the plan is wrong (then block it and divide it again)."
            .to_owned(),
    );
    all
}

/// The seed's decision tree, for a planner that was started without a specific reason.
fn general(state: &State) -> Vec<String> {
    use crate::proto::goal::GoalState;
    let is_planning = state
        .goal
        .as_ref()
        .is_some_and(|goal| goal.status.is_none_or(|status| status == GoalState::Planning));
    let drafts: Vec<&str> = state
        .tasks
        .iter()
        .filter(|task| task.status == TaskStatus::Draft)
        .map(|task| task.id.as_str())
        .collect();
    if !state.tasks.is_empty() && state.tasks.iter().all(|task| task.status.is_terminal()) {
        return vec![
            "Every task is finished. Check whether the goal is reached, by its specification and by \
             what was merged. If it is: `ensemble board sprint complete`, then `ensemble board goal complete` \
             (after `ensemble board goal begin`, if it is still PLANNING). If not: add what is missing. If a person must decide: `ensemble board checkpoint --reason \
             TEXT`. You are asked this once: until one of the three is done, a person sees that it is open."
                .to_owned(),
        ];
    }
    if is_planning || !drafts.is_empty() {
        let of =
            if drafts.is_empty() { String::new() } else { format!(" ({})", drafts.join(", ")) };
        return vec![format!(
            "The plan is not finished: complete the drafts{of} with `ensemble board edit`, `ensemble \
             task finalize ID` each, add what is missing, then `ensemble board goal begin`."
        )];
    }
    vec![
        "Nothing needs you now. Check that each open task can be finished and that no task \
         waits for one that will never be merged."
            .to_owned(),
    ]
}
