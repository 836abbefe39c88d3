//! Taking the next step. One transaction picks it, gives it a lease and an epoch, and locks its
//! files.

use super::StepError;
use super::db::{DbResult, DbTransaction, values};
use std::time::Instant;

use serde::Serialize;
use serde_json::json;

use super::rows::StepKey;
use super::working::{CHARTER, PROMPT_MESSAGE, QueueRules, WORK, WorkingStep};
use super::{DbFailure, FilePath, PauseScope, Policy, StepStore, WriteTransaction, files};
use crate::admission::{TaskAct, is_refusal};
use crate::proto::step::{Effect, Event};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::requests::GatedTask;
use ensemble_core::{Error, Result};

/// How many open steps of a parallel queue are read at a time.
const PAGE: i64 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The worker, which gets only its own steps; `None` takes the next step for any agent.
    pub agent: Option<Name>,
    /// The task; `None` for any, in the order in which they were added.
    pub task_id: Option<String>,
}

impl ClaimRequest {
    /// Asks for a worker's next step, of any task.
    pub const fn of(agent: Name) -> Self {
        Self { agent: Some(agent), task_id: None }
    }

    /// Asks for the next step of a task, for any agent.
    pub fn for_task(task_id: impl Into<String>) -> Self {
        Self { agent: None, task_id: Some(task_id.into()) }
    }

    pub fn in_task(mut self, task_id: impl Into<String>) -> Self {
        self.task_id = Some(task_id.into());
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimedStep {
    #[serde(flatten)]
    pub key: StepKey,
    pub agent: Name,
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    pub attempts_max: u32,
    /// The fencing epoch, starting at 1.
    pub epoch: u64,
    /// How long its holder may give no sign of life, in seconds.
    pub lease_seconds: u64,
    pub again: bool,
    pub goal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixes: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_plan: bool,
    /// When its queue was stored. It distinguishes the queue from an earlier one with the same
    /// name.
    #[serde(skip)]
    pub(crate) queue_created_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    Handed(Box<ClaimedStep>),
    Nothing(NoStep),
}

/// Why no step is available. With several tasks it is the reason of the first task whose next step
/// is not simply assigned to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "nothing", rename_all = "snake_case")]
pub enum NoStep {
    #[error("no step is left to do")]
    Done,
    /// A person or the orchestrator must intervene first.
    #[error(
        "task {task_id} is paused: step {step_index} needs an intervention \
         (`step show {task_id} {step_index}`)"
    )]
    Paused { task_id: String, step_index: u32 },
    #[error("the next step of task {task_id} is assigned to {agent}")]
    Others { task_id: String, agent: Name },
    /// The next step may not be begun now: its plan is not approved, or the team pauses.
    #[error("the next step of task {task_id} may not be begun: {why}")]
    Refused {
        task_id: String,
        why: String,
        /// Whether the agent itself can resolve it, with a plan.
        needs_plan: bool,
    },
    /// Another worker holds a file of the next step.
    #[error("the next step of task {task_id} needs {path}, which {holder} holds")]
    FileHeld { task_id: String, path: String, holder: String },
    /// An earlier phase must be done first.
    #[error("step {step_index} of task {task_id} waits for the phase before it")]
    Order { task_id: String, step_index: u32 },
}

enum ClaimAttempt {
    /// It has seen all queues, or has taken a step.
    Decided(ClaimOutcome),
    /// Another transaction changes this queue. The others have nothing, for this reason.
    Busy { task_id: String, why: NoStep },
}

impl StepStore {
    /// Steps of a task that workers hold, each with the message of its prompt, if one was noted.
    pub fn handed(&self, task_id: &str) -> Result<Vec<(ClaimedStep, Option<String>)>> {
        let select = format!(
            "SELECT {WORK}, {CHARTER}, {PROMPT_MESSAGE} \
             FROM task_steps s JOIN task_queues q USING (task_id) \
             WHERE s.task_id = ?1 AND s.life = 'held' ORDER BY s.position"
        );
        let found: Vec<(WorkingStep, QueueRules, Option<String>)> =
            self.read(|tx| tx.all(&select, values![task_id]))?;
        let held = found.into_iter().filter_map(|(step, queue, message)| {
            let holder = step.holder.clone()?;
            let run = (step.attempt, step.epoch);
            Some((queue.handed(step, holder, run), message))
        });
        Ok(held.collect())
    }

