//! Why the blackboard refuses a change, as types that a caller can match.

use std::path::PathBuf;

use super::schema::ANOMALY_TYPES;
use super::state::TaskStatus;
use super::steps::word;
use crate::proto::goal::{GoalState, SprintState};
use crate::proto::{agent, task};
use ensemble_core::message::{Name, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardObstacle {
    #[error("{} exists", path.display())]
    BoardExists { path: PathBuf },
    #[error("the board has changed since it was copied")]
    ChangedSinceCopy,
    #[error("the board has changed since: plan the claim again")]
    ChangedSincePlan,
    #[error("a fresh worktree needs its base commit")]
    NoBaseCommit,
    #[error("its status is {}", status.as_str())]
    Status { status: TaskStatus },
    #[error("it depends on {}, which is not merged", names(on, ""))]
    Unmerged { on: Vec<Name> },
    #[error("it depends on `{on}`, which is {} and never merged: {}", status.as_str(), instead(successors))]
    NeverMerged { on: Name, status: TaskStatus, successors: Vec<Name> },
    #[error("it already has task `{task}` ({})", status.as_str())]
    HasTask { task: Name, status: TaskStatus },
    #[error("its failed coders are {}", names(coders, ""))]
    Failed { coders: Vec<Name> },
    #[error("{0}")]
    Step(task::TaskRefusal),
    #[error("task `{task}` exists")]
    TaskExists { task: Name },
    #[error("no successor is named")]
    NoSuccessor,
    #[error("`{agent}` is registered; unregister it, or use another name")]
    Registered { agent: Name },
    #[error("its lease runs until {until}")]
    LeaseRuns { until: Timestamp },
    #[error("it has renewed the lease since")]
    LeaseRenewed,
    #[error("it is {}", word(*state))]
    AgentState { state: agent::State },
    #[error("is not CLAIMED: claim it first")]
    NoCoder,
    #[error("it has no reviewer: claim it first")]
    NoReviewer,
    #[error("there is no goal")]
    NoGoal,
    #[error("goal `{goal}` is not over")]
    GoalRuns { goal: Name },
    #[error("it is {}", word(*state))]
    GoalState { state: GoalState },
    #[error("there is no sprint")]
    NoSprint,
    #[error("sprint `{sprint}` is not over")]
    SprintRuns { sprint: Name },
    #[error("it is {}", word(*state))]
    SprintState { state: SprintState },
    #[error("a discovery of that name exists")]
    DiscoveryExists,
    #[error("it is already task `{task}`")]
    Converted { task: Name },
    #[error("its type must be one of {}", ANOMALY_TYPES.join(", "))]
    AnomalyType,
    #[error("type {kind} needs the details {}", missing.join(", "))]
    AnomalyDetails { kind: String, missing: Vec<&'static str> },
    #[error("the circuit breaker is not triggered")]
    BreakerClosed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostLease {
    #[error("registration {epoch} of `{agent}` has ended; {current} is current")]
    Registration { agent: Name, epoch: u64, current: u64 },
    #[error("`{agent}` is no longer registered")]
    Unregistered { agent: Name },
    #[error("`{agent}` (epoch {epoch}) no longer holds it")]
    Task { agent: Name, epoch: u64 },
    #[error("epoch {epoch} is already over")]
    Over { epoch: u64 },
    #[error("{0}")]
    Step(task::TaskRefusal),
}

/// Names in a row, each between `quote`.
fn names(names: &[Name], quote: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{quote}{name}{quote}")).collect();
    quoted.join(", ")
}

fn instead(successors: &[Name]) -> String {
    match successors {
        [] => "leave it out".to_owned(),
        by => format!("name {} instead", names(by, "`")),
    }
}
