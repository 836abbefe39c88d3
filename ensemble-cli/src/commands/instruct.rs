use std::time::Duration;

use ensemble_app::batches::{open_dispatch, read_instruction};
use ensemble_app::content::check_words;
use ensemble_app::diagnostics::say;
use ensemble_app::interrupt::end_if_cancelled;
use ensemble_app::text;
use ensemble_app::wait_line::WaitLine;
use ensemble_core::Error;
use ensemble_core::env::SystemClock;
use ensemble_core::watch::Waiter;
use ensemble_reports::contract::{self, EscalationReport};
use ensemble_team::driver::{Batches, Conductor, TaskBatch};
use ensemble_team::proto::patience::CONDUCTOR_PATIENCE;
use serde_json::json;

use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::flags::FileContent;
use crate::printing::print_summary;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Hand tasks to Dispatch, and wait for their summary
///
/// The instruction is a file with `type: start_workers`, and `tasks` with an `id` and an `instruction` each.
/// It goes to the mailbox `dispatch`, once however often this is run: the same tasks with the
/// same `created_at` are one batch. With `--wait`, escalations of its tasks are printed as they come,
/// then the summary. After that time it ends with exit code 3, and the batch continues: run it
/// again to keep waiting.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent instruct -f dispatch-instruction.yaml --wait
  ensemble agent instruct -f dispatch-instruction.yaml --wait 10m --json

Dispatch gathers the reports of the same batch:
  ensemble recv --as dispatch --body | ensemble task summary --instruction -")]
pub(crate) struct Arguments {
    #[command(flatten)]
    instruction: FileContent,
    /// Wait for the summary [30m if it does not say how long]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, value_parser = args::duration)]
    wait: Option<Option<Duration>>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let instruction = read_instruction(self.instruction.path()?)?;
        let words = contract::write(&instruction);
        if let Some(warning) = check_words(context, words.as_bytes())? {
            say(&format!("warning: {warning}"));
        }
        let project = context.project()?;
        let spool = context.spool()?;
        let queue = open_dispatch(context, &spool)?;
        let recorder = context.recorder()?;
        let durability = project.config.durability.unwrap_or_default();
        let conductor = Conductor {
            spool: &spool,
            queue: &*queue,
            batches: Batches::new(&project.queue, &project.state, durability),
            clock: &SystemClock,
            recorder: &*recorder,
            actor: context.sender()?,
        };
        // Listened to before anything can answer.
        let waiter = Waiter::new(&[project.queue.join("reports")]);
        let batch = conductor.instruct(&instruction).map_err(|error| match error {
            Error::Conflict { .. } => Failure::from(error).with_hint(
                "the same tasks were handed over in other words: change `created_at` for a new batch",
            ),
            error => error.into(),
        })?;
        let Some(wait) = self.wait else { return handed_over(context, &batch) };
        let configured = project.config.conductor_patience.map(Duration::from);
        let patience = wait.or(configured).unwrap_or(CONDUCTOR_PATIENCE);
        let line = WaitLine::new(format!("the summary of batch {}", batch.id), Some(patience));
        let mut printed = Ok(());
        let told = conductor.await_summary(
            &batch,
            Some(patience),
            &mut |escalation| {
                if printed.is_ok() {
                    printed = escalated(context, &batch, escalation);
                }
            },
            &mut |longest| {
                match queue.directory() {
                    Some(_) => waiter.wait(longest),
                    // A summary may come from another host, which wakes nothing here.
                    None => waiter.wait(longest.min(LOOK_INTERVAL)),
                }
                end_if_cancelled()
            },
        )?;
        drop(line);
        printed?;
        match told {
            Some(summary) => print_summary(context, &batch, &summary, true),
            None => {
                let text = format!(
                    "no summary for batch {} after {}",
                    batch.id,
                    humantime::format_duration(patience)
                );
                Err(Failure::nothing(text).with_hint(
                    "`ensemble status` shows what waits; run this command again to wait on",
                ))
            }
        }
    }
}

fn handed_over(context: &Context, batch: &TaskBatch) -> Outcome {
    let object = json!({
        "batch_id": batch.id, "mailbox": "dispatch", "state": "stored", "tasks": batch.tasks,
    });
    let tasks = text::plural(batch.tasks.len() as u64, "task");
    context.out.print_answer(&object, format!("{}: {tasks} handed to dispatch", batch.id))
}

fn escalated(context: &Context, batch: &TaskBatch, escalation: &EscalationReport) -> Outcome {
    let object = json!({ "batch_id": batch.id, "escalation": escalation });
    let EscalationReport { task_id, reason, detail, action, .. } = escalation;
    let more = [detail, action].into_iter().flatten().map(|more| format!("; {more}"));
    let line = format!("escalated: {task_id}: {reason}{}", more.collect::<String>());
    context.out.print_answer(&object, text::one_line(&line))
}
