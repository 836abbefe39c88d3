use std::path::PathBuf;
use std::time::Duration;

use ensemble_app::batches::read_instruction;
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::resting;
use ensemble_core::Error;
use ensemble_core::env::SystemClock;
use ensemble_core::message::Name;
use ensemble_core::watch::Waiter;
use ensemble_reports::contract::VerdictRule;
use ensemble_team::collect::BatchLimits;
use ensemble_team::driver::{Batches, Dispatcher, SummaryOutcome, TaskBatch, batch_of};

use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::printing::print_summary;

/// Gather the reports of a batch and report to the conductor, once
///
/// Waits until every task has a report, then writes `queue/reports/completion-summary.yaml`. After
/// the time limit it writes a partial summary that names the missing reports (exit code 3). A batch
/// has one summary, however many of these commands run and however often they are killed: later
/// ones print the same summary.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task summary --task task-1 --task task-2 --wait 20m
  ensemble task summary --instruction instruction.yaml --accept 'all(\"approved\")'")]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["tasks", "instruction"]))]
pub(crate) struct Arguments {
    /// A task of the batch; may be repeated
    #[arg(long = "task", value_name = "ID", value_parser = args::header)]
    tasks: Vec<String>,
    /// An instruction whose tasks are the batch; `-` for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with = "tasks")]
    instruction: Option<PathBuf>,
    /// The batch's name: one summary for each [default: one that follows from its tasks]
    #[arg(long, value_name = "ID")]
    batch: Option<Name>,
    /// How long to wait for reports
    #[arg(long, value_name = "DURATION", default_value = "29m", value_parser = args::duration)]
    wait: Duration,
    /// What a task's reviews must come to before it counts as done: all("approved")
    #[arg(long, value_name = "RULE")]
    accept: Option<VerdictRule>,
    /// How many reviewers each task has
    #[arg(long, value_name = "N", default_value_t = 1, requires = "accept")]
    reviewers: usize,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let batch = self.batch()?;
        let project = context.project()?;
        let spool = context.spool()?;
        let recorder = context.recorder()?;
        let durability = project.config.durability.unwrap_or_default();
        let review_dirs = project.review_dirs()?;
        let dispatcher = Dispatcher {
            spool: &spool,
            batches: Batches::new(&project.queue, &project.state, durability),
            reviews: project.reviews(),
            ends: project.task_ends(),
            clock: &SystemClock,
            recorder: &*recorder,
            actor: context.actor()?,
            review_dirs: review_dirs.clone(),
        };
        let config = &project.config;
        let usual = BatchLimits::default();
        let limits = BatchLimits {
            patience: config.dispatch_patience.map_or(usual.patience, Duration::from),
            deadline: self.wait,
            accept: self.accept.clone(),
            reviewers: self.reviewers,
            ..usual
        };
        let waiter = Waiter::new(&[vec![project.queue.join("reports")], review_dirs].concat());
        let line = WaitLine::new(format!("the reports of batch {}", batch.id), Some(self.wait));
        let told = dispatcher.collect(&batch, limits, &mut resting(&waiter))?;
        drop(line);
        print_summary(context, &batch, told.summary(), matches!(told, SummaryOutcome::Now(_)))
    }

    fn batch(&self) -> Outcome<TaskBatch> {
        let mut batch = match &self.instruction {
            Some(file) => TaskBatch::of(&read_instruction(file)?).map_err(Failure::from)?,
            None => {
                let id = batch_of(self.tasks.iter().map(String::as_str));
                TaskBatch { id: Name::new(id).map_err(Error::from)?, tasks: self.tasks.clone() }
            }
        };
        if let Some(id) = &self.batch {
            batch.id = id.clone();
        }
        Ok(batch)
    }
}
