//! May it begin? One answer for every door: mail, the blackboard, steps, assignments and reports.
//!
//! | | take up: `recv`, `assign`, `dispatch`, `step next` | claim: `task claim` | hand in: `settle`, success of `report`, `task submit`, `step submit` |
//! |---|---|---|---|
//! | no obstacle | yes | yes | yes |
//! | a plan is demanded, none submitted | yes, to plan it | the same | no |
//! | the plan waits for its review | no | no | no |
//! | the plan was rejected, or not reviewed in time | no | yes, to plan again | no |
//! | PAUSE or CHECKPOINT | no | no | yes |
//! | ABORT | no | no | yes |
//! | the agent has agreed to leave | no | no | yes |
//! | the budget of the agent, the task or the team is used up | no | no | yes |
//!
//! An agent learns by mail that its plan is to be submitted again, and does that without the task. A supervisor starts
//! an agent for a claimed task only: without the claim, none would plan again.
//!
//! A failure can be reported at any time. What an agent has begun is not stopped by a pause: it ends the task, and
//! begins no other. Requests, their answers, reports and notices are not work, and are received at any time.

mod mail;

use std::path::Path;

use ensemble_core::document::SharedFiles;
use ensemble_core::message::Name;
use ensemble_core::requests::{GatedTask, PlanGate, RequestStore};
use ensemble_core::{AreaError, Error, Result};

use crate::board::{ActiveControl, ControlFile, PLACES};
use crate::budget::{BudgetFile, ParkedScope};
use crate::roster::{MemberState, Roster};

pub use mail::MailAdmission;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskAct {
    TakeUp,
    Claim,
    HandIn,
}

#[derive(Clone, Debug, Default)]
pub struct TaskCircumstances {
    pub plan: Option<PlanGate>,
    /// The strongest control file.
    pub control: Option<ActiveControl>,
    pub leaving: Option<Name>,
    pub budget: Option<ParkedScope>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAdmitted {
    #[error(transparent)]
    Plan(GatedTask),
    #[error("{}{}: no agent begins anything now", .0.title(), reason(.0))]
    Control(ActiveControl),
    #[error("{agent} is leaving: it begins nothing more")]
    Leaving { agent: Name },
    #[error("the budget of {} is used up: {} of {} since {}", .0.scope, .0.used, .0.limit, .0.since)]
    Budget(Box<ParkedScope>),
}

impl AreaError for NotAdmitted {}

fn reason(control: &ActiveControl) -> String {
    match control.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({})", reason.lines().next().unwrap_or_default()),
    }
}

impl NotAdmitted {
    /// As an error. A plan's is [`GatedTask`], as the broker says it.
    pub fn into_error(self) -> Error {
        match self {
            Self::Plan(gated) => gated.into(),
            other => other.into(),
        }
    }
}

impl TaskCircumstances {
    /// The obstacle to an act: the table above. The end of the team comes first, and what only the agent itself can
    /// fix comes last.
    pub fn obstacle(&self, act: TaskAct) -> Option<NotAdmitted> {
        let plan = self.plan.as_ref().filter(|gate| match act {
            TaskAct::TakeUp => gate.keeps_back(),
            TaskAct::Claim => gate.keeps_back() && !gate.is_refused(),
            TaskAct::HandIn => gate.is_closed(),
        });
        let plan = plan.map(|gate| NotAdmitted::Plan(GatedTask(Box::new(gate.clone()))));
        if act == TaskAct::HandIn {
            return plan;
        }
        let control = self.control.clone().map(NotAdmitted::Control);
        if self.control.as_ref().is_some_and(|control| control.file == ControlFile::Abort) {
            return control;
        }
        let leaving = self.leaving.clone().map(|agent| NotAdmitted::Leaving { agent });
        let budget = self.budget.clone().map(|parked| NotAdmitted::Budget(Box::new(parked)));
        leaving.or(control).or(budget).or(plan)
    }
}

/// Answers for a whole project, no matter what carries its requests. The blackboard's claims, the steps, assignments
/// and reports ask it.
pub trait Doorkeeper: std::fmt::Debug + Send + Sync {
    fn check(&self, act: TaskAct, task: &str, agent: &Name) -> Result<()>;

