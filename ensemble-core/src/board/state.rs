//! The blackboard as values to look at. To change it, see [`super::LockedBoard`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::message::{Name, Timestamp};
use crate::proto::agent;
use crate::proto::beat::LEASE_DURATION;
use crate::proto::goal::{GoalState, SprintState};
use crate::proto::task::Limits;

/// Everything that is on the board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct State {
    /// The format, 1.
    pub version: u64,
    /// How often the board was written by Ensemble.
    pub revision: u64,
    /// The last fencing number that was given out.
    pub epoch: u64,
    /// What all this is for.
    pub goal: Option<Goal>,
    /// In the order of the file.
    #[serde(deserialize_with = "or_default")]
    pub tasks: Vec<Task>,
    /// Who is registered.
    #[serde(deserialize_with = "or_default")]
    pub agents: BTreeMap<Name, Agent>,
    /// What was found on the way.
    #[serde(deserialize_with = "or_default")]
    pub discovered: Vec<Discovery>,
    /// Notes from one agent to its successor, by task.
    #[serde(deserialize_with = "or_default")]
    pub handoff: BTreeMap<Name, Map<String, Value>>,
    /// What people want to have said.
    #[serde(deserialize_with = "or_default")]
    pub human_notes: Vec<HumanNote>,
    /// What did not go as it should.
    #[serde(deserialize_with = "or_default")]
    pub anomalies: Vec<Anomaly>,
    /// The current sprint.
    pub sprint: Option<Sprint>,
    /// What `analyze` found last.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// The seed's settings.
    #[serde(deserialize_with = "or_default")]
    pub config: Config,
}

/// The goal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Goal {
    /// Its name.
    pub id: Name,
    /// What is to be reached.
    #[serde(default, deserialize_with = "text")]
    pub description: Option<String>,
    /// Where it is specified.
    #[serde(default, deserialize_with = "text")]
    pub spec_ref: Option<String>,
    /// Where it is.
    #[serde(default)]
    pub status: Option<GoalState>,
}

/// Where a task is; see [`crate::proto::task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, clippy::allow_attributes, reason = "explained in proto::task")]
pub enum Status {
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

impl Status {
    /// The seed's name.
    #[must_use]
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

    /// Nothing happens to it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Superseded | Self::Abandoned)
    }

