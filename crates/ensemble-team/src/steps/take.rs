//! Taking the next step. One transaction picks it, gives it a lease and an epoch, and locks its
//! files.

use super::StepError;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use serde_json::json;

use super::rows::{self, StepKey};
use super::working::{
    self, CHARTER, CHARTER_COLUMNS, Charter, PROMPT_MESSAGE, WORK, WORK_COLUMNS, Work,
};
use super::{FilePath, Pauses, Policy, StepStore, Trouble, files};
use crate::admission::{Act, is_refusal};
use crate::proto::step::{Effect, Event};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::requests::Gated;
use ensemble_core::{Error, Result};

/// A request for a step: for an agent, a task, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// The worker, which gets only its own steps; `None` takes the next step for any agent.
    pub agent: Option<Name>,
    /// The task; `None` for any, in the order in which they were added.
    pub task_id: Option<String>,
}

impl Ask {
    /// Asks for a worker's next step, of any task.
    #[must_use]
    pub const fn of(agent: Name) -> Self {
        Self { agent: Some(agent), task_id: None }
    }

    /// Asks for the next step of a task, for any agent.
    #[must_use]
    pub fn for_task(task_id: impl Into<String>) -> Self {
        Self { agent: None, task_id: Some(task_id.into()) }
    }

    /// Limits the request to this task.
    #[must_use]
    pub fn in_task(mut self, task_id: impl Into<String>) -> Self {
        self.task_id = Some(task_id.into());
        self
    }
}

/// A step that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Handed {
    /// Key of the step.
    #[serde(flatten)]
    pub key: StepKey,
    /// The worker that holds it.
    pub agent: Name,
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// Most attempts.
    pub attempts_max: u32,
    /// The fencing epoch, starting at 1.
    pub epoch: u64,
    /// How long its holder may give no sign of life, in seconds.
    pub lease_seconds: u64,
    /// Whether this agent already held the step.
    pub again: bool,
    /// Goal of the step.
    pub goal: String,
    /// When its queue was stored. It distinguishes the queue from an earlier one with the same
    /// name.
    #[serde(skip)]
    pub(crate) queue_created_at: String,
}

impl Handed {
    /// How long its holder may give no sign of life.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }
}

/// Result of a request for a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// The step that was handed out.
    Handed(Box<Handed>),
    /// No step is available at the moment.
    Nothing(Nothing),
}

/// Why no step is available. With several tasks it is the reason of the first task whose next step
/// is not simply assigned to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "nothing", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Nothing {
    /// All steps are done.
    Done,
    /// A person or the orchestrator must intervene first.
    Paused {
        /// The task.
        task_id: String,
        /// The step that is stuck.
        step_index: u32,
    },
    /// The next step is assigned to another agent.
    Others {
        /// The task.
        task_id: String,
        /// The agent of the next step.
        agent: Name,
    },
    /// The next step may not be begun now: its plan is not approved, or the team stands still.
    Refused {
        /// The task.
        task_id: String,
        /// Why, as a sentence.
        why: String,
        /// Whether the agent itself can mend it, with a plan.
        needs_plan: bool,
    },
    /// Another worker holds a file of the next step.
    FileHeld {
        /// The task.
        task_id: String,
        /// The file.
        path: String,
        /// Holder of the file.
        holder: String,
    },
    /// An earlier phase must be done first.
    Order {
        /// The task.
        task_id: String,
        /// The waiting step.
        step_index: u32,
    },
}

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => write!(f, "all steps are done"),
            Self::Paused { task_id, step_index } => write!(
                f,
                "task {task_id} is paused: step {step_index} needs an intervention \
                 (`step show {task_id} {step_index}`)"
            ),
            Self::Others { task_id, agent } => {
                write!(f, "the next step of task {task_id} is assigned to {agent}")
            }
            Self::Refused { task_id, why, .. } => {
                write!(f, "the next step of task {task_id} may not be begun: {why}")
            }
            Self::FileHeld { task_id, path, holder } => {
                write!(f, "the next step of task {task_id} needs {path}, which {holder} holds")
            }
            Self::Order { task_id, step_index } => {
                write!(f, "step {step_index} of task {task_id} waits for the phase before it")
            }
        }
    }
}