    /// Demands a plan of each agent that takes this task; demanding it again changes nothing.
    fn demand_plan(&self, task: &str, by: &Name) -> Result<()>;
}

/// Whether this error refuses a task for now, and is not a failure.
pub fn is_refusal(error: &Error) -> bool {
    error.area::<NotAdmitted>().is_some() || error.area::<GatedTask>().is_some()
}

/// The state of a project that every interface checks before an agent begins something.
#[derive(Clone, Debug)]
pub struct ProjectAdmission {
    project: std::path::PathBuf,
    roster: Roster,
    budget: BudgetFile,
    copy: Option<std::path::PathBuf>,
}

impl ProjectAdmission {
    /// Those of a project with this state directory, `.ensemble`.
    pub fn new(project: &Path, state: &Path) -> Self {
        Self {
            project: project.to_owned(),
            roster: Roster::open(state),
            budget: BudgetFile::open(state),
            copy: None,
        }
    }

    /// The same for a team on several hosts, with this host's copy of what they share.
    pub fn with_copy(self, copy: Option<std::path::PathBuf>) -> Self {
        Self { copy, ..self }
    }

    /// Why this agent may not do this with this task; `None` if it may.
    pub fn obstacle(
        &self,
        act: TaskAct,
        requests: &dyn RequestStore,
        (task, agent): (&str, &Name),
    ) -> Result<Option<NotAdmitted>> {
        let mut circumstances = self.whatever_the_task(agent, requests.shared_files())?;
        if circumstances.budget.is_none() {
            circumstances.budget = self.budget.obstacle(Some(task), agent)?;
        }
        circumstances.plan = requests.gate(task, agent)?;
        Ok(circumstances.obstacle(act))
    }

    pub fn check(
        &self,
        act: TaskAct,
        requests: &dyn RequestStore,
        task_and_agent: (&str, &Name),
    ) -> Result<()> {
        let obstacle = self.obstacle(act, requests, task_and_agent)?;
        obstacle.map_or(Ok(()), |obstacle| Err(obstacle.into_error()))
    }

    /// The obstacle that keeps this agent from beginning any task. `shared` are the files of all hosts, if they can
    /// be reached.
    pub fn whatever_the_task(
        &self,
        agent: &Name,
        shared: Option<&dyn SharedFiles>,
    ) -> Result<TaskCircumstances> {
        let budget = self.budget.obstacle(None, agent)?;
        Ok(TaskCircumstances { budget, ..self.whatever_the_budget(agent, shared)? })
    }

    /// The same, without the budgets.
    pub(crate) fn whatever_the_budget(
        &self,
        agent: &Name,
        shared: Option<&dyn SharedFiles>,
    ) -> Result<TaskCircumstances> {
        let control = self.control(shared)?;
        let leaving = match self.roster.get(agent)?.map(|member| member.state) {
            Some(MemberState::Leaving) => Some(agent.clone()),
            Some(MemberState::Up | MemberState::Shutdown) | None => None,
        };
        Ok(TaskCircumstances { plan: None, control, leaving, budget: None })
    }

    pub(crate) const fn budget(&self) -> &BudgetFile {
        &self.budget
    }

    /// The strongest control file. It is beside the blackboard; without one, in `.ensemble`. A team on several hosts
    /// has it in `shared`, and each host has a copy.
    pub fn control(&self, shared: Option<&dyn SharedFiles>) -> Result<Option<ActiveControl>> {
        let mut found = Vec::new();
        for place in PLACES {
            found.extend(ActiveControl::read_all(&self.project.join(place))?);
        }
        match (shared, &self.copy) {
            (Some(files), Some(_)) => found.extend(ActiveControl::read_shared(files)?),
            (None, Some(copy)) => found.extend(ActiveControl::read_all(copy)?),
            (_, None) => {}
        }
        Ok(found.into_iter().max_by_key(|control| control.file))
    }
}

#[cfg(test)]
mod tests;
