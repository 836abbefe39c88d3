//! Admission: a layer above the mailboxes decides which work a holder may begin and finish.

use std::fmt;

use crate::document::SharedFiles;
use crate::durable::Dir;
use crate::message::{Envelope, MessageId, MessagePurpose, Name};
use crate::{Error, Result};

const MESSAGE_TYPE: &str = "message";

/// Decides for each message whether a holder may receive and settle it.
///
/// A [`Spool`](super::Spool) asks the admission of its [`SpoolOptions`](super::SpoolOptions). Without one, each holder may
/// receive each message. [`PlanGates`](crate::requests::PlanGates) refuses tasks whose plan is not approved.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Whether some message may be refused to this holder. The spool calls [`Admission::refusal`] only then, so
    /// this is the whole cost of an everyday receive: one look into the open directory of the queue.
    fn concerns(&self, queue: &Dir, holder: &Name) -> Result<bool>;

    fn refusal(&self, queue: &Dir, holder: &Name, envelope: &Envelope) -> Result<Option<Error>>;

    /// Why this holder may not settle this message; `None` if it may. By default, as for receiving.
    fn refusal_to_settle(
        &self,
        queue: &Dir,
        holder: &Name,
        envelope: &Envelope,
    ) -> Result<Option<Error>> {
        self.refusal(queue, holder, envelope)
    }

    /// Why this message may not be settled by any holder. It asks for something that is not there
    /// yet, such as the answer to a request. `None` if it may be settled.
    fn unfinished(&self, queue: &Dir, message: &MessageId) -> Result<Option<Error>> {
        let _ = (queue, message);
        Ok(None)
    }
}

/// Why an agent may begin nothing now, no matter what the work is: the team is paused, it ends, or the agent is
/// leaving. An agent may still finish what it has begun, and receive messages that are not work.
pub trait Standstill: fmt::Debug + Send + Sync {
    /// Why this agent may begin nothing; `None` if it may. `shared` is where the hosts of a team keep what stops it.
    fn refusal(&self, agent: &Name, shared: Option<&dyn SharedFiles>) -> Result<Option<Error>>;

    /// Whether this agent may begin other work, but not this task; without one, work that names none. Asks no server.
    fn refusal_of_task(&self, agent: &Name, task: Option<&str>) -> Result<Option<Error>>;

    /// Whether [`Self::refusal_of_task`] may refuse any.
    fn refuses_tasks(&self) -> Result<bool>;
}

pub fn refusal_to_begin(
    standstill: &dyn Standstill,
    agent: &Name,
    envelope: &Envelope,
    shared: Option<&dyn SharedFiles>,
) -> Result<Option<Error>> {
    if !begins_work(envelope) {
        return Ok(None);
    }
    match standstill.refusal(agent, shared)? {
        None => standstill.refusal_of_task(agent, envelope.task_id.as_deref()),
        refusal => Ok(refusal),
    }
}

/// Whether an agent that receives this message begins work with it: an assignment, or a message about a task.
/// Questions, answers, reports and notices begin nothing.
pub fn begins_work(envelope: &Envelope) -> bool {
    let kind = envelope.kind.as_str();
    MessagePurpose::of(kind) == MessagePurpose::Work
        && (kind != MESSAGE_TYPE || envelope.task_id.is_some())
}
