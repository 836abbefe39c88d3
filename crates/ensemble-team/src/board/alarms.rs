//! Conditions on a board that people are notified of, once per occurrence.
//! [`crate::proto::alarm::AlarmWatch`] decides when (seed 001's siblings, "watch alarms").
//!
//! | alarm | the condition | an occurrence is | grace |
//! |---|---|---|---|
//! | `lease_expired` | a claim was released because its lease expired, and no later one is finished | that line of the history | none |
//! | `review_lease_expired` | the same for a review | that line | none |
//! | `reassigned` | another coder took a rejected task | that line | none |
//! | `blocked` | BLOCKED | each time it is blocked | none |
//! | `orphaned_rejected` | REJECTED, and the task's coder is not registered | each rejection | 30 s |
//! | `review_loop` | rejections of one coder's work from the warning on | each coder's run | none |
//! | `approaching_limit` | iterations of one coder from the warning on | each coder's run | none |
//! | `merge_impossible` | APPROVED, and the merge was refused | each refusal | none |
//! | `claim_impossible` | a free task, and the claim or review failed | each reason | none |
//! | `untaken` | work that no registered agent can claim, review or merge | the first such task, and its history | 10 min |
//! | `integration_failed` | INTEGRATION_FAILED | each failed merge | none |
//! | `hypothesis_exhaustion` | too many coders failed, so no coder can claim it | each further failed coder | none |
//! | `stalled` | CLAIMED, and nothing new in its history | each claim and iteration | 30 min |
//! | `stale_draft` | DRAFT | each draft task | 30 min |
//! | `immediate_discovery` | an immediate discovery that is not a task yet | each discovery | none |
//! | `checkpoint_stale`, `pause_stale` | the control file is stale | each file and stage | none |
//! | `goal_left_open` | every task is finished, and the goal or the sprint is open | that set of tasks | 10 min |
//! | `invalid_state` | the board cannot be read | each write of it | 10 s |
//! | `agent_gone` | an agent has ended with messages or steps in its hands; the watcher reports it | each end | none |
//! | `over_budget` | a budget is used up; the watcher reports it | each time it is parked | none |
//!
//! These conditions ignore timestamps that a person or another machine wrote. The stages of the
//! control files are the exception: they are agreements with people. An observer decides whether a
//! lease has ended ([`ensemble_core::proto::lease`]) and records its decision in the history.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control::{ActiveControl, ControlFile, Staleness};
use super::graph::{behind, can_be_taken};
use super::leases::LEASE_RAN_OUT;
use super::state::{BoardTask, State, TaskStatus};
use super::wake::unassessed;
use crate::proto::task::EXHAUSTED_BY;
use ensemble_core::message::{Digest, Timestamp};

/// How long a rejected task may lack a registered coder.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(30);
/// How long a claimed task may show no progress.
pub const STALLED_GRACE: Duration = Duration::from_secs(30 * 60);
/// How long a task may stay a draft.
pub const DRAFT_GRACE: Duration = Duration::from_secs(30 * 60);

/// How long a task may lack a registered agent that can take it.
pub const UNTAKEN_GRACE: Duration = Duration::from_secs(10 * 60);
/// How long the board may be unreadable: an editor that writes in place leaves half a file for a moment.
pub const INVALID_GRACE: Duration = Duration::from_secs(10);
const NAMED_MAX: usize = 5;

const _: () = assert!(ORPHAN_GRACE.as_secs() < STALLED_GRACE.as_secs());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmGraces {
    pub orphan: Duration,
    pub stalled: Duration,
    pub draft: Duration,
    pub untaken: Duration,
}

