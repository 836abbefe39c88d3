//! `assign`: readiness and delivery; the watcher has the ladder.

use ensemble_app::content::fill;
use ensemble_app::worker::{
    TargetAgent, agent_pane, assigner, explain_not_ready, not_ready_json, resting,
};
use ensemble_core::driver::{DeliveryOrder, HandedOver};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_team::admission::TaskAct;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{ToolAnswer, ToolError};
use crate::mcp::ToolContext;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignParams {
    /// The worker.
    worker: Name,
    /// What is to be done.
    instruction: String,
    /// The task's name (default: a new one).
    task_id: Option<String>,
    /// Whether you have to approve its plan before it can finish.
    #[serde(default)]
    needs_plan: bool,
}

pub(super) fn assign(desk: &ToolContext, assign: AssignParams) -> ToolAnswer {
    let app = desk.app().settled()?;
    let mut worker = TargetAgent::find(&app, &assign.worker)?;
    let task = assign.task_id.unwrap_or_else(|| MessageId::generate().to_string());
    desk.project.doorkeeper().check(TaskAct::TakeUp, &task, &assign.worker)?;
    if assign.needs_plan {
        desk.requests()?.demand_plan(&task, &desk.agent)?;
    }
    let envelope = Envelope::new(worker.mailbox.clone(), String::new());
    let envelope = app.sign(envelope.with_kind(Name::new("task")?))?;
    let (queue, content) = (desk.queue()?, assign.instruction.into_bytes());
    let envelope = fill(&app, &**queue, envelope, content)?;
    let host = queue.ladder_host(&desk.project)?;
    let waiter = worker.waiter(&app)?;
    let (store, recorder) = (queue.request_store(), &*desk.recorder);
    let mut assigner = assigner(&app, &desk.spool, store, recorder)?;
    let elsewhere = worker.elsewhere(queue, desk.agent.clone(), &assigner.readiness);
    assigner.elsewhere = elsewhere.as_ref().map(|ask| ask as _);
    let order = DeliveryOrder::new(task.clone(), assign.worker.clone(), envelope);
    let mailbox = worker.mailbox.clone();
    let mut pane = worker.openable_pane(&app)?;
    let rest = &mut resting(&waiter);
    let handed = assigner.hand_over(order, agent_pane(&mut pane), &host, rest)?;
    match handed {
        HandedOver::NotReady(failure) => {
            let (text, hint) = explain_not_ready(&app, &failure)?;
            let text = format!("{text} ({hint})\n{failure}");
            Err(ToolError { text, details: Some(not_ready_json(&failure)) })
        }
        HandedOver::Stored { ready_attempt, message, attempt } => Ok(json!({
            "id": message, "mailbox": mailbox, "state": "stored", "task_id": task,
            "worker": assign.worker, "attempt": attempt, "ready_attempt": ready_attempt,
            "watched": ensemble_project::overview::WatcherView::of(&desk.project).runs(),
        })),
    }
}
