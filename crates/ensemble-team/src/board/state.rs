//! The blackboard as read-only values. To change it, see [`super::LockedBoard`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::locked::not_on_board;
use super::shape::Violation;
use crate::proto::agent;
use crate::proto::beat::LEASE_DURATION;
use crate::proto::goal::{GoalState, SprintState};
use crate::proto::task::TaskLimits;
use ensemble_core::message::{Name, Timestamp};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub version: u64,
    /// Number of times that Ensemble has written the board.
    pub revision: u64,
    pub epoch: u64,
    pub goal: Option<Goal>,
    #[serde(deserialize_with = "or_default")]
    pub tasks: Vec<BoardTask>,
    #[serde(deserialize_with = "or_default")]
    pub agents: BTreeMap<Name, BoardAgent>,
    #[serde(deserialize_with = "or_default")]
    pub discovered: Vec<Discovery>,
    /// Notes from one agent to its successor, by task.
    #[serde(deserialize_with = "or_default")]
    pub handoff: BTreeMap<Name, Map<String, Value>>,
    #[serde(deserialize_with = "or_default")]
    pub human_notes: Vec<HumanNote>,
    #[serde(deserialize_with = "or_default")]
    pub anomalies: Vec<BoardAnomaly>,
    pub sprint: Option<BoardSprint>,
    pub circuit_breaker: Option<CircuitBreaker>,
    #[serde(deserialize_with = "or_default")]
    pub config: BoardConfig,
    /// Values that do not fit, and on which nothing depends.
    #[serde(skip)]
    pub warnings: Vec<Violation>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Goal {
    pub id: Name,
    #[serde(default, deserialize_with = "text")]
    pub description: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub spec_ref: Option<String>,
    pub status: Option<GoalState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    Draft,
    #[serde(alias = "READY")]
    Unclaimed,
    #[serde(alias = "IMPLEMENTING")]
    Claimed,
    ReadyForReview,
    Approved,
    Rejected,
    Merged,
    IntegrationFailed,
    Blocked,
    Superseded,
    Abandoned,
}

