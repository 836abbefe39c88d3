//! `plan_approval` in its two modes, `shutdown_request` and `shutdown_response` (seed 004).

use std::time::Duration;

use ensemble_app::asking::{PlanSubmission, submit_plan};
use ensemble_app::departing::{DepartureAsk, SHUTDOWN_REASON};
use ensemble_app::ids;
use ensemble_core::message::Name;
use ensemble_core::proto::request::{PLAN_APPROVAL, SHUTDOWN};
use ensemble_core::requests::RequestEntry;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{ToolAnswer, ToolError};
use crate::flags::OnSilence;
use crate::mcp::ToolContext;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanApproval {
    /// To submit: the plan.
    plan: Option<String>,
    /// To submit: its reviewer (default: who demands it, or the lead).
    to: Option<Name>,
    /// To submit: its task.
    task_id: Option<String>,
    /// To review: the plan's request.
    request_id: Option<String>,
    /// To review: true or false.
    approve: Option<bool>,
    /// To review: what its author has to change.
    feedback: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShutdownRequest {
    /// The agent that is to shut down.
    agent: Name,
    /// Why.
    reason: Option<String>,
    /// How long it has to answer (default, and least: as configured, 120).
    #[schemars(range(max = 1_296_000))]
    deadline_seconds: Option<u64>,
    /// What happens without an answer (default: force).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnSilence")]
    on_silence: Option<OnSilence>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShutdownResponse {
    /// The `correlation_id` of its message.
    request_id: String,
    /// Whether you shut down.
    approve: bool,
    /// Why not.
    reason: Option<String>,
}

pub(super) fn plan_approval(desk: &ToolContext, plan: PlanApproval) -> ToolAnswer {
    match (plan.request_id, plan.plan) {
        (Some(id), None) => {
            let Some(approve) = plan.approve else {
                return Err(ToolError::new("approve: is missing: pass true or false"));
            };
            let feedback = plan.feedback.unwrap_or_default();
            respond(desk, &id, PLAN_APPROVAL, approve, &feedback)
        }
        (None, Some(text)) if !text.trim().is_empty() => {
            if plan.approve.is_some() {
                let text = "approve: needs a request_id: an agent cannot approve its own plan";
                return Err(ToolError::new(text));
            }
            let plan = PlanSubmission {
                from: desk.agent.clone(),
                to: plan.to,
                task: plan.task_id,
                id: None,
                source: None,
                content: text.into_bytes(),
            };
            let entry = submit_plan(&desk.app(), desk.queue()?, plan)?;
            let id = &entry.request.request_id;
            let mut object = entry.to_json();
            object["message"] = json!(format!(
                "Plan submitted (request_id={id}). Wait for the answer in your mail before you begin."
            ));
            Ok(object)
        }
        (Some(_), Some(_)) => Err(ToolError::new(
            "pass either `plan`, to submit one, or `request_id` with `approve`, to review one",
        )),
        (None, _) => Err(ToolError::new(
            "pass `plan`, to submit one, or `request_id` with `approve`, to review one",
        )),
    }
}

pub(super) fn shutdown_request(desk: &ToolContext, request: ShutdownRequest) -> ToolAnswer {
    // Opening it asks the context, which is one caller's at a time.
    let queue = desk.queue()?;
    let app = desk.app();
    let usual = usual_deadline(desk, &request.agent)?;
    if let Some(seconds) = request.deadline_seconds.filter(|seconds| *seconds < usual) {
        return Err(ToolError::new(format!(
            "deadline_seconds: {seconds} is less than {usual}: only a person may give an agent less time to answer"
        )));
    }
    let farewell = DepartureAsk {
        app: &app,
        from: desk.agent.clone(),
        reason: request.reason.unwrap_or_else(|| SHUTDOWN_REASON.to_owned()),
        deadline: request.deadline_seconds.map(Duration::from_secs),
        on_silence: request.on_silence.map(Into::into),
        unread: None,
        ends_unrecorded: false,
        id: None,
    };
    let entry = farewell.ask(queue, &request.agent)?;
    let mut object = entry.to_json();
    let (id, state) = (&entry.request.request_id, entry.state());
    object["message"] = json!(format!(
        "Shutdown request {id} sent (status: {state}). The answer comes into your mailbox."
    ));
    Ok(object)
}

/// How long an agent has to answer by the configuration, in seconds. The tools run without a person being asked, and
/// silence ends the agent.
fn usual_deadline(desk: &ToolContext, agent: &Name) -> Result<u64, ToolError> {
    let own = desk.project.config.agents.get(agent);
    let own = own.and_then(|agent| agent.shutdown.deadline);
    let kinds = desk.project.kinds()?;
    let of_kind = kinds.find(SHUTDOWN).map(|kind| kind.deadline.as_secs());
    Ok(own.map(|own| Duration::from(own).as_secs()).or(of_kind).unwrap_or_default())
}

pub(super) fn shutdown_response(desk: &ToolContext, response: ShutdownResponse) -> ToolAnswer {
    let reason = response.reason.unwrap_or_default();
    respond(desk, &response.request_id, SHUTDOWN, response.approve, &reason)
}

fn respond(desk: &ToolContext, id: &str, kind: &str, approve: bool, comment: &str) -> ToolAnswer {
    let requests = desk.requests()?;
    let id = &*ids::request(&requests, id)?;
    if let Some(entry) = requests.find(id)?
        && entry.request.kind.as_str() != kind
    {
        let actual = &entry.request.kind;
        return Err(ToolError::new(format!("request {id} is a {actual}, not a {kind}")));
    }
    let entry = requests.respond(id, &desk.agent, approve, comment)?;
    let mut object = entry.to_json();
    object["message"] = json!(sentence(&entry));
    Ok(object)
}

/// As the seed says it.
fn sentence(entry: &RequestEntry) -> String {
    let (state, from) = (entry.state(), &entry.request.from);
    match entry.request.kind.as_str() {
        SHUTDOWN => format!("Shutdown {state}"),
        _ => format!("Plan {state} for '{from}'"),
    }
}