    /// Its coder can have no other task: it works on it, or waits for the verdict, or must rework.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Claimed | Self::ReadyForReview | Self::Rejected)
    }

    /// Somebody works in its worktree, or will go on there.
    #[must_use]
    pub const fn needs_worktree(self) -> bool {
        self.is_active() || matches!(self, Self::Approved | Self::IntegrationFailed)
    }

    /// A coder may take it, if what it depends on is merged.
    #[must_use]
    pub const fn is_claimable(self) -> bool {
        matches!(self, Self::Unclaimed | Self::Rejected | Self::IntegrationFailed)
    }
}

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// Its name.
    pub id: Name,
    /// What is to be done.
    #[serde(default, deserialize_with = "text")]
    pub description: Option<String>,
    /// Where it is.
    pub status: Status,
    /// 1 is the most urgent.
    #[serde(default)]
    pub priority: Option<u64>,
    /// Its coder, or who was that last.
    #[serde(default)]
    pub assigned_to: Option<Name>,
    /// Below the project.
    #[serde(default, deserialize_with = "text")]
    pub worktree: Option<String>,
    /// Where the worktree began.
    #[serde(default, deserialize_with = "text")]
    pub base_commit: Option<String>,
    /// For people; see [`crate::proto::lease`].
    #[serde(default)]
    pub lease_expires: Option<Timestamp>,
    /// The claim's fencing number.
    #[serde(default)]
    pub lease_epoch: Option<u64>,
    /// Of its coder, from 1.
    #[serde(default)]
    pub iteration: Option<u64>,
    /// Instead of the board's.
    #[serde(default)]
    pub max_iterations: Option<u64>,
    /// Rejections of its coder's work.
    #[serde(default)]
    pub review_cycles_current: Option<u64>,
    /// Rejections of anybody's work.
    #[serde(default)]
    pub review_cycles_total: Option<u64>,
    /// What is to be reviewed.
    #[serde(default, deserialize_with = "text")]
    pub review_commit: Option<String>,
    /// Its reviewer.
    #[serde(default)]
    pub reviewing_by: Option<Name>,
    /// For people.
    #[serde(default)]
    pub review_lease_expires: Option<Timestamp>,
    /// The review's fencing number.
    #[serde(default)]
    pub review_epoch: Option<u64>,
    /// Who said yes.
    #[serde(default)]
    pub approved_by: Option<Name>,
    /// In the integration branch.
    #[serde(default, deserialize_with = "text")]
    pub merge_commit: Option<String>,
    /// Where it is specified: a path, perhaps with `#section`.
    #[serde(default, deserialize_with = "text")]
    pub spec_ref: Option<String>,
    /// How anybody can see that it is done.
    #[serde(default, deserialize_with = "text")]
    pub done_when: Option<String>,
    /// What belongs to it.
    #[serde(default, deserialize_with = "text")]
    pub scope: Option<String>,
    /// What must be merged before.
    #[serde(default, deserialize_with = "or_default")]
    pub depends_on: Vec<Name>,
    /// What it came from.
    #[serde(default)]
    pub supersedes: Option<Name>,
    /// Its reviewer's words.
    #[serde(default, deserialize_with = "text")]
    pub rejection_reason: Option<String>,
    /// Why it cannot go on.
    #[serde(default, deserialize_with = "text")]
    pub blocked_reason: Option<String>,
    /// What its planner must answer.
    #[serde(default, deserialize_with = "texts")]
    pub blocked_questions: Vec<String>,
    /// Coders that failed.
    #[serde(default, deserialize_with = "or_default")]
    pub failed_by: Vec<Name>,
    /// What took its place.
    #[serde(default)]
    pub superseded_by: Option<Vec<Name>>,
    /// Why it was cut anew.
    #[serde(default, deserialize_with = "text")]
    pub rescope_reason: Option<String>,
    /// It repairs a merge that failed.
    #[serde(default)]
    pub integration_fix: Option<bool>,
    /// Somebody's notes wait for the next one.
    #[serde(default)]
    pub handoff_pending: Option<bool>,
    /// What happened to it.
    #[serde(default, deserialize_with = "or_default")]
    pub history: Vec<Happened>,
}

/// A line of a task's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Happened {
    /// When.
    pub time: Timestamp,
    /// What; `submitted_for_review` is read as the seed's `ready_for_review`.
    #[serde(deserialize_with = "event_name")]
    pub event: String,
    /// Who, reason, commit and whatever else was noted.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An agent's entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Agent {
    /// `planner`, `coder` or `code-reviewer`.
    #[serde(default)]
    pub role: Option<String>,
    /// What it is doing.
    pub status: agent::State,
    /// Its registration's fencing number.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// What it works on or reviews.
    #[serde(default)]
    pub current_task: Option<Name>,
    /// For people.
    #[serde(default)]
    pub lease_expires: Option<Timestamp>,
    /// For people.
    #[serde(default)]
    pub heartbeat: Option<Timestamp>,
    /// `/dev/pts/0`, or `unknown`.
    #[serde(default, deserialize_with = "text")]
    pub terminal: Option<String>,
    /// Over all its restarts.
    #[serde(default)]
    pub iterations_total: Option<u64>,
    /// How much of its context is used, as it says.
    #[serde(default)]
    pub context_percent: Option<u64>,
}

/// Something that was found on the way.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Discovery {
    /// Its name.
    pub id: Name,
    /// `deferred` or `immediate`.
    #[serde(default)]
    pub urgency: Option<String>,
    /// What became of it.
    #[serde(default)]
    pub converted_to_task: Option<Name>,
    /// Who found it, what it is, what to do.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A note from a person to the team.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HumanNote {
    /// When.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
    /// What.
    #[serde(default, deserialize_with = "text")]
    pub message: Option<String>,
    /// For whom: nothing for all, else names of agents or roles, or one.
    #[serde(default, rename = "for")]
    pub to: Value,
}

