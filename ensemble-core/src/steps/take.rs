//! Taking the next step: one transaction that picks it, gives it a lease and an epoch, and locks its
//! files.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, Transaction, params};
use serde::Serialize;
use serde_json::json;

use super::rows::{self, QueueView, STEP_COLUMNS, StepKey, StepView};
use super::{FilePath, Pauses, Policy, StepStore, Trouble, files};
use crate::message::Name;
use crate::proto::step::{Effect, Event};
use crate::{Error, Result};

/// Who asks for a step, and of which task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// The worker, which gets its own steps only; `None` takes for whom the step is meant.
    pub agent: Option<Name>,
    /// The task; `None` for any, in the order in which they were added.
    pub task_id: Option<String>,
}

impl Ask {
    /// A worker's next step, of any task.
    #[must_use]
    pub const fn of(agent: Name) -> Self {
        Self { agent: Some(agent), task_id: None }
    }

    /// The next step of a task, for whoever it is meant.
    #[must_use]
    pub fn for_task(task_id: impl Into<String>) -> Self {
        Self { agent: None, task_id: Some(task_id.into()) }
    }

    /// Of this task only.
    #[must_use]
    pub fn in_task(mut self, task_id: impl Into<String>) -> Self {
        self.task_id = Some(task_id.into());
        self
    }
}

/// A step that is in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Handed {
    /// Which.
    #[serde(flatten)]
    pub key: StepKey,
    /// Whose.
    pub agent: Name,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// How many there are.
    pub attempts_max: u32,
    /// The fencing number, from 1.
    pub epoch: u64,
    /// How long its holder may show no sign of life, in seconds.
    pub lease_seconds: u64,
    /// Whether this agent had it already.
    pub again: bool,
    /// What is to be done.
    pub goal: String,
}

impl Handed {
    /// A step that somebody has, of this queue.
    pub(crate) fn of(
        queue: &QueueView,
        key: StepKey,
        agent: Name,
        (attempt, epoch): (u32, u64),
        goal: String,
    ) -> Self {
        Self {
            key,
            agent,
            attempt,
            attempts_max: queue.attempts_max,
            epoch,
            lease_seconds: queue.lease_seconds,
            again: false,
            goal,
        }
    }

    /// How long its holder may show no sign of life.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// This step.
    Handed(Box<Handed>),
    /// Nothing, at the moment.
    Nothing(Nothing),
}

/// Why there is nothing to do. With several tasks, what stands in the way in the first of them in which
/// it is not simply another one's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "nothing", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Nothing {
    /// All steps are done.
    Done,
    /// Somebody must intervene first.
    Paused {
        /// In which task.
        task_id: String,
        /// At which step.
        step_index: u32,
    },
    /// It is another one's turn.
    Others {
        /// In which task.
        task_id: String,
        /// Whose.
        agent: Name,
    },
    /// Somebody works on a file of the next step.
    FileHeld {
        /// In which task.
        task_id: String,
        /// Which file.
        path: String,
        /// Who.
        holder: String,
    },
    /// What comes before has to be done first.
    Order {
        /// In which task.
        task_id: String,
        /// Which step waits.
        step_index: u32,
    },
}

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => write!(f, "all steps are done"),
            Self::Paused { task_id, step_index } => write!(
                f,
                "task {task_id} is paused: step {step_index} needs somebody to intervene \
                 (`step show {task_id} {step_index}`)"
            ),
            Self::Others { task_id, agent } => write!(f, "in task {task_id} it is {agent}'s turn"),
            Self::FileHeld { task_id, path, holder } => {
                write!(f, "the next step of task {task_id} needs {path}, which {holder} works on")
            }
            Self::Order { task_id, step_index } => {
                write!(f, "step {step_index} of task {task_id} waits for the phase before it")
            }
        }
    }
}