impl StepStore {
    /// Steps of a task that workers hold, each with the message of its prompt, if one was noted.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub(crate) fn handed(&self, task_id: &str) -> Result<Vec<(Handed, Option<String>)>> {
        let select = format!(
            "SELECT {WORK}, {CHARTER}, {PROMPT_MESSAGE} \
             FROM task_steps s JOIN task_queues q USING (task_id) \
             WHERE s.task_id = ?1 AND s.life = 'held' ORDER BY s.position"
        );
        self.read(|tx| {
            let mut select = tx.prepare_cached(&select)?;
            let mut found = select.query([task_id])?;
            let mut all = Vec::new();
            while let Some(row) = found.next()? {
                let (queue, step) = (working::charter(row, WORK_COLUMNS)?, working::work(row)?);
                let Work { key, attempt, epoch, goal, holder: Some(holder), .. } = step else {
                    continue;
                };
                let handed = queue.handed(key, holder, (attempt, epoch), goal);
                all.push((handed, row.get(WORK_COLUMNS + CHARTER_COLUMNS)?));
            }
            Ok(all)
        })
    }

    /// Hands out the next step, in one transaction. A worker that already holds a step of such a
    /// task gets the same one again, under the same epoch.
    ///
    /// # Errors
    /// [`StepError::NoStep`] if there is no such task; [`StepError::Database`].
    pub fn take(&self, ask: &Ask) -> Result<Next> {
        let now = self.stamp();
        let next = self.write("take a step from", |tx| self.take_in(tx, ask, &now))?;
        if let Next::Handed(step) = &next
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

    fn take_in(&self, tx: &Connection, ask: &Ask, now: &str) -> Result<Next, Trouble> {
        if let Some(agent) = &ask.agent
            && let Some((queue, step)) = held_by(tx, agent, ask.task_id.as_deref())?
        {
            let Work { key, attempt, epoch, goal, .. } = step;
            let handed = queue.handed(key, agent.clone(), (attempt, epoch), goal);
            return Ok(Next::Handed(Box::new(Handed { again: true, ..handed })));
        }
        let tasks = match &ask.task_id {
            Some(task) => vec![task.clone()],
            None => open_tasks(tx)?,
        };
        let mut why = None;
        for task in tasks {
            match self.take_of(tx, &task, ask.agent.as_ref(), now)? {
                Next::Nothing(Nothing::Done) => {}
                // Prefer any other reason to "assigned to another agent".
                Next::Nothing(nothing) if !matches!(why, None | Some(Nothing::Others { .. })) => {
                    drop(nothing);
                }
                Next::Nothing(nothing @ Nothing::Others { .. }) => why = why.or(Some(nothing)),
                Next::Nothing(nothing) => why = Some(nothing),
                handed @ Next::Handed(_) => return Ok(handed),
            }
        }
        Ok(Next::Nothing(why.unwrap_or(Nothing::Done)))
    }

    fn take_of(
        &self,
        tx: &Connection,
        task_id: &str,
        agent: Option<&Name>,
        now: &str,
    ) -> Result<Next, Trouble> {
        let queue = match stands_still(tx, task_id)? {
            Ok(queue) => queue,
            Err(nothing) => return Ok(Next::Nothing(nothing)),
        };
        let select = format!(
            "SELECT {WORK} FROM task_steps s WHERE s.task_id = ?1 AND s.life = 'open' \
             ORDER BY s.position"
        );
        let mut select = tx.prepare_cached(&select)?;
        let mut found = select.query([task_id])?;
        let mut why = Nothing::Done;
        while let Some(row) = found.next()? {
            let step = working::work(row)?;
            match self.obstacle(tx, &queue, &step, agent)? {
                Ok(names) => {
                    drop(found);
                    return self.hand(tx, queue, step, &names, now);
                }
                Err(obstacle) => why = if why == Nothing::Done { obstacle } else { why },
            }
            // In a sequential queue no step overtakes another.
            if queue.parallel == 1 && queue.pauses == Pauses::Queue {
                break;
            }
        }
        Ok(Next::Nothing(why))
    }

    /// Why this agent may not begin a step of this task now.
    fn refused(&self, task_id: &str, agent: &Name) -> Result<Option<Nothing>> {
        let Some(door) = &self.options.door else { return Ok(None) };
        match door.check(Act::TakeUp, task_id, agent) {
            Ok(()) => Ok(None),
            Err(error) if is_refusal(&error) => Ok(Some(Nothing::Refused {
                task_id: task_id.to_owned(),
                needs_plan: error.area::<Gated>().is_some_and(|gated| gated.0.needs_plan()),
                why: error.to_string(),
            })),
            Err(error) => Err(error),
        }
    }

    /// The names of the files to lock, or the obstacle of this step.
    fn obstacle(
        &self,
        tx: &Connection,
        queue: &Charter,
        step: &Work,
        agent: Option<&Name>,
    ) -> Result<Result<Vec<String>, Nothing>, Trouble> {
        let task_id = || step.key.task_id.clone();
        let due = next_agent(step);
        if agent.is_some_and(|agent| agent != due) {
            return Ok(Err(Nothing::Others { task_id: task_id(), agent: due.clone() }));
        }
        if queue.policy == Policy::Tdd && waits_for_phase(tx, step)? {
            let step_index = step.key.step_index;
            return Ok(Err(Nothing::Order { task_id: task_id(), step_index }));
        }
        if let Some(refused) = self.refused(&step.key.task_id, due)? {
            return Ok(Err(refused));
        }
        let mut names = Vec::new();
        if !step.has_files {
            return Ok(Ok(names));
        }
        for path in files::of_step(tx, &step.key)? {
            let path = FilePath::new(&path)
                .map_err(|why| Error::malformed(&self.path, "task_resources.path", why))?;
            names.push(path.lock_name(&self.options.root));
        }
        names.sort_unstable();
        names.dedup();
        match files::conflict(tx, &names)? {
            Some((path, holder)) => Ok(Err(Nothing::FileHeld { task_id: task_id(), path, holder })),
            None => Ok(Ok(names)),
        }
    }

    fn hand(
        &self,
        tx: &Connection,
        queue: Charter,
        step: Work,
        names: &[String],
        now: &str,
    ) -> Result<Next, Trouble> {
        let agent = next_agent(&step).clone();
        let mut changed =
            Self::apply_to(tx, queue, step, Event::Taken { by: agent.clone() }, None, now)?;
        let Some(Effect::Hand { attempt, epoch, .. }) = changed.effects.pop_front() else {
            return Ok(Next::Nothing(Nothing::Done));
        };
        let key = &changed.before.key;
        if !names.is_empty() {
            files::lock(tx, names, key, epoch, agent.as_str())?;
        }
        tx.prepare_cached(
            "INSERT INTO step_runs (task_id, step_index, epoch, attempt, agent, taken_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            key.task_id,
            key.step_index,
            i64::try_from(epoch).unwrap_or(i64::MAX),
            attempt,
            agent.as_str(),
            now
        ])?;
        let Work { key, goal, .. } = changed.before;
        let handed = changed.queue.handed(key, agent, (attempt, epoch), goal);
        Ok(Next::Handed(Box::new(handed)))
    }
}

