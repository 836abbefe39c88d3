use std::time::Duration;

use ensemble_app::acting::board_tasks;
use ensemble_app::board_agents::{LifeSign, give_sign};
use ensemble_app::content::fill;
use ensemble_app::drop;
use ensemble_app::drop::LintChecks;
use ensemble_app::failure::Failure;
use ensemble_app::mail::settling::{ReportContext, find_meant_task, refuse_stopped};
use ensemble_app::worker::{
    TargetAgent, agent_pane, assigner, explain_not_ready, not_ready_json, resting,
};
use ensemble_core::driver::{DeliveryOrder, HandedOver, PongBox};
use ensemble_core::env::{Clock as _, Lease, SystemClock};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::proto::ready;
use ensemble_project::rows::rows;
use ensemble_project::workload::{TaskBooks, Workload};
use ensemble_reports::contract::{self, Status};
use ensemble_team::admission::TaskAct;
use ensemble_team::driver::file_stem;
use ensemble_team::holdings::tasks;
use ensemble_team::roster::IdentityProof;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolAnswer, ToolError};
use crate::mcp::ToolContext;

const HELD_MAX: usize = 100;

/// A tool without arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatParams {
    /// How much of your context is used, in percent.
    #[schemars(range(max = 100))]
    context_used: Option<u8>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PongParams {
    /// From the ping.
    #[schemars(range(min = 1, max = 99))]
    attempt: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportParams {
    /// The task.
    task_id: String,
    /// The result of the work.
    status: Status,
    /// What was done: how many, what share, `path:line`.
    summary: String,
    /// Why it was not done; needed unless the status is `success`.
    reason: Option<String>,
    /// Files that were changed.
    #[serde(default)]
    files_modified: Vec<String>,
    /// Files that were made.
    #[serde(default)]
    files_created: Vec<String>,
}

pub(super) fn pong(desk: &ToolContext, pong: PongParams) -> ToolAnswer {
    let pongs = PongBox::open(desk.project.ready())?;
    let answer = ready::PongToken { worker: desk.agent.clone(), attempt: pong.attempt };
    let asked = pongs.asked(&answer.worker)?.map(|ping| ping.attempt);
    pongs.answer(&answer)?;
    Ok(json!({
        "worker": answer.worker, "attempt": answer.attempt, "asked": asked,
        "is_waited_for": asked == Some(answer.attempt),
    }))
}

pub(super) fn heartbeat(desk: &ToolContext, heartbeat: HeartbeatParams) -> ToolAnswer {
    let (mut steps, mut messages, mut failed) = (Vec::new(), Vec::new(), None);
    for step in desk.store.held_by(&desk.agent)? {
        match desk.store.beat(&step.key, &desk.agent, desk.known(&step.key)) {
            Ok(()) => steps.push(json!(step.key)),
            // First, all others are renewed.
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    // First what is here: servers may be away.
    let board = sign_of_life(desk, heartbeat.context_used);
    let lease = Duration::from_secs(desk.queue()?.settings(&desk.mailbox)?.lease_seconds);
    for held in held(desk)? {
        match desk.queue()?.extend(&held, lease) {
            Ok(()) => messages.push(json!(held.id)),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    failed.map_or(Ok(()), Err)?;
    Ok(json!({
        "steps": steps, "messages": messages, "lease_seconds": lease.as_secs(), "board": board?,
    }))
}

/// Seconds for which the agent's blackboard lease continues; null if the agent is not on the
/// blackboard.
fn sign_of_life(desk: &ToolContext, context_used: Option<u8>) -> ToolAnswer {
    let app = desk.app();
    // Without a board there is nothing to keep.
    let Ok(board) = app.board() else { return Ok(Value::Null) };
    if !board.read()?.agents.contains_key(&desk.agent) {
        return Ok(Value::Null);
    }
    let says = LifeSign { context_percent: context_used.map(u64::from), ..LifeSign::default() };
    Ok(json!(give_sign(&app, says)?.1.lease_seconds))
}

fn held(desk: &ToolContext) -> Result<Vec<Lease>, ToolError> {
    let found = desk.queue()?.unfinished(&desk.mailbox, HELD_MAX)?;
    let leases = found.iter().filter_map(|found| found.lease().ok());
    Ok(leases.filter(|lease| lease.holder == desk.agent).collect())
}

pub(super) fn whoami(desk: &ToolContext, _: NoParams) -> ToolAnswer {
    let member = desk.project.roster().get(&desk.agent)?;
    let member = member.filter(|_| desk.proof != IdentityProof::Claimed);
    let steps = desk.store.held_by(&desk.agent)?;
    let messages: Vec<Value> = held(desk)?.into_iter().map(|lease| json!(lease.id)).collect();
    let books = TaskBooks::open(&desk.project);
    let held_by = |agent: &Name| *agent == desk.agent;
    let mut known = books.holds(&**desk.queue()?, held_by)?;
    let holds = known.by_agent.remove(&desk.agent).unwrap_or_default();
    Ok(json!({
        "agent": desk.agent, "known_by": desk.proof, "mailbox": desk.mailbox,
        "role": member.as_ref().map(|member| &member.role),
        "generation": member.as_ref().map(|member| member.generation),
        "steps": steps.iter().map(|step| &step.key).collect::<Vec<_>>(),
        "messages": messages,
        "tasks": board_tasks(&holds),
        "holds": holds,
    }))
}

pub(super) fn list_agents(desk: &ToolContext, _: NoParams) -> ToolAnswer {
    let (members, errors) = desk.project.roster().entries()?;
    let queue = desk.queue()?;
    queue.overlook()?;
    let books = TaskBooks::open(&desk.project);
    let (elsewhere, hosts) = match queue.directory() {
        Some(_) => (Vec::new(), Vec::new()),
        None => (queue.mailboxes()?, ensemble_project::hosts::others(&desk.project.state)),
    };
    let rows = rows(members, &books, &elsewhere, &hosts);
    let is_one = |name: &Name| rows.iter().any(|row| row.member.name == *name);
    let duties = Workload::of(&**queue, queue.request_store(), &books, is_one)?;
    let mut agents = Vec::new();
    for row in &rows {
        let member = &row.member;
        let (waits_for, holds) = (duties.waits_for.get(&member.name), duties.held_by(&member.name));
        let presence = row.presence_or_why(&desk.project, waits_for, &holds);
        agents.push(json!({
            "agent": member.name, "role": member.role, "provider": member.provider,
            "mailbox": member.mailbox, "state": presence.state, "why": presence.why,
            "tasks": tasks(&holds), "came": row.came, "host": row.host(), "way_in": row.way_in(&desk.project),
        }));
    }
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Ok(json!({
        "agents": agents, "unreadable": errors,
        "mailboxes": queue.mailboxes()?, "named_in_plans": desk.store.agents()?,
    }))
}

pub(super) fn report(desk: &ToolContext, report: ReportParams) -> ToolAnswer {
    let app = desk.app();
    let task = find_meant_task(&app, &report.task_id, &desk.agent);
    if report.status == Status::Success {
        desk.project.doorkeeper().check(TaskAct::HandIn, &task, &desk.agent)?;
    }
    refuse_stopped(&app, &task)?;
    let reporting = ReportContext::open(&app, &task, &desk.agent)?;
    let mut document = contract::TaskReport::new(task.clone(), report.status);
    document.set_attempt(reporting.attempt());
    document.worker_id = Some(desk.agent.to_string());
    document.summary = Some(report.summary);
    document.failure_reason = report.reason;
    document.files_modified = report.files_modified;
    document.files_created = report.files_created;
    document.completed_at = Some(SystemClock.wall().to_string());
    let file = format!("{}-completed.yaml", file_stem(&document.task_id));
    let text =
        drop::lint(&desk.project, &document, &file, &LintChecks::STRICT).map_err(as_trouble)?;
    let file = drop::land(&desk.project, &file, &text).map_err(as_trouble)?;
    let ends = desk.project.task_ends();
    ends.reported(&desk.spool, &document, text.as_bytes(), &*desk.recorder)?;
    let settled = reporting.settle(document.attempt())?;
    Ok(json!({ "file": file, "task_id": document.task_id, "settled": settled }))
}

fn as_trouble(failure: Failure) -> ToolError {
    ToolError::new(failure.text())
}

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

/// Readiness and delivery; the watcher has the ladder.
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
