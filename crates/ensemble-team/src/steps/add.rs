//! Storing a plan: all steps of a subtask at once.

use super::StepError;
use super::db::{DbResult, values};
use serde_json::json;

use super::plan::{PauseScope, PlannedStep, Policy, StepPlan};
use super::{Access, FilePath, StepStore, WriteTransaction};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result};

/// Distance between the positions of neighbouring steps.
pub(super) const POSITION_STEP: i64 = 1024;
/// Step index for resources of the whole task.
pub(super) const WHOLE_TASK: i64 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    Stored,
    AlreadyStored,
}

impl StepStore {
    /// Stores all steps of a plan, or none. Storing the same plan again changes nothing.
    pub fn add(&self, plan: &StepPlan) -> Result<AddOutcome> {
        let wrong = |(field, detail)| Error::malformed("the plan", field, detail);
        plan.check().map_err(wrong)?;
        let added = self.write("store the plan in", |tx| {
            tx.lock_table("task_queues")?;
            let stored: Option<String> = tx.first(
                "SELECT plan_sha256 FROM task_queues WHERE task_id = ?1",
                values![plan.task_id],
            )?;
            match stored {
                Some(digest) if digest == plan.digest().to_string() => {
                    return Ok(AddOutcome::AlreadyStored);
                }
                Some(_) => {
                    return Err(StepError::OtherPlan { task_id: plan.task_id.clone() }.into());
                }
                None => insert_queue(tx, plan)?,
            }
            for (number, step) in plan.steps.iter().enumerate() {
                let index = u32::try_from(number + 1).unwrap_or(u32::MAX);
                let place = StepPlace {
                    task_id: &plan.task_id,
                    index,
                    position: i64::from(index) * POSITION_STEP,
                    parent: None,
                    fixes: None,
                };
                insert_step(tx, &place, step)?;
            }
            Ok(AddOutcome::Stored)
        })?;
        if added == AddOutcome::Stored {
            let actor = plan.orchestrator.as_ref().map_or("ensemble", |name| name.as_str());
            let data = json!({ "task_id": plan.task_id, "steps": plan.steps.len() });
            self.options.recorder.record(types::STEP_ADDED, actor, data);
        }
        Ok(added)
    }
}

fn insert_queue(tx: &WriteTransaction<'_, '_>, plan: &StepPlan) -> DbResult<()> {
    tx.execute(
        "INSERT INTO task_queues (task_id, number, title, orchestrator, parallel, pauses, policy, \
           attempts_max, lease_seconds, constraints, template, plan_sha256, created_at) \
         VALUES (?1, (SELECT coalesce(max(number), 0) + 1 FROM task_queues), ?2, ?3, ?4, ?5, ?6, \
           ?7, ?8, ?9, ?10, ?11, ?12)",
        values![
            plan.task_id,
            plan.title,
            plan.orchestrator,
            plan.parallel,
            match plan.blocked_pauses {
                PauseScope::Queue => "queue",
                PauseScope::Step => "step",
            },
            match plan.policy {
                Policy::None => "none",
                Policy::Tdd => "tdd",
            },
            plan.attempts_max,
            plan.lease_seconds,
            plan.constraints,
            plan.template,
            plan.digest().to_string(),
            tx.now,
        ],
    )?;
    let resources = plan.resources.iter().map(|resource| (&resource.path, resource.access));
    insert_resources(tx, &plan.task_id, WHOLE_TASK, resources)
}

pub(super) struct StepPlace<'a> {
    pub(super) task_id: &'a str,
    pub(super) index: u32,
    pub(super) position: i64,
    pub(super) parent: Option<u32>,
    /// The failed step that this one fixes, and the epoch in which it failed.
    pub(super) fixes: Option<(u32, u64)>,
}

pub(super) fn insert_step(
    tx: &WriteTransaction<'_, '_>,
    place: &StepPlace<'_>,
    step: &PlannedStep,
) -> DbResult<()> {
    tx.execute("INSERT INTO task_steps (task_id, step_index, position, agent, fix_by, goal, instructions, \
           constraints, phase, cycle, parent_index, fixes, fixes_epoch, fix_files, needs_plan, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?16)", values![
        place.task_id,
        place.index,
        place.position,
        step.agent,
        step.fix_by,
        step.goal,
        step.instructions,
        step.constraints,
        step.phase,
        step.cycle,
        place.parent,
        place.fixes.map(|(index, _)| index),
        place.fixes.map(|(_, epoch)| epoch),
        step.fix_files,
        step.plan,
        tx.now,
    ])?;
    let files = step.files.iter().map(|path| (path, Access::Write));
    let context = step.context.iter().map(|path| (path, Access::Read));
    insert_resources(tx, place.task_id, i64::from(place.index), files.chain(context))
}

fn insert_resources<'a>(
    tx: &WriteTransaction<'_, '_>,
    task_id: &str,
    index: i64,
    resources: impl Iterator<Item = (&'a FilePath, Access)>,
) -> DbResult<()> {
    for (number, (path, access)) in resources.enumerate() {
        let access = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        tx.execute(
            "INSERT INTO task_resources (task_id, step_index, number, path, access) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
            values![task_id, index, number, path.as_str(), access],
        )?;
    }
    Ok(())
}