    /// Hands out the next step, in one transaction. A worker that already holds a step of such a
    /// task gets the same one again, under the same epoch.
    pub fn claim_step(&self, ask: &ClaimRequest) -> Result<ClaimOutcome> {
        let patience = Instant::now() + self.options.patience;
        let mut first = None;
        let next = loop {
            match self.write("take a step from", |tx| self.take_in(tx, ask, first.as_deref()))? {
                ClaimAttempt::Decided(next) => break next,
                ClaimAttempt::Busy { why, .. } if Instant::now() >= patience => {
                    break ClaimOutcome::Nothing(why);
                }
                // Nothing else can be taken: wait for the transaction that changes this queue.
                ClaimAttempt::Busy { task_id, .. } => first = Some(task_id),
            }
        };
        if let ClaimOutcome::Handed(step) = &next
            && !step.again
            && self.options.recorder.is_recording()
        {
            let data = json!({
                "task_id": step.key.task_id, "step_index": step.key.step_index,
                "attempt": step.attempt, "epoch": step.epoch,
            });
            self.options.recorder.record(types::STEP_TAKEN, step.agent.as_str(), data);
        }
        Ok(next)
    }

    /// `first` is a queue to wait for before any other is locked.
    fn take_in(
        &self,
        tx: &WriteTransaction<'_, '_>,
        ask: &ClaimRequest,
        first: Option<&str>,
    ) -> Result<ClaimAttempt, DbFailure> {
        if let Some(agent) = &ask.agent {
            tx.lock_agent(agent.as_str())?;
            if let Some((step, queue)) = held_by(tx, agent, ask.task_id.as_deref())? {
                let run = (step.attempt, step.epoch);
                let handed = queue.handed(step, agent.clone(), run);
                let handed = Box::new(ClaimedStep { again: true, ..handed });
                return Ok(ClaimAttempt::Decided(ClaimOutcome::Handed(handed)));
            }
        }
        let first = ask.task_id.as_deref().or(first);
        first.map_or(Ok(()), |task_id| tx.lock_queue(task_id))?;
        let tasks = match &ask.task_id {
            Some(task) => vec![task.clone()],
            None => open_tasks(tx)?,
        };
        let (mut why, mut busy) = (None, None);
        for task in tasks {
            if first != Some(task.as_str()) && !tx.try_lock_queue(&task)? {
                busy = busy.or(Some(task));
                continue;
            }
            match self.take_of(tx, &task, ask.agent.as_ref())? {
                ClaimOutcome::Nothing(NoStep::Done) => {}
                // Prefer any other reason to "assigned to another agent".
                ClaimOutcome::Nothing(nothing) => match why {
                    None => why = Some(nothing),
                    Some(NoStep::Others { .. }) if !matches!(nothing, NoStep::Others { .. }) => {
                        why = Some(nothing);
                    }
                    Some(_) => {}
                },
                handed @ ClaimOutcome::Handed(_) => return Ok(ClaimAttempt::Decided(handed)),
            }
        }
        let why = why.unwrap_or(NoStep::Done);
        Ok(match busy {
            Some(task_id) => ClaimAttempt::Busy { task_id, why },
            None => ClaimAttempt::Decided(ClaimOutcome::Nothing(why)),
        })
    }

