//! Plans: a coder's task may demand one, and a planner may have to review one.
//!
//! ```text
//! the plan of the claimed task      the supervisor
//! none is demanded, or approved     starts the agent, which is told the plan
//! demanded, none submitted          starts the agent, which is told to plan and nothing else
//! pending                           keeps the claim and waits, without an agent
//! rejected, not reviewed in time    starts an agent, which plans again
//! that, for the third time          blocks the task, with the feedback
//! ```
//!
//! An agent that has submitted a plan and exits with 0 has made progress, which is not an anomaly. One that waits for
//! the answer instead of exiting is seen to be alive. *A crash* loses nothing: the gate and the request are files,
//! and the next supervisor of that name finds both.

use super::heartbeat::BoardHeartbeat;
use super::run::SupervisorRun;
use super::work::{HeldClaim, SupervisedWork};
use crate::board::prompt::{PlanStanding, SubmittedPlan};
use crate::board::{PlannerCall, PlannerWake};
use crate::proto::supervise::{ControlGate, Event, SupervisorLoss};
use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::proto::request::PLAN_APPROVAL;
use ensemble_core::requests::{AskedRequest, GateState, PlanGate, RequestStore, Requests};

/// After this many plans without an approval the task is blocked.
pub const PLANS_MAX: u32 = 3;

/// How far an agent's plan of a task has come; `None` where no plan is demanded, and none was submitted.
pub fn plan_standing(
    store: &dyn RequestStore,
    task: &Name,
    agent: &Name,
) -> Result<Option<PlanStanding>> {
    let Some(gate) = store.gate(task.as_str(), agent)? else { return Ok(None) };
    let by = gate.waits_for.clone();
    let demanded = by.map(|by| PlanStanding::Demanded { by });
    if gate.state == GateState::Needed {
        return Ok(demanded);
    }
    let Some(entry) = Requests::new(store).find(gate.request_id.as_str())? else {
        return Ok(demanded.filter(|_| gate.demanded));
    };
    let AskedRequest { request_id, to, content, .. } = entry.request;
    let mut plan = SubmittedPlan::new(request_id, to, content);
    plan.comment = entry.decision.map(|decision| decision.comment).unwrap_or_default();
    Ok(Some(match gate.state {
        GateState::Pending | GateState::Unreadable | GateState::Needed => {
            PlanStanding::Pending(plan)
        }
        GateState::Rejected => PlanStanding::Rejected(plan),
        GateState::Expired => PlanStanding::Expired(plan),
        GateState::Open => PlanStanding::Approved(plan),
    }))
}

impl SupervisorRun<'_> {
    /// The claimed task, and the store that has its plans.
    fn planned_task(&self) -> Option<(&dyn RequestStore, &HeldClaim)> {
        match (&self.order.office, &self.work) {
            (Some(office), Some(SupervisedWork::Task(claim))) => Some((&*office.store, claim)),
            _ => None,
        }
    }

    fn plan_gate(&self) -> Result<Option<PlanGate>> {
        let Some((store, claim)) = self.planned_task() else { return Ok(None) };
        store.gate(claim.id.as_str(), &self.order.id)
    }

    pub(super) fn plan_of_prompt(&self) -> Result<Option<PlanStanding>> {
        let Some((store, claim)) = self.planned_task() else { return Ok(None) };
        plan_standing(store, &claim.id, &self.order.id)
    }

    /// Whether an agent runs, and its next beat is due. An agent that waits for the review of its
    /// plan pauses, and lives.
    pub(super) fn beat_is_due(&self, now: Monotonic) -> bool {
        let due = self.heartbeat.as_ref().and_then(BoardHeartbeat::next_timeout);
        self.agent.is_some() && due.is_some_and(|due| now >= due)
    }

    /// Whether the review of the claimed task's plan is waited for. A gate that cannot be read counts as waiting.
    pub(super) fn waits_for_review(&self) -> bool {
        let waits =
            |gate: PlanGate| matches!(gate.state, GateState::Pending | GateState::Unreadable);
        self.plan_gate().map_or(true, |gate| gate.is_some_and(waits))
    }

    pub(super) fn last_plan(&self) -> Option<Name> {
        let gate = self.plan_gate().ok().flatten()?;
        (gate.round > 0).then_some(gate.request_id)
    }

    pub(super) fn has_planned(&self) -> bool {
        let last = self.last_plan();
        last.is_some() && last != self.desk.plan_before
    }

    /// The event that keeps the supervisor from starting an agent for the claimed task.
    pub(super) fn check_plan(&mut self) -> Result<Option<Event>> {
        let Some(gate) = self.plan_gate()? else { return Ok(None) };
        match gate.state {
            GateState::Pending | GateState::Unreadable => {
                if self.desk.plan_told.as_ref() != Some(&gate.request_id) {
                    let whom = gate.waits_for.as_ref().map_or("its reviewer", Name::as_str);
                    self.queue_line(format!(
                        "plan {} of `{}` waits for {whom}",
                        gate.request_id, gate.task_id
                    ));
                    self.desk.plan_told = Some(gate.request_id);
                }
                Ok(Some(Event::Gated(ControlGate::Closed)))
            }
            GateState::Rejected | GateState::Expired if gate.round >= PLANS_MAX => {
                self.give_up_planning(&gate)?;
                Ok(Some(Event::Fenced(SupervisorLoss::Work)))
            }
            GateState::Rejected | GateState::Expired | GateState::Needed | GateState::Open => {
                Ok(None)
            }
        }
    }

    fn give_up_planning(&mut self, gate: &PlanGate) -> Result<()> {
        let Some((store, HeldClaim { id, holder, .. })) = self.planned_task() else {
            return Ok(());
        };
        let entry = Requests::new(store).find(gate.request_id.as_str())?;
        let comment = entry.and_then(|it| it.decision).map(|it| it.comment).unwrap_or_default();
        let whom = gate.waits_for.as_ref().map_or("its reviewer", Name::as_str);
        let reason = format!(
            "{} plans of `{}` were not approved by {whom}; the last one is {}. {comment}",
            gate.round, self.order.id, gate.request_id
        );
        let reason = reason.trim_end().to_owned();
        let question = format!("How is `{id}` to be done, or how is it to be divided?");
        let mut locked = self.board.lock()?;
        locked.block(id, Some(holder), &reason, &[question])?;
        locked.commit()?;
        let id = id.clone();
        self.report_block(&id, &reason);
        self.work = None;
        Ok(())
    }

    pub(super) fn plans_to_review(&self) -> Option<PlannerCall> {
        let about = self.desk.plans.clone();
        (!about.is_empty()).then_some(PlannerCall { wake: PlannerWake::PlanSubmitted, about })
    }
}

pub(super) fn is_plan_for(asked: &AskedRequest, agent: &Name) -> bool {
    asked.to == *agent && asked.kind.as_str() == PLAN_APPROVAL
}