impl TaskStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "DRAFT",
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed => "CLAIMED",
            Self::ReadyForReview => "READY_FOR_REVIEW",
            Self::Approved => "APPROVED",
            Self::Rejected => "REJECTED",
            Self::Merged => "MERGED",
            Self::IntegrationFailed => "INTEGRATION_FAILED",
            Self::Blocked => "BLOCKED",
            Self::Superseded => "SUPERSEDED",
            Self::Abandoned => "ABANDONED",
        }
    }

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Superseded | Self::Abandoned)
    }

    /// Whether the task keeps its coder from other tasks: the coder works on it, awaits its verdict
    /// or must rework it.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Claimed | Self::ReadyForReview | Self::Rejected)
    }

    /// Whether a coder works in the task's worktree, or will continue there.
    pub const fn needs_worktree(self) -> bool {
        self.is_active() || matches!(self, Self::Approved | Self::IntegrationFailed)
    }

    /// Whether a coder may claim the task once its dependencies are merged.
    pub const fn is_claimable(self) -> bool {
        matches!(self, Self::Unclaimed | Self::Rejected | Self::IntegrationFailed)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoardTask {
    pub id: Name,
    #[serde(default, deserialize_with = "text")]
    pub description: Option<String>,
    pub status: TaskStatus,
    /// Priority; 1 is the most urgent.
    pub priority: Option<u64>,
    /// The current coder, or the last one.
    pub assigned_to: Option<Name>,
    /// Path of the worktree, relative to the project.
    #[serde(default, deserialize_with = "text")]
    pub worktree: Option<String>,
    /// The host that has the worktree, for a board on servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub base_commit: Option<String>,
    /// End of the claim's lease, for people; see [`ensemble_core::proto::lease`].
    pub lease_expires: Option<Timestamp>,
    pub lease_epoch: Option<u64>,
    /// The coder's iteration, starting at 1.
    pub iteration: Option<u64>,
    /// Limit of iterations; replaces the board's.
    pub max_iterations: Option<u64>,
    /// Rejections of the current coder's work.
    pub review_cycles_current: Option<u64>,
    /// Rejections of all coders' work.
    pub review_cycles_total: Option<u64>,
    #[serde(default, deserialize_with = "text")]
    pub review_commit: Option<String>,
    pub reviewing_by: Option<Name>,
    pub review_lease_expires: Option<Timestamp>,
    pub review_epoch: Option<u64>,
    pub approved_by: Option<Name>,
    #[serde(default, deserialize_with = "text")]
    pub merge_commit: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub merge_error: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub claim_error: Option<String>,
    /// Reference to the specification: a path, optionally with `#section`.
    #[serde(default, deserialize_with = "text")]
    pub spec_ref: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub done_when: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub scope: Option<String>,
    /// Tasks that must be merged first.
    #[serde(default, deserialize_with = "or_default")]
    pub depends_on: Vec<Name>,
    pub supersedes: Option<Name>,
    #[serde(default, deserialize_with = "text")]
    pub rejection_reason: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub blocked_reason: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    pub blocked_questions: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub failed_by: Vec<Name>,
    pub superseded_by: Option<Vec<Name>>,
    #[serde(default, deserialize_with = "text")]
    pub rescope_reason: Option<String>,
    pub integration_fix: Option<bool>,
    pub handoff_pending: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub history: Vec<HistoryEvent>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryEvent {
    pub time: Timestamp,
    /// Name of the event; `submitted_for_review` is read as the seed's `ready_for_review`.
    #[serde(deserialize_with = "event_name")]
    pub event: String,
    /// Further fields: agent, reason, commit and others.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoardAgent {
    /// Role: `planner`, `coder` or `code-reviewer`.
    pub role: Option<String>,
    pub status: agent::State,
    pub epoch: Option<u64>,
    pub current_task: Option<Name>,
    /// End of the lease. A change by the agent itself is a beat; see [`super::stamps`].
    pub lease_expires: Option<Timestamp>,
    /// Time of the last heartbeat; likewise.
    pub heartbeat: Option<Timestamp>,
    /// The beats that the stamps show, if Ensemble wrote them.
    #[serde(default, deserialize_with = "text")]
    pub beat: Option<String>,
    /// Terminal: `/dev/pts/0`, or `unknown`.
    #[serde(default, deserialize_with = "text")]
    pub terminal: Option<String>,
    /// Iterations over all restarts.
    pub iterations_total: Option<u64>,
    /// Share of its context that is used, as the agent reports, in percent.
    pub context_percent: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Discovery {
    pub id: Name,
    /// Urgency: `deferred` or `immediate`.
    pub urgency: Option<String>,
    pub converted_to_task: Option<Name>,
    /// Further fields: finder, description, recommendation and others.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HumanNote {
    pub timestamp: Option<Timestamp>,
    #[serde(default, deserialize_with = "text")]
    pub message: Option<String>,
    /// Recipients: null for all, or the name of an agent or role, or a list of them.
    #[serde(default, rename = "for")]
    pub to: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoardAnomaly {
    pub timestamp: Option<Timestamp>,
    pub task: Option<Name>,
    #[serde(default, deserialize_with = "text")]
    pub reporter: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub details: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoardSprint {
    pub id: Name,
    pub goal_ref: Option<Name>,
    #[serde(default, deserialize_with = "or_default")]
    pub scope: SprintScope,
    #[serde(default, deserialize_with = "or_default")]
    pub timeline: Timeline,
    pub status: Option<SprintState>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SprintScope {
    #[serde(deserialize_with = "or_default")]
    pub planned: Vec<Name>,
    #[serde(deserialize_with = "or_default")]
    pub stretch: Vec<Name>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    pub started: Option<Timestamp>,
    pub deadline: Option<Timestamp>,
    pub checkpoint_at: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CircuitBreaker {
    pub last_check: Option<Timestamp>,
    /// Verdict: `OK` or `TRIGGERED`.
    pub status: Option<String>,
    pub current_trigger: Value,
    /// Earlier triggers, and who acknowledged them.
    #[serde(deserialize_with = "or_default")]
    pub history: Vec<Value>,
}

/// Settings that the seed defines; a missing one has the seed's default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BoardConfig {
    /// Most iterations of one coder (10).
    pub max_coder_iterations: Option<u64>,
    /// Most rejections of one coder's work (5).
    pub max_review_cycles: Option<u64>,
    /// Duration of a lease, in seconds (300).
    pub lease_duration: Option<u64>,
    #[serde(deserialize_with = "text")]
    pub integration_branch: Option<String>,
    /// Poll interval of coders' supervisors without events, in seconds (30).
    pub coder_poll_interval: Option<u64>,
    /// How long a coder's supervisor waits for work before it ends, in seconds (no limit).
    pub coder_max_wait: Option<u64>,
    /// Poll interval of planners' supervisors, in seconds (60).
    pub planner_poll_interval: Option<u64>,
    /// Poll interval of reviewers' supervisors, in seconds (30).
    pub reviewer_poll_interval: Option<u64>,
}

impl BoardConfig {
    pub fn limits(&self, task: Option<&BoardTask>) -> TaskLimits {
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
        let own = task.and_then(|task| task.max_iterations).or(self.max_coder_iterations);
        let usual = TaskLimits::default();
        match (own, self.max_review_cycles) {
            (None, None) => usual,
            (iterations, cycles) => TaskLimits::with_max(
                iterations.map_or(usual.iterations_max, count),
                cycles.map_or(usual.review_cycles_max, count),
            ),
        }
    }

    pub fn lease_duration(&self) -> Duration {
        self.lease_duration.map_or(LEASE_DURATION, |seconds| Duration::from_secs(seconds.max(1)))
    }
}

/// A claim or a review that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskHold<'a> {
    pub(crate) by: &'a Name,
    pub(crate) epoch: u64,
    /// End of the lease, for people.
    pub(crate) until: Option<Timestamp>,
    pub(crate) is_review: bool,
}

impl BoardTask {
    pub(crate) fn hold(&self) -> Option<TaskHold<'_>> {
        let (by, epoch, until, is_review) = match self.status {
            TaskStatus::Claimed => (&self.assigned_to, self.lease_epoch, self.lease_expires, false),
            TaskStatus::ReadyForReview => {
                (&self.reviewing_by, self.review_epoch, self.review_lease_expires, true)
            }
            _ => return None,
        };
        Some(TaskHold { by: by.as_ref()?, epoch: epoch.unwrap_or_default(), until, is_review })
    }

    pub(super) fn times(&self, event: &str) -> usize {
        self.history.iter().filter(|line| line.event == event).count()
    }
}

impl HistoryEvent {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.more.get(name)?.as_str()
    }
}

impl Discovery {
    pub(super) fn is_urgent(&self) -> bool {
        self.urgency.as_deref() == Some("immediate") && self.converted_to_task.is_none()
    }
}

impl State {
    pub fn task(&self, id: &Name) -> Option<&BoardTask> {
        self.tasks.iter().find(|task| task.id == *id)
    }

    pub fn require_task(&self, id: &Name) -> ensemble_core::Result<&BoardTask> {
        self.task(id).ok_or_else(|| not_on_board(self, id))
    }

    pub(crate) fn position(&self, id: &Name) -> Option<usize> {
        self.tasks.iter().position(|task| task.id == *id)
    }
}

// Values that YAML or a person writes in another way than Rust reads them.

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// YAML reads a commit of digits only as a number.
fn text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

fn texts<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let values: Vec<Value> = or_default(d)?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(values.iter().map(text).collect())
}

fn event_name<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match text(d)?.unwrap_or_default() {
        drifted if drifted == "submitted_for_review" => "ready_for_review".to_owned(),
        name => name,
    })
}
