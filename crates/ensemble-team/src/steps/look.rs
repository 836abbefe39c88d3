//! Reading queues and steps without changing them.

use super::StepError;
use rusqlite::params;

use super::StepStore;
use super::rows::{self, QueueView, RunView, STEP_COLUMNS, StepKey, StepView};
use ensemble_core::Result;
use ensemble_core::message::Name;

impl StepStore {
    /// All queues in the order in which they were added, with step counts.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub fn queues(&self) -> Result<Vec<QueueView>> {
        self.read(|tx| {
            let tasks: Vec<String> = tx
                .prepare_cached("SELECT task_id FROM task_queues ORDER BY number")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let find = |task: &String| rows::find_queue(tx, task, true).transpose();
            tasks.iter().filter_map(find).collect()
        })
    }

    /// One queue, with step counts.
    ///
    /// # Errors
    /// [`StepError::NoStep`] if there is no such queue; [`StepError::Database`].
    pub fn queue(&self, task_id: &str) -> Result<QueueView> {
        let none = || StepError::NoTask { task_id: task_id.to_owned() };
        Ok(self.read(|tx| rows::find_queue(tx, task_id, true))?.ok_or_else(none)?)
    }

    /// All steps of a task, in the order of the queue; finished steps keep their place.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub fn steps(&self, task_id: &str) -> Result<Vec<StepView>> {
        let select =
            format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE task_id = ?1 ORDER BY position");
        self.read(|tx| tx.prepare_cached(&select)?.query_map([task_id], rows::step)?.collect())
    }

    /// One step.
    ///
    /// # Errors
    /// [`StepError::NoStep`] if there is no such step; [`StepError::Database`].
    pub fn step(&self, key: &StepKey) -> Result<StepView> {
        let none = || StepError::NoStep { key: key.clone() };
        Ok(self.read(|tx| rows::find_step(tx, key))?.ok_or_else(none)?)
    }

    /// The steps that this agent works on.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub fn held_by(&self, agent: &Name) -> Result<Vec<StepView>> {
        let select = format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE holder = ?1");
        self.read(|tx| {
            tx.prepare_cached(&select)?.query_map([agent.as_str()], rows::step)?.collect()
        })
    }

    /// The steps that agents work on.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn all_held(&self) -> Result<Vec<StepView>> {
        let select = format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE holder IS NOT NULL");
        self.read(|tx| tx.prepare_cached(&select)?.query_map([], rows::step)?.collect())
    }

    /// All agents that plans name, sorted by name.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub fn agents(&self) -> Result<Vec<Name>> {
        self.read(|tx| {
            tx.prepare_cached(
                "SELECT agent FROM task_steps UNION SELECT fix_by FROM task_steps \
                 WHERE fix_by IS NOT NULL ORDER BY 1",
            )?
            .query_map([], |row| rows::name(row, 0))?
            .collect()
        })
    }

    /// All runs of a step; each hand-out is a run.
    ///
    /// # Errors
    /// [`StepError::Database`].
    pub fn runs(&self, key: &StepKey) -> Result<Vec<RunView>> {
        self.read(|tx| {
            tx.prepare_cached(
                "SELECT epoch, attempt, agent, taken_at, ended_at, outcome, summary, \
                   context_for_next_step, prompt_message FROM step_runs \
                 WHERE task_id = ?1 AND step_index = ?2 ORDER BY epoch",
            )?
            .query_map(params![key.task_id, key.step_index], |row| {
                Ok(RunView {
                    epoch: rows::number(row, 0)?,
                    attempt: row.get(1)?,
                    agent: rows::name(row, 2)?,
                    taken_at: row.get(3)?,
                    ended_at: row.get(4)?,
                    outcome: row.get(5)?,
                    summary: row.get(6)?,
                    context_for_next_step: row.get(7)?,
                    prompt_message: row.get(8)?,
                })
            })?
            .collect()
        })
    }
}