    fn take_of(
        &self,
        tx: &WriteTransaction<'_, '_>,
        task_id: &str,
        agent: Option<&Name>,
    ) -> Result<ClaimOutcome, DbFailure> {
        let QueueSituation { queue, held, stuck } = stand(tx, task_id)?;
        let paused = |step_index| NoStep::Paused { task_id: task_id.to_owned(), step_index };
        if let (Some(step_index), PauseScope::Queue) = (stuck, queue.pauses) {
            return Ok(ClaimOutcome::Nothing(paused(step_index)));
        }
        let others =
            |agent: &Name| NoStep::Others { task_id: task_id.to_owned(), agent: agent.clone() };
        if held.len() >= queue.parallel as usize {
            return Ok(ClaimOutcome::Nothing(held.first().map_or(NoStep::Done, others)));
        }
        // In a sequential queue no step overtakes another.
        let is_sequential = queue.parallel == 1 && queue.pauses == PauseScope::Queue;
        let page = if is_sequential { 1 } else { PAGE };
        let (mut why, mut after) = (NoStep::Done, i64::MIN);
        loop {
            let steps = open_steps(tx, task_id, after, page)?;
            let is_last = is_sequential || steps.len() < page as usize;
            for (step, position) in steps {
                after = position;
                match self.obstacle(tx, &queue, &step, agent)? {
                    Ok(names) => return self.hand(tx, queue, step, &names),
                    Err(obstacle) => why = if why == NoStep::Done { obstacle } else { why },
                }
            }
            if is_last {
                break;
            }
        }
        Ok(ClaimOutcome::Nothing(match (why, held.first(), stuck) {
            (NoStep::Done, Some(agent), _) => others(agent),
            (NoStep::Done, None, Some(step_index)) => paused(step_index),
            (why, _, _) => why,
        }))
    }

    /// Why the agent of a step may not begin it now. A step with a plan is demanded one, under its own name.
    fn refused(&self, queue: &QueueRules, step: &WorkingStep) -> Result<Option<NoStep>> {
        let Some(door) = &self.options.door else { return Ok(None) };
        let mut checked = door.check(TaskAct::TakeUp, &step.key.task_id, &step.agent);
        if checked.is_ok() && step.needs_plan {
            let plan = step.key.plan_name();
            let by = queue.orchestrator.as_ref().or(self.options.orchestrator.as_ref());
            let other = by.filter(|by| **by != step.agent).cloned();
            door.demand_plan(&plan, &other.unwrap_or_else(Name::operator))?;
            checked = door.check(TaskAct::TakeUp, &plan, &step.agent);
        }
        match checked {
            Ok(()) => Ok(None),
            Err(error) if is_refusal(&error) => Ok(Some(NoStep::Refused {
                task_id: step.key.task_id.clone(),
                needs_plan: error.area::<GatedTask>().is_some_and(|gated| gated.0.needs_plan()),
                why: error.to_string(),
            })),
            Err(error) => Err(error),
        }
    }

    fn obstacle(
        &self,
        tx: &DbTransaction<'_>,
        queue: &QueueRules,
        step: &WorkingStep,
        agent: Option<&Name>,
    ) -> Result<Result<Vec<String>, NoStep>, DbFailure> {
        let task_id = || step.key.task_id.clone();
        if agent.is_some_and(|agent| *agent != step.agent) {
            return Ok(Err(NoStep::Others { task_id: task_id(), agent: step.agent.clone() }));
        }
        if queue.policy == Policy::Tdd && waits_for_phase(tx, step)? {
            let step_index = step.key.step_index;
            return Ok(Err(NoStep::Order { task_id: task_id(), step_index }));
        }
        if let Some(refused) = self.refused(queue, step)? {
            return Ok(Err(refused));
        }
        let mut names = Vec::new();
        if !step.has_files {
            return Ok(Ok(names));
        }
        tx.lock_table("file_locks")?;
        for path in files::of_step(tx, &step.key)? {
            let path = FilePath::new(&path)
                .map_err(|why| Error::malformed(&self.path, "task_resources.path", why))?;
            names.push(path.lock_name(&self.options.root));
        }
        names.sort_unstable();
        names.dedup();
        match files::conflict(tx, &names)? {
            Some((path, holder)) => Ok(Err(NoStep::FileHeld { task_id: task_id(), path, holder })),
            None => Ok(Ok(names)),
        }
    }

