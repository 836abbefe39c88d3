//! Tasks that were settled although their plan was not approved: by `mv`, or by a client that reads no gates.
//!
//! What is done cannot be refused any more. So the agent that reviews or demands the plan gets a notice, and the
//! event log has it. The notice follows from the message alone: every process that finds the message stores the same one.

use serde_json::{Map, json};

use super::gate::gated_task;
use super::{ACTOR, ESCALATED_TO, GateState, PlanGate, Requests, messages};
use crate::env::PublishOutcome;
use crate::event_log::types;
use crate::message::{Envelope, MessageId, Name, Timestamp, yaml};
use crate::{Error, Result};

/// The end of the id of a notice; the id of the settled message comes before it.
const UNPLANNED_END: &str = "unplanned";
const UNPLANNED_TYPE: &str = "request.unplanned";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplannedTask {
    pub task_id: String,
    pub settled_by: Name,
    pub notified: Name,
    pub at: Timestamp,
}

impl UnplannedTask {
    /// Parses this message, if it is such a notice.
    pub fn of(notice: &Envelope) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct NoticeBody {
            task_id: String,
            settled_by: Name,
        }
        let body = yaml::parse::<NoticeBody>(&notice.body, "a notice".as_ref()).ok()?;
        let (notified, at) = (notice.to.clone(), notice.created_at);
        Some(Self { task_id: body.task_id, settled_by: body.settled_by, notified, at })
    }
}

impl Requests<'_> {
    /// The agent that demands a plan of `agent`, or has reviewed the last one; `None` if there is no other.
    pub fn reviewer(&self, task: Option<&str>, agent: &Name) -> Result<Option<Name>> {
        let gate = task.map(|task| self.gate(task, agent)).transpose()?.flatten();
        Ok(gate.and_then(|gate| gate.waits_for).filter(|reviewer| reviewer != agent))
    }

    /// Tells the reviewer of a message that `agent` has settled at this time, while its task's gate was closed.
    /// Returns that gate; `None` if it was open, or if there is none.
    ///
    /// # Errors
    /// The gate cannot be read, or the notice not be stored. It may be tried again.
    pub fn report_unplanned(
        &self,
        settled: &Envelope,
        agent: &Name,
        at: Timestamp,
    ) -> Result<Option<PlanGate>> {
        let Some(task) = gated_task(settled) else { return Ok(None) };
        let was_closed =
            |gate: &PlanGate| gate.is_closed() && gate.since.is_none_or(|since| since <= at);
        let Some(gate) = self.gate(task, agent)?.filter(was_closed) else { return Ok(None) };
        // A plan of another agent that shares the mailbox may be the one that was carried out.
        let is_approved = |other: &PlanGate| {
            other.task_id == task && other.demanded && other.state == GateState::Open
        };
        if self.gates()?.iter().any(is_approved) {
            return Ok(None);
        }
        let reviewer = gate.waits_for.clone();
        for to in reviewer.into_iter().chain([Name::new(ESCALATED_TO)?]) {
            let to = self.store.broker().mailbox_of(&to);
            match self.store.broker().publish(&unplanned_notice(settled, task, agent, to.clone())?) {
                Err(Error::NoMailbox { .. }) => continue,
                Ok(PublishOutcome::Stored) => self.store.recorder().record(
                    types::PLAN_PASSED,
                    ACTOR,
                    json!({ "task_id": task, "id": settled.id, "agent": agent, "state": gate.state, "told": to }),
                ),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            break;
        }
        Ok(Some(gate))
    }
}

fn unplanned_notice(settled: &Envelope, task: &str, agent: &Name, to: Name) -> Result<Envelope> {
    let id = messages::id_with_end(settled.id.as_str(), UNPLANNED_END);
    let mut fields = Map::new();
    fields.insert("task_id".to_owned(), task.into());
    fields.insert("message_id".to_owned(), settled.id.as_str().into());
    fields.insert("settled_by".to_owned(), agent.as_str().into());
    let advice = "The task was settled without an approved plan. Look at what was done, and assign it again if need be.";
    let mut notice = Envelope::new(to, messages::body(Some(advice.to_owned()), fields))
        .with_id(id)
        .with_kind(Name::new(UNPLANNED_TYPE)?)
        .from(Name::new(ACTOR)?)
        .with_causation(settled.id.as_str());
    notice.task_id = Some(task.to_owned());
    Ok(notice)
}

pub fn is_unplanned_notice(id: &MessageId) -> bool {
    id.as_str().rsplit_once('.').is_some_and(|(_, end)| end == UNPLANNED_END)
}
