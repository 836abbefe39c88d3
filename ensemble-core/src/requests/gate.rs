//! The plan gate: an agent that has submitted a plan for a task cannot take the task on before the plan is approved.
//!
//! ```text
//! gates/<task>@<agent>.yaml    names the request of the last plan
//! gates/<task>@.yaml           a plan is demanded of each agent that takes the task
//!
//! that request        the gate is
//! pending             closed      wait for whom it is addressed to
//! rejected, expired   closed      submit the next plan
//! approved, cancelled open        and its file goes away
//! not there           open        a crash before the request was made
//! not to be read      closed      submit it again
//! demanded, none yet  half open   the task may be received, to be planned; it cannot be settled
//! ```
//!
//! Where a plan is demanded, a cancelled plan and one that was never made count as none. The gate
//! of an approved plan stays, as the proof of it.
//!
//! It is written before the request, and removed after all recipients were notified. Reading a gate takes no lock and
//! needs no [`Requests`]. A queue that was given [`PlanGates`](super::PlanGates) asks for each message, if there are
//! gates at all. On servers a gate carries the request until that is written, and stays closed until then. A process
//! that reads such a gate first writes the request, so that of two simultaneous plans one is the first.

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::file::{DecisionState, StoredRequest};
use super::{AskedRequest, Requests};
use crate::error::AreaError;
use crate::event_log::types;
use crate::message::{Digest, Envelope, MessageId, MessagePurpose, Name, Timestamp};
use crate::proto::request::{Decision, Outcome};
use crate::{Error, Result};

/// The directory below the queue; there is none while there is no gate.
pub(crate) const GATES: &str = "gates";
pub(super) const FILE_BYTES_MAX: usize = 4 * 1024;
pub(super) const EXTENSION: &str = ".yaml";
/// The suffix of a demand's file name, which has no agent after the `@`.
pub(super) const DEMAND_END: &str = "@.yaml";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Closed: the plan waits for its review.
    Pending,
    /// Closed: the plan was rejected.
    Rejected,
    /// Closed: it was not reviewed in time.
    Expired,
    /// Closed: what is on disk cannot be read.
    Unreadable,
    /// Half open: a plan is demanded, and none was submitted. The task may be taken, not finished.
    Needed,
    /// Open: the plan was approved or withdrawn.
    Open,
}

/// What an agent's work on a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanGate {
    pub task_id: String,
    pub agent: Name,
    pub request_id: Name,
    /// Revision number of the plan, starting at 1.
    pub round: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Name>,
    pub state: GateState,
    pub waits_for: Option<Name>,
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub demanded: bool,
    /// Which version it is, where there are versions.
    #[serde(skip)]
    pub revision: u64,
    /// The question, where it was not written yet.
    #[serde(skip)]
    pub unasked: Option<Box<AskedRequest>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {} is gated for {}: {}", .0.task_id, .0.agent, .0.advice())]
pub struct GatedTask(pub Box<PlanGate>);

impl AreaError for GatedTask {}

/// A request cannot be settled as if it were work: it has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {request} has no answer yet: approve or reject it")]
pub struct UndecidedRequest {
    pub request: Name,
}

impl AreaError for UndecidedRequest {}

impl PlanGate {
    /// One whose file makes no sense.
    pub(crate) fn unreadable(task: &str, agent: &Name) -> Self {
        Self {
            task_id: task.to_owned(),
            agent: agent.clone(),
            request_id: agent.clone(),
            round: 0,
            previous: None,
            state: GateState::Unreadable,
            waits_for: None,
            since: None,
            demanded: false,
            revision: 0,
            unasked: None,
        }
    }

    /// One of an agent that has submitted no plan for a task that demands one.
    pub fn needed(demand: &Demand, agent: &Name) -> Self {
        Self {
            state: GateState::Needed,
            waits_for: Some(demand.by.clone()),
            since: Some(demand.at),
            demanded: true,
            ..Self::unreadable(&demand.task_id, agent)
        }
    }

    /// The gate that a file describes. A damaged file closes the gate.
    pub fn of(file: Option<GateFile>, task: &str, agent: &Name) -> Self {
        let Some(file) = file.filter(|file| file.task_id == task && file.agent == *agent) else {
            return Self::unreadable(task, agent);
        };
        Self {
            request_id: file.request_id,
            round: file.round,
            previous: file.previous,
            demanded: file.demanded,
            state: GateState::Open,
            unasked: file.question,
            ..Self::unreadable(task, agent)
        }
    }

    /// Derives the state from the gate's request, if that exists and can be read.
    pub fn judge(mut self, home: Result<Option<StoredRequest>>) -> Result<Self> {
        let home = match home {
            Err(Error::Malformed { .. } | Error::TooLarge { .. }) => {
                self.state = GateState::Unreadable;
                return Ok(self);
            }
            other => other?,
        };
        let Some(home) = home else {
            if let Some(asked) = &self.unasked {
                self.waits_for = Some(asked.to.clone());
                (self.state, self.since) = (GateState::Pending, Some(asked.created_at));
            } else if self.demanded {
                self.state = GateState::Needed;
            }
            return Ok(self);
        };
        self.unasked = None;
        self.waits_for = Some(home.asked.to.clone());
        (self.state, self.since) = match home.standing {
            // An invalid decision leaves the question open.
            DecisionState::Nothing | DecisionState::Invalid(..) => {
                (GateState::Pending, Some(home.asked.created_at))
            }
            DecisionState::Valid(Decision { outcome, at, .. }) => {
                let state = match outcome {
                    Outcome::Cancelled if self.demanded => GateState::Needed,
                    Outcome::Approved | Outcome::Cancelled => GateState::Open,
                    Outcome::Rejected => GateState::Rejected,
                    Outcome::Expired => GateState::Expired,
                };
                (state, Some(at))
            }
        };
        Ok(self)
    }