/// The agent that works next on the step: the fixer, once the step has failed.
fn next_agent(step: &Work) -> &Name {
    match &step.fix_by {
        Some(fixer) if step.status == "FAILED" => fixer,
        _ => &step.agent,
    }
}

fn held_by(
    tx: &Connection,
    agent: &Name,
    task_id: Option<&str>,
) -> rusqlite::Result<Option<(Charter, Work)>> {
    let select = format!(
        "SELECT {WORK}, {CHARTER} FROM task_steps s JOIN task_queues q USING (task_id) \
         WHERE s.holder = ?1 AND (?2 IS NULL OR s.task_id = ?2) LIMIT 1"
    );
    tx.prepare_cached(&select)?
        .query_row(params![agent.as_str(), task_id], |row| {
            Ok((working::charter(row, WORK_COLUMNS)?, working::work(row)?))
        })
        .optional()
}

fn open_tasks(tx: &Connection) -> rusqlite::Result<Vec<String>> {
    tx.prepare_cached(
        "SELECT task_id FROM task_queues q WHERE EXISTS (SELECT 1 FROM task_steps s \
           WHERE s.task_id = q.task_id AND s.life IN ('open', 'held', 'stuck')) ORDER BY number",
    )?
    .query_map([], |row| row.get(0))?
    .collect()
}

/// Rules of a queue, or the reason why the whole queue is stopped.
fn stands_still(tx: &Connection, task_id: &str) -> Result<Result<Charter, Nothing>, Trouble> {
    let select = format!(
        "SELECT {CHARTER}, s.step_index, s.holder FROM task_queues q LEFT JOIN task_steps s \
           ON s.task_id = q.task_id AND s.life IN ('held', 'stuck') \
         WHERE q.task_id = ?1 ORDER BY s.position"
    );
    let mut select = tx.prepare_cached(&select)?;
    let mut found_rows = select.query([task_id])?;
    let (mut queue, mut held, mut first) = (None, 0, None);
    while let Some(row) = found_rows.next()? {
        let found = match queue.take() {
            Some(found) => found,
            None => working::charter(row, 0)?,
        };
        let step_index: Option<u32> = row.get(CHARTER_COLUMNS)?;
        match (step_index, rows::optional_name(row, CHARTER_COLUMNS + 1)?) {
            (Some(_), Some(holder)) => {
                held += 1;
                first = first.or(Some(holder));
            }
            (Some(step_index), None) if found.pauses == Pauses::Queue => {
                return Ok(Err(Nothing::Paused { task_id: found.task_id, step_index }));
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
        queue = Some(found);
    }
    let none = || StepError::NoTask { task_id: task_id.to_owned() };
    let queue: Charter = queue.ok_or_else(none)?;
    Ok(match first.filter(|_| held >= queue.parallel) {
        Some(agent) => Err(Nothing::Others { task_id: queue.task_id, agent }),
        None => Ok(queue),
    })
}

fn waits_for_phase(tx: &Connection, step: &Work) -> rusqlite::Result<bool> {
    let Some(phase) = step.phase else { return Ok(false) };
    tx.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM task_steps WHERE task_id = ?1 AND cycle = ?2 AND phase < ?3 \
           AND status <> 'COMPLETED')",
    )?
    .query_row(params![step.key.task_id, step.cycle, phase.rank()], |row| row.get(0))
}