impl StepStore {
    /// Hands out the next step, in one transaction. A worker that has a step of such a task already
    /// gets the same one again, under the same epoch.
    ///
    /// # Errors
    /// [`Error::NoStep`] if there is no such task; [`Error::Database`].
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
            self.options.recorder.record("step.taken", step.agent.as_str(), data);
        }
        Ok(next)
    }

    fn take_in(&self, tx: &Transaction<'_>, ask: &Ask, now: &str) -> Result<Next, Trouble> {
        if let Some(agent) = &ask.agent
            && let Some(step) = held_by(tx, agent, ask.task_id.as_deref())?
        {
            let queue = queue_of(tx, &step.key.task_id)?;
            let (attempt, epoch) = (step.attempt, step.epoch);
            let handed = Handed::of(&queue, step.key, agent.clone(), (attempt, epoch), step.goal);
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
                // That it is another's turn is the least that can be said.
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
        tx: &Transaction<'_>,
        task_id: &str,
        agent: Option<&Name>,
        now: &str,
    ) -> Result<Next, Trouble> {
        let queue = queue_of(tx, task_id)?;
        if let Some(nothing) = stands_still(tx, &queue)? {
            return Ok(Next::Nothing(nothing));
        }
        let select = format!(
            "SELECT {STEP_COLUMNS} FROM task_steps WHERE task_id = ?1 AND life = 'open' \
             ORDER BY position"
        );
        let mut select = tx.prepare_cached(&select)?;
        let mut found = select.query([task_id])?;
        let mut why = Nothing::Done;
        while let Some(row) = found.next()? {
            let step = rows::step(row)?;
            match self.obstacle(tx, &queue, &step, agent)? {
                Ok(names) => {
                    drop(found);
                    return self.hand(tx, queue, step, &names, now);
                }
                Err(obstacle) => why = if why == Nothing::Done { obstacle } else { why },
            }
            // One after the other: nobody overtakes.
            if queue.parallel == 1 && queue.pauses == Pauses::Queue {
                break;
            }
        }
        Ok(Next::Nothing(why))
    }

    /// The names of the files to lock, or what stands in the way of this step.
    fn obstacle(
        &self,
        tx: &Transaction<'_>,
        queue: &QueueView,
        step: &StepView,
        agent: Option<&Name>,
    ) -> Result<Result<Vec<String>, Nothing>, Trouble> {
        let task_id = || step.key.task_id.clone();
        let due = whose_turn(step);
        if agent.is_some_and(|agent| agent != due) {
            return Ok(Err(Nothing::Others { task_id: task_id(), agent: due.clone() }));
        }
        if queue.policy == Policy::Tdd && waits_for_phase(tx, step)? {
            let step_index = step.key.step_index;
            return Ok(Err(Nothing::Order { task_id: task_id(), step_index }));
        }
        let mut names = Vec::new();
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
        tx: &Transaction<'_>,
        queue: QueueView,
        step: StepView,
        names: &[String],
        now: &str,
    ) -> Result<Next, Trouble> {
        let agent = whose_turn(&step).clone();
        let mut changed =
            Self::apply_to(tx, queue, step, Event::Taken { by: agent.clone() }, None, now)?;
        let Some(Effect::Hand { attempt, epoch, .. }) = changed.effects.pop_front() else {
            return Ok(Next::Nothing(Nothing::Done));
        };
        let key = &changed.before.key;
        files::lock(tx, names, key, epoch, agent.as_str())?;
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
        let StepView { key, goal, .. } = changed.before;
        let handed = Handed::of(&changed.queue, key, agent, (attempt, epoch), goal);
        Ok(Next::Handed(Box::new(handed)))
    }
}

/// Who is to take it now: whoever fixes it, once it has failed.
fn whose_turn(step: &StepView) -> &Name {
    match &step.fix_by {
        Some(fixer) if step.status == "FAILED" => fixer,
        _ => &step.agent,
    }
}

fn queue_of(tx: &Transaction<'_>, task_id: &str) -> Result<QueueView, Trouble> {
    let queue = rows::find_queue(tx, task_id, false)?;
    queue.ok_or_else(|| Error::NoStep { step: format!("task {task_id}") }.into())
}

fn held_by(
    tx: &Transaction<'_>,
    agent: &Name,
    task_id: Option<&str>,
) -> rusqlite::Result<Option<StepView>> {
    let select = format!(
        "SELECT {STEP_COLUMNS} FROM task_steps WHERE holder = ?1 \
         AND (?2 IS NULL OR task_id = ?2) LIMIT 1"
    );
    tx.prepare_cached(&select)?.query_row(params![agent.as_str(), task_id], rows::step).optional()
}

fn open_tasks(tx: &Transaction<'_>) -> rusqlite::Result<Vec<String>> {
    tx.prepare_cached(
        "SELECT task_id FROM task_queues q WHERE EXISTS (SELECT 1 FROM task_steps s \
           WHERE s.task_id = q.task_id AND s.life IN ('open', 'held', 'stuck')) ORDER BY number",
    )?
    .query_map([], |row| row.get(0))?
    .collect()
}

/// What keeps the whole queue from going on.
fn stands_still(tx: &Transaction<'_>, queue: &QueueView) -> rusqlite::Result<Option<Nothing>> {
    let mut select = tx.prepare_cached(
        "SELECT step_index, holder FROM task_steps \
         WHERE task_id = ?1 AND life IN ('held', 'stuck') ORDER BY position",
    )?;
    let mut rows = select.query([&queue.task_id])?;
    let (mut held, mut first) = (0, None);
    while let Some(row) = rows.next()? {
        match rows::optional_name(row, 1)? {
            Some(holder) => {
                held += 1;
                first = first.or(Some(holder));
            }
            None if queue.pauses == Pauses::Queue => {
                let (task_id, step_index) = (queue.task_id.clone(), row.get(0)?);
                return Ok(Some(Nothing::Paused { task_id, step_index }));
            }
            None => {}
        }
    }
    let first = first.filter(|_| held >= queue.parallel);
    Ok(first.map(|agent| Nothing::Others { task_id: queue.task_id.clone(), agent }))
}

fn waits_for_phase(tx: &Transaction<'_>, step: &StepView) -> rusqlite::Result<bool> {
    let Some(phase) = step.phase else { return Ok(false) };
    tx.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM task_steps WHERE task_id = ?1 AND cycle = ?2 AND phase < ?3 \
           AND status <> 'COMPLETED')",
    )?
    .query_row(params![step.key.task_id, step.cycle, phase.rank()], |row| row.get(0))
}
