//! What on a board somebody should be told of, once per occurrence: for
//! [`crate::proto::alarm::AlarmWatch`] to judge (seed 001's siblings, "watch alarms").
//!
//! | alarm | the condition | an occurrence is | grace |
//! |---|---|---|---|
//! | `lease_expired` | a claim was given back since its lease ran out | that line of the history | none |
//! | `review_lease_expired` | the same of a review | that line | none |
//! | `reassigned` | another coder took a rejected task | that line | none |
//! | `blocked` | BLOCKED | each time it is blocked | none |
//! | `orphaned_rejected` | REJECTED, and its coder is not registered | each rejection | 30 s |
//! | `review_loop` | rejections of one coder's work from the warning on | each coder's run | none |
//! | `approaching_limit` | iterations of one coder from the warning on | each coder's run | none |
//! | `integration_failed` | INTEGRATION_FAILED | each failed merge | none |
//! | `hypothesis_exhaustion` | so many coders failed that nobody can claim it | each further one | none |
//! | `stalled` | CLAIMED, and nothing new in its history | each claim and iteration | 30 min |
//! | `stale_draft` | DRAFT | each draft | 30 min |
//! | `immediate_discovery` | immediate, and no task yet | each discovery | none |
//! | `checkpoint_stale`, `pause_stale` | the file is stale | each file and stage | none |
//! | `invalid_state` | the board cannot be read | each write of it | none |
//!
//! Nothing here reads a stamp that a person or another machine wrote, but for the stages of the
//! control files, which are agreements with people. Whether a lease is over, its observer says
//! ([`crate::proto::lease`]); what it found stands in the history.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control::{Control, ControlFile, Staleness};
use super::leases::LEASE_RAN_OUT;
use super::state::{State, Status, Task};
use crate::message::{Digest, Timestamp};
use crate::proto::task::EXHAUSTED_BY;

/// How long a rejected task may be without its coder.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(30);
/// How long a claimed task may show nothing new.
pub const STALLED_GRACE: Duration = Duration::from_secs(30 * 60);
/// How long a task may be a draft.
pub const DRAFT_GRACE: Duration = Duration::from_secs(30 * 60);

const _: () = assert!(ORPHAN_GRACE.as_secs() < STALLED_GRACE.as_secs());

/// How long some conditions may be there before anybody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graces {
    /// Instead of [`ORPHAN_GRACE`].
    pub orphan: Duration,
    /// Instead of [`STALLED_GRACE`].
    pub stalled: Duration,
    /// Instead of [`DRAFT_GRACE`].
    pub draft: Duration,
}

impl Default for Graces {
    fn default() -> Self {
        Self { orphan: ORPHAN_GRACE, stalled: STALLED_GRACE, draft: DRAFT_GRACE }
    }
}

/// Which alarm; see the table at the top of this page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, clippy::allow_attributes, reason = "explained by the table above")]
pub enum Alarm {
    LeaseExpired,
    ReviewLeaseExpired,
    Reassigned,
    Blocked,
    OrphanedRejected,
    ReviewLoop,
    ApproachingLimit,
    IntegrationFailed,
    HypothesisExhaustion,
    Stalled,
    StaleDraft,
    ImmediateDiscovery,
    CheckpointStale,
    PauseStale,
    InvalidState,
}

/// One occurrence of an alarm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlarmKey {
    /// Which alarm.
    pub alarm: Alarm,
    /// Of what: a task, a discovery, a file.
    pub about: String,
    /// What tells this occurrence from others of the same.
    pub mark: String,
}

impl AlarmKey {
    /// Digits that follow from the key, for the id of a message that is to be stored once.
    #[must_use]
    pub fn digest(&self) -> String {
        // Lengths, so that no two keys run together to the same text.
        let name = serde_json::json!(self.alarm);
        let name = name.as_str().unwrap_or_default();
        let text = format!("{name}\n{}\n{}{}", self.about.len(), self.about, self.mark);
        Digest::of(text.as_bytes()).to_string()
    }
}

/// A condition that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which occurrence.
    pub key: AlarmKey,
    /// How long it may be there.
    pub grace: Duration,
    /// What is so, for people.
    pub text: String,
}

impl Condition {
    fn new(alarm: Alarm, about: &str, mark: impl ToString, text: String) -> Self {
        let (about, mark) = (about.to_owned(), mark.to_string());
        Self { key: AlarmKey { alarm, about, mark }, grace: Duration::ZERO, text }
    }

