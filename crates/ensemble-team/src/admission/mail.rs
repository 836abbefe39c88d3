//! What mailboxes ask: the same answer, for messages.

use ensemble_core::document::SharedFiles;
use ensemble_core::durable::Dir;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::requests::PlanGates;
use ensemble_core::spool::{Admission, Standstill, refusal_to_begin};
use ensemble_core::{Error, Result};

use super::{NotAdmitted, ProjectAdmission, TaskAct};

#[derive(Clone, Debug)]
pub struct MailAdmission(ProjectAdmission);

impl MailAdmission {
    pub const fn new(admissions: ProjectAdmission) -> Self {
        Self(admissions)
    }
}

impl Standstill for MailAdmission {
    fn refusal(&self, agent: &Name, shared: Option<&dyn SharedFiles>) -> Result<Option<Error>> {
        let circumstances = self.0.whatever_the_task(agent, shared)?;
        Ok(circumstances.obstacle(TaskAct::TakeUp).map(NotAdmitted::into_error))
    }

    fn refusal_of_task(&self, agent: &Name, task: Option<&str>) -> Result<Option<Error>> {
        let parked = self.0.budget().obstacle(task, agent)?;
        Ok(parked.map(|parked| NotAdmitted::Budget(Box::new(parked)).into_error()))
    }

    fn refuses_tasks(&self) -> Result<bool> {
        Ok(!self.0.budget().stands_in_the_way()?.is_empty())
    }
}

impl Admission for MailAdmission {
    fn concerns(&self, queue: &Dir, holder: &Name) -> Result<bool> {
        Ok(PlanGates.concerns(queue, holder)?
            || self.0.whatever_the_budget(holder, None)?.obstacle(TaskAct::TakeUp).is_some()
            || self.refuses_tasks()?)
    }

    fn refusal(&self, queue: &Dir, holder: &Name, envelope: &Envelope) -> Result<Option<Error>> {
        if let Some(refusal) = refusal_to_begin(self, holder, envelope, None)? {
            return Ok(Some(refusal));
        }
        PlanGates.refusal(queue, holder, envelope)
    }

    fn refusal_to_settle(
        &self,
        queue: &Dir,
        holder: &Name,
        envelope: &Envelope,
    ) -> Result<Option<Error>> {
        PlanGates.refusal_to_settle(queue, holder, envelope)
    }

    fn unfinished(&self, queue: &Dir, message: &MessageId) -> Result<Option<Error>> {
        PlanGates.unfinished(queue, message)
    }
}
