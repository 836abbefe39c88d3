//! Phase 1 of an agent: checks its identity and its resources (seed 001).

use std::path::PathBuf;

use super::{WorktreeFault, Worktrees};
use crate::board::{BoardTask, State, TaskStatus};
use ensemble_core::Result;
use ensemble_core::message::{Name, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentDuty {
    Work {
        task: Name,
        epoch: u64,
        path: PathBuf,
    },
    Review {
        task: Name,
        epoch: u64,
        path: PathBuf,
        commit: String,
    },
    /// No task: a planner, or an agent that waits.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAgent {
    pub agent: Name,
    pub role: Option<String>,
    pub registration: u64,
    /// End of its lease without another beat.
    pub lease_until: Timestamp,
    /// The task and claim that the worktree belongs to.
    pub duty: AgentDuty,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum UnfitReason {
    /// The agent has no entry, or no task.
    NothingAssigned(String),
    /// The agent's claim has ended, or another agent has claimed the task.
    Over(String),
    /// The claim is current, but a needed resource is missing.
    Broken(String),
}

impl Worktrees {
    /// Checks an agent's own entry, its lease, its assignment and the worktree. For a reviewer,
    /// HEAD must be the commit to review. `epoch` is that of the claim or review that the agent was
    /// given, if any.
    pub fn verify(
        &self,
        agent: &Name,
        epoch: Option<u64>,
        now: Timestamp,
    ) -> Result<std::result::Result<VerifiedAgent, UnfitReason>> {
        let state = self.board.read()?;
        let checked = self.entry_of(&state, agent, now);
        let checked = checked.and_then(|entry| Ok((entry, assigned(&state, agent, epoch)?)));
        match checked {
            Err(unfit) => Ok(Err(unfit)),
            Ok((verified, None)) => Ok(Ok(verified)),
            Ok((verified, Some((task, epoch)))) => {
                let duty = self.place_of(task, epoch)?;
                Ok(duty.map(|duty| VerifiedAgent { duty, ..verified }))
            }
        }
    }

    /// Checks the agent's own entry and that its lease ends in the future.
    fn entry_of(
        &self,
        state: &State,
        agent: &Name,
        now: Timestamp,
    ) -> Result<VerifiedAgent, UnfitReason> {
        let Some(entry) = state.agents.get(agent) else {
            let text = format!("`{agent}` is not registered on the blackboard");
            return Err(UnfitReason::NothingAssigned(text));
        };
        let Some(until) = self.board.lease_until(state, agent) else {
            return Err(UnfitReason::Over(format!("`{agent}` has no lease")));
        };
        if until <= now {
            return Err(UnfitReason::Over(format!("the lease of `{agent}` expired at {until}")));
        }
        Ok(VerifiedAgent {
            agent: agent.clone(),
            role: entry.role.clone(),
            registration: entry.epoch.unwrap_or_default(),
            lease_until: until,
            duty: AgentDuty::None,
        })
    }

    fn place_of(
        &self,
        task: &BoardTask,
        epoch: u64,
    ) -> Result<std::result::Result<AgentDuty, UnfitReason>> {
        if let Some(host) = self.board.other_host(task) {
            let text = format!("the worktree of task `{}` is on host {host}", task.id);
            return Ok(Err(UnfitReason::NothingAssigned(text)));
        }
        let path = self.path_of(task);
        let id = task.id.clone();
        let Some(entry) = self.sound_entry(&path)? else {
            return Ok(Err(UnfitReason::Broken(WorktreeFault::of_missing(path).to_string())));
        };
        if task.status == TaskStatus::Claimed {
            return Ok(Ok(AgentDuty::Work { task: id, epoch, path }));
        }
        let (head, wanted) = (entry.head.unwrap_or_default(), task.review_commit.clone());
        match wanted {
            Some(commit) if commit == head => {
                Ok(Ok(AgentDuty::Review { task: id, epoch, path, commit }))
            }
            wanted => {
                let wanted = wanted.unwrap_or_default();
                let text = format!("{wanted} is to be reviewed, but the worktree is at {head}");
                Ok(Err(UnfitReason::Broken(text)))
            }
        }
    }
}

/// The task that an agent works on or reviews, and the epoch of its claim or review. A planner has none.
fn assigned<'a>(
    state: &'a State,
    agent: &Name,
    epoch: Option<u64>,
) -> Result<Option<(&'a BoardTask, u64)>, UnfitReason> {
    let over = |text: String| Err(UnfitReason::Over(text));
    let entry = state.agents.get(agent);
    let current = entry.and_then(|entry| entry.current_task.as_ref());
    let Some(task) = current.and_then(|id| state.task(id)) else {
        return match (entry.and_then(|entry| entry.role.as_deref()), epoch) {
            (_, Some(epoch)) => over(format!("claim {epoch} has ended")),
            (Some("planner"), None) => Ok(None),
            (_, None) => {
                let text = format!("`{agent}` has no task on the blackboard");
                Err(UnfitReason::NothingAssigned(text))
            }
        };
    };
    let (id, status) = (&task.id, task.status);
    if !matches!(status, TaskStatus::Claimed | TaskStatus::ReadyForReview) {
        return over(format!("task `{id}` is {}, no agent holds it", status.as_str()));
    }
    if status == TaskStatus::ReadyForReview && task.assigned_to.as_ref() == Some(agent) {
        let text = format!("`{agent}` has submitted task `{id}`, which waits for its verdict");
        return Err(UnfitReason::NothingAssigned(text));
    }
    match task.hold() {
        Some(hold) if hold.by == agent => match epoch.filter(|given| *given != hold.epoch) {
            None => Ok(Some((task, hold.epoch))),
            Some(given) => {
                over(format!("claim {given} of task `{id}` has ended; {} is current", hold.epoch))
            }
        },
        other => {
            let by = other.map_or("no agent", |hold| hold.by.as_str());
            over(format!("task `{id}` is held by {by}"))
        }
    }
}