    const fn after(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// That a board cannot be read. `mark` tells one state of the file from another.
    #[must_use]
    pub fn invalid(mark: impl ToString, error: &str) -> Self {
        Self::new(Alarm::InvalidState, "board", mark, format!("the board cannot be read: {error}"))
    }
}

/// All conditions of a board.
#[must_use]
pub fn conditions(state: &State, graces: Graces) -> Vec<Condition> {
    let mut found = Vec::new();
    for task in &state.tasks {
        if !task.status.is_terminal() {
            happened(task, &mut found);
            by_status(state, task, graces, &mut found);
            limits(state, task, &mut found);
        }
    }
    for discovery in &state.discovered {
        if discovery.urgency.as_deref() == Some("immediate")
            && discovery.converted_to_task.is_none()
        {
            let what = discovery.more.get("description").and_then(|text| text.as_str());
            let text = format!("discovery {}: {}", discovery.id, what.unwrap_or("no description"));
            let id = discovery.id.as_str();
            found.push(Condition::new(Alarm::ImmediateDiscovery, id, "", text));
        }
    }
    found
}

/// The control files that wait too long for their person; each stage is an occurrence.
#[must_use]
pub fn stale(controls: &[Control], now: Timestamp) -> Vec<Condition> {
    let mut found = Vec::new();
    for control in controls {
        let alarm = match control.file {
            ControlFile::Pause => Alarm::PauseStale,
            ControlFile::Checkpoint => Alarm::CheckpointStale,
            // Nobody goes on by himself after an abort.
            ControlFile::Abort => continue,
        };
        let stage = control.staleness(now);
        if stage != Staleness::Fresh {
            let mark = format!("{} {stage:?}", control.since);
            let text = format!("{} waits since {}", control.file.name(), control.since);
            found.push(Condition::new(alarm, control.file.name(), mark, text));
        }
    }
    found
}

/// Where in the history an event happened last.
fn last(task: &Task, event: &str, reason: Option<&str>) -> Option<usize> {
    task.history.iter().rposition(|line| {
        line.event == event
            && reason.is_none_or(|reason| {
                line.more.get("reason").and_then(|told| told.as_str()) == Some(reason)
            })
    })
}

/// How often something has happened.
fn times(task: &Task, event: &str) -> usize {
    task.history.iter().filter(|line| line.event == event).count()
}

/// What stands in the history.
fn happened(task: &Task, found: &mut Vec<Condition>) {
    let events = [
        (Alarm::LeaseExpired, "coder_claim_released", Some(LEASE_RAN_OUT), "its coder fell silent"),
        (
            Alarm::ReviewLeaseExpired,
            "review_claim_released",
            Some(LEASE_RAN_OUT),
            "its reviewer fell silent",
        ),
        (Alarm::Reassigned, "reassigned_after_rejection", None, "another coder took it"),
    ];
    for (alarm, event, reason, told) in events {
        if let Some(at) = last(task, event, reason) {
            let who = task.history[at].more.get("agent").and_then(|agent| agent.as_str());
            let text = format!("task {}: {told} ({})", task.id, who.unwrap_or("unknown"));
            found.push(Condition::new(alarm, task.id.as_str(), at, text));
        }
    }
}

/// What its status says.
fn by_status(state: &State, task: &Task, graces: Graces, found: &mut Vec<Condition>) {
    let id = task.id.as_str();
    let condition = match task.status {
        Status::Blocked => {
            let why = task.blocked_reason.as_deref().unwrap_or("no reason given");
            let text = format!("task {id} is blocked: {why}");
            Condition::new(Alarm::Blocked, id, times(task, "blocked"), text)
        }
        Status::IntegrationFailed => {
            let text = format!("task {id}: its merge failed");
            Condition::new(Alarm::IntegrationFailed, id, times(task, "integration_failed"), text)
        }
        Status::Rejected => {
            let is_there =
                task.assigned_to.as_ref().is_some_and(|coder| state.agents.contains_key(coder));
            if is_there {
                return;
            }
            let text = format!("task {id} was rejected, and its coder is gone");
            Condition::new(Alarm::OrphanedRejected, id, times(task, "rejected"), text)
                .after(graces.orphan)
        }
        Status::Claimed => {
            let (epoch, lines) = (task.lease_epoch.unwrap_or_default(), task.history.len());
            let minutes = graces.stalled.as_secs() / 60;
            let text = format!("task {id}: nothing new for {minutes} minutes");
            Condition::new(Alarm::Stalled, id, format!("{epoch}.{lines}"), text)
                .after(graces.stalled)
        }
        Status::Draft => {
            let minutes = graces.draft.as_secs() / 60;
            let text = format!("task {id} is a draft for {minutes} minutes");
            Condition::new(Alarm::StaleDraft, id, "", text).after(graces.draft)
        }
        Status::Unclaimed
        | Status::ReadyForReview
        | Status::Approved
        | Status::Merged
        | Status::Superseded
        | Status::Abandoned => return,
    };
    found.push(condition);
}

/// What comes near a limit, or is past it.
fn limits(state: &State, task: &Task, found: &mut Vec<Condition>) {
    let id = task.id.as_str();
    let limits = state.config.limits(Some(task));
    // A coder's run begins with a fresh claim, and its limits with it.
    let run = times(task, "claimed") + times(task, "reassigned_after_rejection");
    let cycles = task.review_cycles_current.unwrap_or_default();
    if cycles >= u64::from(limits.review_cycles_warn).max(1) {
        let text = format!("task {id}: rejected {cycles} times of {}", limits.review_cycles_max);
        found.push(Condition::new(Alarm::ReviewLoop, id, run, text));
    }
    let iteration = task.iteration.unwrap_or_default();
    if iteration >= u64::from(limits.iterations_warn).max(1) {
        let text = format!("task {id}: iteration {iteration} of {}", limits.iterations_max);
        found.push(Condition::new(Alarm::ApproachingLimit, id, run, text));
    }
    let failed = task.failed_by.len();
    if failed >= EXHAUSTED_BY {
        let names: Vec<&str> = task.failed_by.iter().map(crate::message::Name::as_str).collect();
        let text = format!("task {id}: {} failed at it", names.join(" and "));
        found.push(Condition::new(Alarm::HypothesisExhaustion, id, failed, text));
    }
}