    /// Whether the agent may not finish the task: settle it, submit it, report its success.
    pub fn is_closed(&self) -> bool {
        self.state != GateState::Open
    }

    /// Whether the agent may not even take the task.
    pub fn keeps_back(&self) -> bool {
        !matches!(self.state, GateState::Needed | GateState::Open)
    }

    /// Whether its last plan was rejected, or not reviewed in time.
    pub fn is_refused(&self) -> bool {
        matches!(self.state, GateState::Rejected | GateState::Expired)
    }

    /// Whether the agent has to submit a plan to open it.
    pub fn needs_plan(&self) -> bool {
        !matches!(self.state, GateState::Pending | GateState::Open)
    }

    /// Describes in a phrase what it waits for and what to do.
    pub fn advice(&self) -> String {
        let Self { request_id, round, state, .. } = self;
        let reviewer = self.waits_for.as_ref().map_or("its reviewer", Name::as_str);
        let since = self.since.map_or_else(String::new, |at| format!(" since {at}"));
        match state {
            GateState::Pending => format!(
                "plan {request_id} (round {round}) waits for {reviewer}{since}. Wait for the \
                 plan_approval_response"
            ),
            GateState::Rejected => format!(
                "plan {request_id} (round {round}) was rejected by {reviewer}{since}. Submit another"
            ),
            GateState::Expired => format!(
                "no reviewer decided plan {request_id} (round {round}) in time. Submit it again"
            ),
            GateState::Unreadable => "its plan cannot be read. Submit it again".to_owned(),
            GateState::Needed => format!(
                "{reviewer} demands a plan first{since}. Submit one and wait for its approval"
            ),
            GateState::Open => format!("plan {request_id} is not in the way"),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct GateFile {
    version: u32,
    pub task_id: String,
    pub agent: Name,
    pub request_id: Name,
    round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Name>,
    /// A plan is demanded: an approval is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) demanded: bool,
    /// The whole question, on servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    question: Option<Box<AskedRequest>>,
}

impl GateFile {
    /// For the task that a request is about; `None` if it is about none.
    pub fn of(asked: &AskedRequest) -> Option<Self> {
        Some(Self {
            version: crate::message::FORMAT_VERSION,
            task_id: asked.task_id.clone()?,
            agent: asked.from.clone(),
            request_id: asked.request_id.clone(),
            round: asked.round.unwrap_or(1),
            previous: asked.previous.clone(),
            demanded: false,
            question: None,
        })
    }

    /// The same for a task that demands a plan.
    pub fn with_demand(self, demanded: bool) -> Self {
        Self { demanded, ..self }
    }

    pub fn with_question(self, asked: &AskedRequest) -> Self {
        Self { question: Some(Box::new(asked.clone())), ..self }
    }
}

/// A task in the name of a gate: tasks that are not names get a digest instead.
pub fn stem(task: &str) -> String {
    Name::new(task)
        .map_or_else(|_| format!("t-{}", Digest::of(task.as_bytes()).short(40)), String::from)
}

pub(super) fn demand_file(task: &str) -> String {
    format!("{}{DEMAND_END}", stem(task))
}

pub(super) fn file_name(task: &str, agent: &Name) -> String {
    format!("{}@{agent}{EXTENSION}", stem(task))
}

/// The request to which a message belongs, by the message's id: `<request>.request` or `<request>.remind-<n>`.
pub fn asked_request(message: &MessageId) -> Option<Name> {
    let (request, end) = message.as_str().rsplit_once('.')?;
    let is_asked = end == "request" || end.starts_with("remind-");
    Name::new(request).ok().filter(|_| is_asked)
}

/// The task of a message for which there may be a gate. Requests, reports and notices pass: reading
/// about a task does not require an approved plan for it.
pub fn gated_task(envelope: &Envelope) -> Option<&str> {
    let may_be_work = matches!(envelope.purpose(), MessagePurpose::Work | MessagePurpose::Other);
    envelope.task_id.as_deref().filter(|_| may_be_work)
}

impl Requests<'_> {
    /// The gate that this agent's work on this task waits for; `None` if nothing. A gate that exists may be open: see
    /// [`PlanGate::is_closed`].
    pub fn gate(&self, task: &str, agent: &Name) -> Result<Option<PlanGate>> {
        self.store.gate(task, agent)
    }

    /// Demands a plan of each agent that takes this task: it may receive the task, and can finish it only after
    /// its plan is approved. `false` if a plan was demanded before.
    pub fn demand_plan(&self, task: &str, by: &Name) -> Result<bool> {
        let demand = Demand::new(task, by.clone(), self.store.now());
        let is_new = self.store.demand_plan(&demand)?;
        if is_new {
            let data = serde_json::json!({ "task_id": task });
            self.store.recorder().record(types::PLAN_DEMANDED, by.as_str(), data);
        }
        Ok(is_new)
    }

    pub fn gates(&self) -> Result<Vec<PlanGate>> {
        let mut all = self.store.gates()?;
        all.sort_unstable_by(|a, b| (&a.task_id, &a.agent).cmp(&(&b.task_id, &b.agent)));
        Ok(all)
    }

    /// Takes the gate away that a decision has opened, if no later plan has closed it again.
    pub(super) fn open_gate(&self, asked: &AskedRequest, decision: &Decision) -> Result<()> {
        match decision.outcome {
            Outcome::Approved | Outcome::Cancelled if asked.task_id.is_some() => {
                self.store.open_gate(asked)
            }
            _ => Ok(()),
        }
    }
}