    fn hand(
        &self,
        tx: &WriteTransaction<'_, '_>,
        queue: QueueRules,
        step: WorkingStep,
        names: &[String],
    ) -> Result<ClaimOutcome, DbFailure> {
        let agent = step.agent.clone();
        let mut changed =
            Self::apply_to(tx, queue, step, Event::Taken { by: agent.clone() }, None)?;
        let Some(Effect::Hand { attempt, epoch, .. }) = changed.effects.pop_front() else {
            return Ok(ClaimOutcome::Nothing(NoStep::Done));
        };
        let key = &changed.before.key;
        files::lock(tx, names, key, epoch, &agent)?;
        tx.execute(
            "INSERT INTO step_runs (task_id, step_index, epoch, attempt, agent, taken_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            values![key.task_id, key.step_index, epoch, attempt, agent, tx.now],
        )?;
        let handed = changed.queue.handed(changed.before, agent, (attempt, epoch));
        Ok(ClaimOutcome::Handed(Box::new(handed)))
    }
}

fn held_by(
    tx: &DbTransaction<'_>,
    agent: &Name,
    task_id: Option<&str>,
) -> DbResult<Option<(WorkingStep, QueueRules)>> {
    let select = format!(
        "SELECT {WORK}, {CHARTER} FROM task_steps s JOIN task_queues q USING (task_id) \
         WHERE s.holder = ?1 AND (?2 IS NULL OR s.task_id = ?2) LIMIT 1"
    );
    tx.first(&select, values![agent, task_id])
}

fn open_tasks(tx: &DbTransaction<'_>) -> DbResult<Vec<String>> {
    tx.all("SELECT task_id FROM task_queues q WHERE EXISTS (SELECT 1 FROM task_steps s \
           WHERE s.task_id = q.task_id AND s.life IN ('open', 'held', 'stuck', 'waits')) ORDER BY number", &[])
}

struct QueueSituation {
    queue: QueueRules,
    held: Vec<Name>,
    stuck: Option<u32>,
}

fn stand(tx: &DbTransaction<'_>, task_id: &str) -> Result<QueueSituation, DbFailure> {
    let select = format!(
        "SELECT {CHARTER}, s.step_index, s.holder FROM task_queues q LEFT JOIN task_steps s \
           ON s.task_id = q.task_id AND s.life IN ('held', 'stuck') \
         WHERE q.task_id = ?1 ORDER BY s.position"
    );
    let rows: Vec<(QueueRules, Option<u32>, Option<Name>)> = tx.all(&select, values![task_id])?;
    let (mut queue, mut held, mut stuck) = (None, Vec::new(), None);
    for (charter, step_index, holder) in rows {
        queue.get_or_insert(charter);
        match holder {
            Some(holder) => held.push(holder),
            None => stuck = stuck.or(step_index),
        }
    }
    let none = || StepError::NoTask { task_id: task_id.to_owned() };
    Ok(QueueSituation { queue: queue.ok_or_else(none)?, held, stuck })
}

fn open_steps(
    tx: &DbTransaction<'_>,
    task_id: &str,
    after: i64,
    limit: i64,
) -> DbResult<Vec<(WorkingStep, i64)>> {
    let select = format!(
        "SELECT {WORK}, s.position FROM task_steps s WHERE s.task_id = ?1 AND s.life = 'open' \
         AND s.position > ?2 ORDER BY s.position LIMIT ?3"
    );
    tx.all(&select, values![task_id, after, limit])
}

fn waits_for_phase(tx: &DbTransaction<'_>, step: &WorkingStep) -> DbResult<bool> {
    let Some(phase) = step.phase else { return Ok(false) };
    tx.only(
        "SELECT EXISTS (SELECT 1 FROM task_steps WHERE task_id = ?1 AND cycle = ?2 AND phase < ?3 \
           AND status <> 'COMPLETED')",
        values![step.key.task_id, step.cycle, phase],
    )
}