/// Something that did not go as it should.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Anomaly {
    /// When.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
    /// During which task.
    #[serde(default)]
    pub task: Option<Name>,
    /// Who says so.
    #[serde(default, deserialize_with = "text")]
    pub reporter: Option<String>,
    /// One of the siblings' types.
    #[serde(rename = "type")]
    pub kind: String,
    /// By type.
    #[serde(default)]
    pub details: Value,
}

/// The current sprint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sprint {
    /// Its name.
    pub id: Name,
    /// The goal's name.
    #[serde(default)]
    pub goal_ref: Option<Name>,
    /// Which tasks.
    #[serde(default, deserialize_with = "or_default")]
    pub scope: Scope,
    /// From when to when.
    #[serde(default, deserialize_with = "or_default")]
    pub timeline: Timeline,
    /// Where it is.
    #[serde(default)]
    pub status: Option<SprintState>,
}

/// The tasks of a sprint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Scope {
    /// What should be done.
    #[serde(deserialize_with = "or_default")]
    pub planned: Vec<Name>,
    /// What could be.
    #[serde(deserialize_with = "or_default")]
    pub stretch: Vec<Name>,
}

/// The times of a sprint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Timeline {
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it should end.
    pub deadline: Option<Timestamp>,
    /// When it last stopped for a person.
    pub checkpoint_at: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// What the circuit breaker says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CircuitBreaker {
    /// When `analyze` ran last.
    pub last_check: Option<Timestamp>,
    /// `OK` or `TRIGGERED`.
    pub status: Option<String>,
    /// What it found.
    pub current_trigger: Value,
    /// What it found before, and who acknowledged that.
    #[serde(deserialize_with = "or_default")]
    pub history: Vec<Value>,
}

/// The seed's settings; what is missing has the seed's value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Config {
    /// Iterations of one coder (10).
    pub max_coder_iterations: Option<u64>,
    /// Rejections of one coder's work (5).
    pub max_review_cycles: Option<u64>,
    /// How long a lease runs, in seconds (300).
    pub lease_duration: Option<u64>,
    /// Where approved work goes.
    #[serde(deserialize_with = "text")]
    pub integration_branch: Option<String>,
    /// How often coders' supervisors look without an event, in seconds (30).
    pub coder_poll_interval: Option<u64>,
    /// How long coders' supervisors wait for work before they end, in seconds (for ever).
    pub coder_max_wait: Option<u64>,
    /// How often planners' supervisors look, in seconds (60).
    pub planner_poll_interval: Option<u64>,
    /// How often reviewers' supervisors look, in seconds (30).
    pub reviewer_poll_interval: Option<u64>,
}

impl Config {
    /// The limits of a task.
    #[must_use]
    pub fn limits(&self, task: Option<&Task>) -> Limits {
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
        let own = task.and_then(|task| task.max_iterations).or(self.max_coder_iterations);
        let usual = Limits::default();
        match (own, self.max_review_cycles) {
            (None, None) => usual,
            (iterations, cycles) => Limits::with_max(
                iterations.map_or(usual.iterations_max, count),
                cycles.map_or(usual.review_cycles_max, count),
            ),
        }
    }

    /// How long a lease runs without a beat.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration.map_or(LEASE_DURATION, |seconds| Duration::from_secs(seconds.max(1)))
    }
}

impl State {
    /// A task by its name.
    #[must_use]
    pub fn task(&self, id: &Name) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == *id)
    }

    /// Where a task stands in the list.
    pub(crate) fn position(&self, id: &Name) -> Option<usize> {
        self.tasks.iter().position(|task| task.id == *id)
    }
}

/// Null is nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// A commit of nothing but digits is a number to YAML.
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