impl Default for AlarmGraces {
    fn default() -> Self {
        Self {
            orphan: ORPHAN_GRACE,
            stalled: STALLED_GRACE,
            draft: DRAFT_GRACE,
            untaken: UNTAKEN_GRACE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    LeaseExpired,
    ReviewLeaseExpired,
    Reassigned,
    Blocked,
    OrphanedRejected,
    ReviewLoop,
    ApproachingLimit,
    MergeImpossible,
    ClaimImpossible,
    Untaken,
    GoalLeftOpen,
    IntegrationFailed,
    HypothesisExhaustion,
    Stalled,
    StaleDraft,
    ImmediateDiscovery,
    CheckpointStale,
    PauseStale,
    InvalidState,
    AgentGone,
    OverBudget,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlarmKey {
    pub alarm: Alarm,
    /// Subject of the alarm: a task, a discovery or a control file.
    pub about: String,
    /// Distinguishes this occurrence from others of the same alarm and subject.
    pub mark: String,
}

impl AlarmKey {
    /// Digits derived from the key. They make a message id, so that the message is stored once.
    pub fn digest(&self) -> String {
        // Prefix each part with its length, so that two different keys never give the same text.
        let name = serde_json::json!(self.alarm);
        let name = name.as_str().unwrap_or_default();
        let text = format!("{name}\n{}\n{}{}", self.about.len(), self.about, self.mark);
        Digest::of(text.as_bytes()).to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmCondition {
    pub key: AlarmKey,
    /// How long the condition may last before people are notified.
    pub grace: Duration,
    pub text: String,
}

impl AlarmCondition {
    fn new(alarm: Alarm, about: &str, mark: impl ToString, text: String) -> Self {
        let (about, mark) = (about.to_owned(), mark.to_string());
        Self { key: AlarmKey { alarm, about, mark }, grace: Duration::ZERO, text }
    }

    const fn after(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// An agent has ended with work in its hands. `mark` distinguishes its ends.
    pub fn agent_gone(agent: &str, mark: &str, text: String) -> Self {
        Self::new(Alarm::AgentGone, agent, mark, text)
    }

    /// A budget is used up. `mark` distinguishes the times at which it was parked.
    pub fn over_budget(about: &str, mark: &str, text: String) -> Self {
        Self::new(Alarm::OverBudget, about, mark, text)
    }

    /// The board cannot be read. `mark` distinguishes states of the file.
    pub fn invalid(mark: impl ToString, error: &str) -> Self {
        let text = format!("the board cannot be read: {error}");
        Self::new(Alarm::InvalidState, "board", mark, text).after(INVALID_GRACE)
    }
}

pub fn conditions(state: &State, graces: AlarmGraces) -> Vec<AlarmCondition> {
    let mut found = Vec::new();
    for task in &state.tasks {
        if !task.status.is_terminal() {
            happened(task, &mut found);
            by_status(state, task, graces, &mut found);
            unclaimed(task, &mut found);
            limits(state, task, &mut found);
        }
    }
    untaken(state, graces, &mut found);
    left_open(state, graces, &mut found);
    for discovery in state.discovered.iter().filter(|discovery| discovery.is_urgent()) {
        let what = discovery.more.get("description").and_then(|text| text.as_str());
        let text = format!("discovery {}: {}", discovery.id, what.unwrap_or("no description"));
        let id = discovery.id.as_str();
        found.push(AlarmCondition::new(Alarm::ImmediateDiscovery, id, "", text));
    }
    found
}

/// Control files that have waited too long for a person. Each stage is an occurrence.
pub fn stale(controls: &[ActiveControl], now: Timestamp) -> Vec<AlarmCondition> {
    let mut found = Vec::new();
    for control in controls {
        let alarm = match control.file {
            ControlFile::Pause => Alarm::PauseStale,
            ControlFile::Checkpoint => Alarm::CheckpointStale,
            // An abort ends the agents, so none of them waits for the file.
            ControlFile::Abort => continue,
        };
        let stage = control.staleness(now);
        if stage != Staleness::Fresh {
            let mark = format!("{} {stage:?}", control.since);
            let text =
                format!("{} has waited for a person since {}", control.file.name(), control.since);
            found.push(AlarmCondition::new(alarm, control.file.name(), mark, text));
        }
    }
    found
}

fn last(task: &BoardTask, event: &str, reason: Option<&str>) -> Option<usize> {
    task.history.iter().rposition(|line| {
        line.event == event && reason.is_none_or(|reason| line.text("reason") == Some(reason))
    })
}

/// Events with which an agent finishes its turn at a task.
const ENDS: [&str; 5] = ["ready_for_review", "approved", "rejected", "given_up", "blocked"];

/// Conditions from the task's history, until the next agent has finished its turn.
fn happened(task: &BoardTask, found: &mut Vec<AlarmCondition>) {
    let events = [
        (
            Alarm::LeaseExpired,
            "coder_claim_released",
            Some(LEASE_RAN_OUT),
            "its coder stopped renewing the lease",
        ),
        (
            Alarm::ReviewLeaseExpired,
            "review_claim_released",
            Some(LEASE_RAN_OUT),
            "its reviewer stopped renewing the lease",
        ),
        (Alarm::Reassigned, "reassigned_after_rejection", None, "another coder took the task"),
    ];
    for (alarm, event, reason, told) in events {
        // What an agent has finished since settles it.
        let is_settled =
            |at: usize| task.history[at..].iter().any(|line| ENDS.contains(&line.event.as_str()));
        if let Some(at) = last(task, event, reason).filter(|at| !is_settled(*at)) {
            let who = task.history[at].text("agent").unwrap_or("unknown");
            let text = format!("task {}: {told} ({who})", task.id);
            found.push(AlarmCondition::new(alarm, task.id.as_str(), at, text));
        }
    }
}

fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

fn by_status(
    state: &State,
    task: &BoardTask,
    graces: AlarmGraces,
    found: &mut Vec<AlarmCondition>,
) {
    let id = task.id.as_str();
    let condition = match task.status {
        TaskStatus::Blocked => {
            let why = task.blocked_reason.as_deref().unwrap_or("no reason given");
            let text = match behind(state, &task.id) {
                0 => format!("task {id} is blocked: {why}"),
                1 => format!("task {id} is blocked, and 1 task waits for it: {why}"),
                waiting => format!("task {id} is blocked, and {waiting} tasks wait for it: {why}"),
            };
            AlarmCondition::new(Alarm::Blocked, id, task.times("blocked"), text)
        }
        TaskStatus::IntegrationFailed => {
            let text = format!("task {id}: the merge failed");
            AlarmCondition::new(
                Alarm::IntegrationFailed,
                id,
                task.times("integration_failed"),
                text,
            )
        }
        TaskStatus::Rejected => {
            let is_there =
                task.assigned_to.as_ref().is_some_and(|coder| state.agents.contains_key(coder));
            if is_there {
                return;
            }
            let text = format!("task {id} was rejected, and its coder is gone");
            AlarmCondition::new(Alarm::OrphanedRejected, id, task.times("rejected"), text)
                .after(graces.orphan)
        }
        TaskStatus::Claimed => {
            let (epoch, lines) = (task.lease_epoch.unwrap_or_default(), task.history.len());
            let text = format!("task {id}: no progress for over {}", span(graces.stalled));
            AlarmCondition::new(Alarm::Stalled, id, format!("{epoch}.{lines}"), text)
                .after(graces.stalled)
        }
        TaskStatus::Draft => {
            let text = format!("task {id} has been a draft for over {}", span(graces.draft));
            AlarmCondition::new(Alarm::StaleDraft, id, "", text).after(graces.draft)
        }
        TaskStatus::Approved => {
            let Some(why) = &task.merge_error else { return };
            let text = format!("task {id} is approved, but cannot be merged: {why}");
            AlarmCondition::new(Alarm::MergeImpossible, id, task.times("merge_refused"), text)
        }
        _ => return,
    };
    found.push(condition);
}

fn unclaimed(task: &BoardTask, found: &mut Vec<AlarmCondition>) {
    let is_free = task.status.is_claimable() || task.status == TaskStatus::ReadyForReview;
    if let Some(why) = task.claim_error.as_ref().filter(|_| is_free) {
        let text = format!("task {} cannot be claimed: {why}", task.id);
        found.push(AlarmCondition::new(Alarm::ClaimImpossible, task.id.as_str(), why, text));
    }
}

/// Work that waits for a role that no registered agent has. It is one condition for all such tasks:
/// one missing agent would raise an alarm for each of them.
fn untaken(state: &State, graces: AlarmGraces, found: &mut Vec<AlarmCondition>) {
    let is_exhausted = |task: &BoardTask| task.failed_by.len() >= EXHAUSTED_BY;
    let waits = |task: &&BoardTask| !is_exhausted(task) && !can_be_taken(state, task);
    let tasks: Vec<&BoardTask> = state.tasks.iter().filter(waits).collect();
    let Some(first) = tasks.first() else { return };
    let need = |task: &BoardTask| match task.status {
        TaskStatus::ReadyForReview => "a reviewer",
        TaskStatus::Approved => "a reviewer's supervisor, to merge it",
        _ if task.failed_by.is_empty() => "a coder",
        _ => "a coder that has not failed at it",
    };
    let named: Vec<String> = tasks
        .iter()
        .take(NAMED_MAX)
        .map(|task| format!("{} needs {}", task.id, need(task)))
        .collect();
    let more = tasks.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let text = format!("no registered agent can take: {}{more}", named.join(", "));
    let mark = first.history.len();
    let condition = AlarmCondition::new(Alarm::Untaken, first.id.as_str(), mark, text);
    found.push(condition.after(graces.untaken));
}

fn left_open(state: &State, graces: AlarmGraces, found: &mut Vec<AlarmCondition>) {
    let Some(left) = unassessed(state) else { return };
    let names: Vec<&str> = state.tasks.iter().map(|task| task.id.as_str()).collect();
    let text = match names.len() {
        1 => format!("the only task is finished, but {left} is still open"),
        count => format!("all {count} tasks are finished, but {left} is still open"),
    };
    let mark = Digest::of(names.join("\n").as_bytes()).to_string();
    found.push(AlarmCondition::new(Alarm::GoalLeftOpen, &left, mark, text).after(graces.untaken));
}

fn limits(state: &State, task: &BoardTask, found: &mut Vec<AlarmCondition>) {
    let id = task.id.as_str();
    let limits = state.config.limits(Some(task));
    // A fresh claim starts a coder's run, and the limits count per run.
    let run = task.times("claimed") + task.times("reassigned_after_rejection");
    let cycles = task.review_cycles_current.unwrap_or_default();
    if cycles >= u64::from(limits.review_cycles_warn).max(1) {
        let text = format!("task {id}: rejected {cycles} times of {}", limits.review_cycles_max);
        found.push(AlarmCondition::new(Alarm::ReviewLoop, id, run, text));
    }
    let iteration = task.iteration.unwrap_or_default();
    if iteration >= u64::from(limits.iterations_warn).max(1) {
        let text = format!("task {id}: iteration {iteration} of {}", limits.iterations_max);
        found.push(AlarmCondition::new(Alarm::ApproachingLimit, id, run, text));
    }
    let failed = task.failed_by.len();
    if failed >= EXHAUSTED_BY {
        let names: Vec<&str> =
            task.failed_by.iter().map(ensemble_core::message::Name::as_str).collect();
        let text = format!("task {id}: failed coders: {}", names.join(", "));
        found.push(AlarmCondition::new(Alarm::HypothesisExhaustion, id, failed, text));
    }
}
