//! Phase 1 of an agent: is it what it thinks it is, and is there what it needs (seed 001)?

use std::fmt;
use std::path::PathBuf;

use super::Worktrees;
use crate::Result;
use crate::board::{State, Status, Task, beaten_until};
use crate::message::{Name, Timestamp};
use crate::proto::task::Holder;

/// What an agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Duty {
    /// Work on a task.
    Work {
        /// Which.
        task: Name,
        /// The claim's number.
        epoch: u64,
        /// Where, absolute.
        path: PathBuf,
    },
    /// Review one.
    Review {
        /// Which.
        task: Name,
        /// The review's number.
        epoch: u64,
        /// Where, absolute.
        path: PathBuf,
        /// What.
        commit: String,
    },
    /// Nothing of a task: a planner, or somebody who waits.
    None,
}

/// An agent that can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Who.
    pub agent: Name,
    /// As the board has it.
    pub role: Option<String>,
    /// Its registration's number.
    pub registration: u64,
    /// Until when its lease runs without another beat.
    pub lease_until: Timestamp,
    /// What to do.
    pub duty: Duty,
}

/// Why an agent must not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Nobody gave it anything: it has no entry, or no task.
    NothingAssigned(String),
    /// What it had is over, or somebody else's.
    Over(String),
    /// It is its own, but what it needs is not there.
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
    /// Checks an agent's own entry, that its lease is in the future, its assignment, the worktree, and
    /// for a reviewer that HEAD is the commit to review. `epoch` is the number of the claim or review that
    /// it was given, if it was given one.
    ///
    /// # Errors
    /// The board cannot be read, or git fails; whatever is wrong with the agent is an [`Unfit`].
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

    /// Its own entry, with a lease in the future.
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
            return Err(Unfit::Over(format!("the lease of `{agent}` ran out at {until}")));
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
                (_, Some(epoch)) => Err(Unfit::Over(format!("claim {epoch} is over"))),
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
                let text = format!("task `{}` is {}, nobody holds it", task.id, other.as_str());
                return Ok(Err(Unfit::Over(text)));
            }
        };
        if task.status == Status::ReadyForReview && task.assigned_to.as_ref() == Some(agent) {
            let text =
                format!("`{agent}` has handed in task `{}`, which waits for its verdict", task.id);
            return Ok(Err(Unfit::NothingAssigned(text)));
        }
        if holder.as_ref() != Some(agent) {
            let by = holder.as_ref().map_or("nobody", Name::as_str);
            return Ok(Err(Unfit::Over(format!("task `{}` is held by {by}", task.id))));
        }
        let number = number.unwrap_or_default();
        if let Some(given) = epoch.filter(|given| *given != number) {
            let text = format!("claim {given} of task `{}` is over, {number} runs now", task.id);
            return Ok(Err(Unfit::Over(text)));
        }
        self.place_of(task, number)
    }

    /// The worktree, as it must be.
    fn place_of(&self, task: &Task, epoch: u64) -> Result<std::result::Result<Duty, Unfit>> {
        let path = self.path_of(task);
        let id = task.id.clone();
        let Some(entry) = self.entry_at(&path)?.filter(|_| path.exists()) else {
            let text = format!("there is no worktree at {}", path.display());
            return Ok(Err(Unfit::Broken(text)));
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
