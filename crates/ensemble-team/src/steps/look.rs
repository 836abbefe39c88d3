//! Reading queues and steps without changing them.

use super::StepError;
use super::db::values;
use serde::Serialize;

use super::rows::{self, RunView, STEP_COLUMNS, StepKey, StepQueueView, StepView};
use super::{PauseScope, StepStore};
use ensemble_core::Result;
use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StuckStep {
    #[serde(flatten)]
    pub key: StepKey,
    /// Status: `BLOCKED` or `FAILED`.
    pub status: String,
    /// Reason why the step waits: its blockers or its error.
    pub reason: String,
    /// Time since when it waits, for people.
    pub since: String,
    pub stops_queue: bool,
    /// The order that lets the step continue: `unblock` or `retry`.
    pub remedy: &'static str,
}

impl StepStore {
    /// All steps that wait for an intervention, in the order of the queues: at attempts that are
    /// used up, or blocked. The longest wait of a queue comes first.
    pub fn standing(&self) -> Result<Vec<StuckStep>> {
        type Row = (StepKey, String, Vec<String>, String, String, PauseScope);
        let rows: Vec<Row> = self.read(|tx| {
            tx.all(
                "SELECT s.task_id, s.step_index, s.status, s.blockers, \
                   coalesce(s.last_error, ''), s.updated_at, q.pauses \
                 FROM task_queues q JOIN task_steps s USING (task_id) \
                 WHERE s.life = 'stuck' ORDER BY q.number, s.updated_at, s.position",
                &[],
            )
        })?;
        let stuck = |(key, status, blockers, error, since, pauses): Row| {
            let (reason, remedy) = match status.as_str() {
                "BLOCKED" => (blockers.join("; "), "unblock"),
                _ => (error, "retry"),
            };
            let stops_queue = pauses == PauseScope::Queue;
            StuckStep { key, status, reason, since, stops_queue, remedy }
        };
        Ok(rows.into_iter().map(stuck).collect())
    }

    /// All queues in the order in which they were added, with step counts.
    pub fn queues(&self) -> Result<Vec<StepQueueView>> {
        self.read(|tx| {
            let tasks: Vec<String> =
                tx.all("SELECT task_id FROM task_queues ORDER BY number", &[])?;
            let find = |task: &String| rows::find_queue(tx, task, true).transpose();
            tasks.iter().filter_map(find).collect()
        })
    }

    pub fn queue(&self, task_id: &str) -> Result<StepQueueView> {
        let none = || StepError::NoTask { task_id: task_id.to_owned() };
        Ok(self.read(|tx| rows::find_queue(tx, task_id, true))?.ok_or_else(none)?)
    }

    /// All steps of a task, in the order of the queue; finished steps keep their place.
    pub fn steps(&self, task_id: &str) -> Result<Vec<StepView>> {
        let select =
            format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE task_id = ?1 ORDER BY position");
        self.read(|tx| tx.all(&select, values![task_id]))
    }

    pub fn step(&self, key: &StepKey) -> Result<StepView> {
        let none = || StepError::NoStep { key: key.clone() };
        Ok(self.read(|tx| rows::find_step(tx, key))?.ok_or_else(none)?)
    }

    pub fn held_by(&self, agent: &Name) -> Result<Vec<StepView>> {
        let select = format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE holder = ?1");
        self.read(|tx| tx.all(&select, values![agent]))
    }

    pub fn all_held(&self) -> Result<Vec<StepView>> {
        let select = format!("SELECT {STEP_COLUMNS} FROM task_steps WHERE holder IS NOT NULL");
        self.read(|tx| tx.all(&select, &[]))
    }

    /// All agents that plans name, sorted by name.
    pub fn agents(&self) -> Result<Vec<Name>> {
        self.read(|tx| {
            tx.all(
                "SELECT agent FROM task_steps UNION SELECT fix_by FROM task_steps \
                 WHERE fix_by IS NOT NULL ORDER BY 1",
                &[],
            )
        })
    }

    pub fn runs(&self, key: &StepKey) -> Result<Vec<RunView>> {
        self.read(|tx| {
            tx.all(
                "SELECT epoch, attempt, agent, taken_at, ended_at, outcome, summary, \
                   context_for_next_step, prompt_message FROM step_runs \
                 WHERE task_id = ?1 AND step_index = ?2 ORDER BY epoch",
                values![key.task_id, key.step_index],
            )
        })
    }
}
