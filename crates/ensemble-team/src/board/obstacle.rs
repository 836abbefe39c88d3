//! Why the blackboard refuses a change, as types that a caller can match.

use std::path::PathBuf;

use super::schema::ANOMALY_TYPES;
use super::state::TaskStatus;
use super::steps::word;
use crate::proto::goal::{GoalState, SprintState};
use crate::proto::{agent, task};
use ensemble_core::message::{Name, Timestamp};

/// Why the blackboard does not allow a change now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoardObstacle {
    /// A blackboard exists already.
    #[error("{} exists", path.display())]
    BoardExists {
        /// The blackboard.
        path: PathBuf,
    },
    /// Another process has changed the board after the copy was made.
    #[error("the board has changed since it was copied")]
    ChangedSinceCopy,
    /// Another process has changed the board after the claim was planned.
    #[error("the board has changed since: plan the claim again")]
    ChangedSincePlan,
    /// A fresh worktree needs the commit where it begins.
    #[error("a fresh worktree needs its base commit")]
    NoBaseCommit,
    /// The task's status does not allow it.
    #[error("its status is {}", status.as_str())]
    Status {
        /// Status of the task.
        status: TaskStatus,
    },
    /// The task depends on tasks that are not merged.
    #[error("it depends on {}, which is not merged", names(on, ""))]
    Unmerged {
        /// The tasks that are not merged.
        on: Vec<Name>,
    },
    /// A new task depends on a task that is never merged.
    #[error("it depends on `{on}`, which is {} and never merged: {}", status.as_str(), instead(successors))]
    NeverMerged {
        /// The dependency.
        on: Name,
        /// Status of the dependency.
        status: TaskStatus,
        /// Tasks that replace the dependency.
        successors: Vec<Name>,
    },
    /// The agent has another task.
    #[error("it already has task `{task}` ({})", status.as_str())]
    HasTask {
        /// The other task.
        task: Name,
        /// Status of the other task.
        status: TaskStatus,
    },
    /// This coder, or as many coders as may try, have failed at the task.
    #[error("its failed coders are {}", names(coders, ""))]
    Failed {
        /// The coders that failed.
        coders: Vec<Name>,
    },
    /// The table of task states refuses the step.
    #[error("{0}")]
    Step(task::TaskRefusal),
    /// A task of that name exists.
    #[error("task `{task}` exists")]
    TaskExists {
        /// The existing task.
        task: Name,
    },
    /// A task cannot be superseded by nothing.
    #[error("no successor is named")]
    NoSuccessor,
    /// An agent of that name is registered.
    #[error("`{agent}` is registered; unregister it, or use another name")]
    Registered {
        /// The registered agent.
        agent: Name,
    },
    /// The agent's lease still runs.
    #[error("its lease runs until {until}")]
    LeaseRuns {
        /// End of the lease.
        until: Timestamp,
    },
    /// The holder has renewed the lease that was to expire.
    #[error("it has renewed the lease since")]
    LeaseRenewed,
    /// The agent's state does not allow it.
    #[error("it is {}", word(*state))]
    AgentState {
        /// State of the agent.
        state: agent::State,
    },
    /// The task is not CLAIMED, so it has no coder to write a prompt for.
    #[error("is not CLAIMED: claim it first")]
    NoCoder,
    /// The task has no reviewer to write a prompt for.
    #[error("it has no reviewer: claim it first")]
    NoReviewer,
    /// There is no goal.
    #[error("there is no goal")]
    NoGoal,
    /// The previous goal is not over.
    #[error("goal `{goal}` is not over")]
    GoalRuns {
        /// The previous goal.
        goal: Name,
    },
    /// The goal's state does not allow it.
    #[error("it is {state:?}")]
    GoalState {
        /// State of the goal.
        state: GoalState,
    },
    /// There is no sprint.
    #[error("there is no sprint")]
    NoSprint,
    /// The previous sprint is not over.
    #[error("sprint `{sprint}` is not over")]
    SprintRuns {
        /// The previous sprint.
        sprint: Name,
    },
    /// The sprint's state does not allow it.
    #[error("it is {state:?}")]
    SprintState {
        /// State of the sprint.
        state: SprintState,
    },
    /// A discovery of that name exists.
    #[error("a discovery of that name exists")]
    DiscoveryExists,
    /// The discovery is a task already.
    #[error("it is already task `{task}`")]
    Converted {
        /// The task.
        task: Name,
    },
    /// No anomaly has this type.
    #[error("its type must be one of {}", ANOMALY_TYPES.join(", "))]
    AnomalyType,
    /// An anomaly of this type needs further details.
    #[error("type {kind} needs the details {}", missing.join(", "))]
    AnomalyDetails {
        /// Type of the anomaly.
        kind: String,
        /// The missing details.
        missing: Vec<&'static str>,
    },
    /// The circuit breaker is not triggered.
    #[error("the circuit breaker is not triggered")]
    BreakerClosed,
}

/// How the caller has lost the lease that it acts under.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostLease {
    /// The agent was registered again since.
    #[error("registration {epoch} of `{agent}` has ended; {current} is current")]
    Registration {
        /// The agent.
        agent: Name,
        /// Epoch of the caller's registration.
        epoch: u64,
        /// Epoch of the current registration.
        current: u64,
    },
    /// The agent is not registered any more.
    #[error("`{agent}` is no longer registered")]
    Unregistered {
        /// The agent.
        agent: Name,
    },
    /// The task is not held under this epoch any more.
    #[error("`{agent}` (epoch {epoch}) no longer holds it")]
    Task {
        /// The last holder.
        agent: Name,
        /// Epoch of the caller's lease.
        epoch: u64,
    },
    /// The lease has ended already.
    #[error("epoch {epoch} is already over")]
    Over {
        /// Epoch of the lease.
        epoch: u64,
    },
    /// The table of task states refuses this holder.
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
