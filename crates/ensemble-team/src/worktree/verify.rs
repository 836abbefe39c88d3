//! Phase 1 of an agent: checks its identity and its resources (seed 001).

use std::fmt;
use std::path::PathBuf;

use super::{WorktreeFault, Worktrees};
use crate::board::{State, Status, Task, beaten_until};
use crate::proto::task::Holder;
use ensemble_core::Result;
use ensemble_core::message::{Name, Timestamp};

/// An agent's assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Duty {
    /// Work on a task.
    Work {
        /// The task.
        task: Name,
        /// Epoch of the claim.
        epoch: u64,
        /// Absolute path of the worktree.
        path: PathBuf,
    },
    /// Review a task.
    Review {
        /// The task.
        task: Name,
        /// Epoch of the review.
        epoch: u64,
        /// Absolute path of the worktree.
        path: PathBuf,
        /// The commit to review.
        commit: String,
    },
    /// No task: a planner, or an agent that waits.
    None,
}

/// An agent that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The agent.
    pub agent: Name,
    /// Its role on the board.
    pub role: Option<String>,
    /// Epoch of its registration.
    pub registration: u64,
    /// End of its lease without another beat.
    pub lease_until: Timestamp,
    /// The task and claim that the worktree belongs to.
    pub duty: Duty,
}

/// Why an agent must not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The agent has no entry, or no task.
    NothingAssigned(String),
    /// The agent's claim is over, or another agent's.
    Over(String),
    /// The claim is current, but a needed resource is missing.
    Broken(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingAssigned(text) | Self::Over(text) | Self::Broken(text) => {
                f.write_str(text)
            }
        }
    }
}

impl Worktrees {
    /// Checks an agent's own entry, its lease, its assignment and the worktree. For a reviewer,
    /// HEAD must be the commit to review. `epoch` is that of the claim or review that the agent was
    /// given, if any.
    ///
    /// # Errors
    /// The board cannot be read, or git fails. Any problem of the agent itself is an [`Unfit`].
    pub fn verify(
        &self,
        agent: &Name,
        epoch: Option<u64>,
        now: Timestamp,
    ) -> Result<std::result::Result<Verified, Unfit>> {
        let state = self.board.read()?;
        match self.entry_of(&state, agent, now) {
            Err(unfit) => Ok(Err(unfit)),
            Ok(verified) => {
                let duty = self.duty_of(&state, agent, epoch)?;
                Ok(duty.map(|duty| Verified { duty, ..verified }))
            }
        }
    }

    /// Checks the agent's own entry and that its lease ends in the future.
    fn entry_of(&self, state: &State, agent: &Name, now: Timestamp) -> Result<Verified, Unfit> {
        let Some(entry) = state.agents.get(agent) else {
            let text = format!("`{agent}` is not registered on the blackboard");
            return Err(Unfit::NothingAssigned(text));
        };
        let registration = entry.epoch.unwrap_or_default();
        let holder = Holder { by: agent.clone(), epoch: registration };
        let board = self.board.path().parent();
        let beaten = board.and_then(|directory| beaten_until(directory, &holder));
        let Some(until) = entry.lease_expires.max(beaten) else {
            return Err(Unfit::Over(format!("`{agent}` has no lease")));
        };
        if until <= now {
            return Err(Unfit::Over(format!("the lease of `{agent}` expired at {until}")));
        }
        Ok(Verified {
            agent: agent.clone(),
            role: entry.role.clone(),
            registration,
            lease_until: until,
            duty: Duty::None,
        })
    }

    fn duty_of(
        &self,
        state: &State,
        agent: &Name,
        epoch: Option<u64>,
    ) -> Result<std::result::Result<Duty, Unfit>> {
        let role = state.agents.get(agent).and_then(|entry| entry.role.as_deref());
        let current = state.agents.get(agent).and_then(|entry| entry.current_task.as_ref());
        let Some(task) = current.and_then(|id| state.task(id)) else {
            return Ok(match (role, epoch) {
                (_, Some(epoch)) => Err(Unfit::Over(format!("claim {epoch} has ended"))),
                (Some("planner"), None) => Ok(Duty::None),
                (_, None) => {
                    Err(Unfit::NothingAssigned(format!("`{agent}` has no task on the blackboard")))
                }
            });
        };
        let (holder, number) = match task.status {
            Status::Claimed => (&task.assigned_to, task.lease_epoch),
            Status::ReadyForReview => (&task.reviewing_by, task.review_epoch),
            other => {
                let text = format!("task `{}` is {}, no agent holds it", task.id, other.as_str());
                return Ok(Err(Unfit::Over(text)));
            }
        };
        if task.status == Status::ReadyForReview && task.assigned_to.as_ref() == Some(agent) {
            let text =
                format!("`{agent}` has submitted task `{}`, which waits for its verdict", task.id);
            return Ok(Err(Unfit::NothingAssigned(text)));
        }
        if holder.as_ref() != Some(agent) {
            let by = holder.as_ref().map_or("no agent", Name::as_str);
            return Ok(Err(Unfit::Over(format!("task `{}` is held by {by}", task.id))));
        }
        let number = number.unwrap_or_default();
        if let Some(given) = epoch.filter(|given| *given != number) {
            let text =
                format!("claim {given} of task `{}` has ended; {number} is current", task.id);
            return Ok(Err(Unfit::Over(text)));
        }
        self.place_of(task, number)
    }

    /// Checks the worktree.
    fn place_of(&self, task: &Task, epoch: u64) -> Result<std::result::Result<Duty, Unfit>> {
        if let Some(host) = self.board.other_host(task) {
            let text = format!("the worktree of task `{}` is on host {host}", task.id);
            return Ok(Err(Unfit::NothingAssigned(text)));
        }
        let path = self.path_of(task);
        let id = task.id.clone();
        let Some(entry) = self.sound_entry(&path)? else {
            return Ok(Err(Unfit::Broken(WorktreeFault::of_missing(path).to_string())));
        };
        if task.status == Status::Claimed {
            return Ok(Ok(Duty::Work { task: id, epoch, path }));
        }
        let (head, wanted) = (entry.head.unwrap_or_default(), task.review_commit.clone());
        match wanted {
            Some(commit) if commit == head => {
                Ok(Ok(Duty::Review { task: id, epoch, path, commit }))
            }
            wanted => {
                let wanted = wanted.unwrap_or_default();
                let text = format!("{wanted} is to be reviewed, but the worktree is at {head}");
                Ok(Err(Unfit::Broken(text)))
            }
        }
    }
}
