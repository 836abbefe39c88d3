//! The summary of a finished batch.

use super::{DispatchRun, TaskBatch};
use crate::proto::dispatch::{Plan, State, TaskState};
use ensemble_core::message::Name;
use ensemble_reports::contract::{Summary, TaskResult};

impl DispatchRun<'_> {
    pub(super) fn summary(&self, batch: &TaskBatch, plan: &Plan, state: &State) -> Summary {
        let mut summary = Summary::new(batch.tasks.len() as u64);
        summary.batch_id = Some(batch.id.to_string());
        for task in &plan.tasks {
            let (word, worker, said) = match state.tasks.get(&task.id) {
                Some(TaskState::Done { worker, summary: said }) => {
                    summary.completed_tasks += 1;
                    ("success", Some(worker), said.clone())
                }
                Some(TaskState::Failed { worker, attempts, reason }) => {
                    let times = if *attempts == 1 { "attempt" } else { "attempts" };
                    ("failed", Some(worker), Some(format!("{reason} ({attempts} {times})")))
                }
                Some(TaskState::Blocked { by }) => {
                    ("blocked", None, Some(format!("not begun: {by} was not done")))
                }
                Some(TaskState::Waiting { .. } | TaskState::Chosen(_) | TaskState::Given(_))
                | None => ("missing", None, None),
            };
            if word != "success" {
                summary.failed_tasks += 1;
                let why = said.as_deref().unwrap_or("no reason was given");
                summary.errors.push(format!("{} {word}: {why}", task.id));
            }
            let mut result = TaskResult::new(task.id.clone(), word);
            result.worker_id = worker.map(Name::to_string);
            result.summary = said;
            summary.task_results.push(result);
        }
        summary.conclude("", "", self.clock.wall());
        summary
    }
}
