use ensemble_app::failure::Outcome;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::{TargetAgent, agent_pane, assigner, resting};
use ensemble_core::driver::ReadyOutcome;
use ensemble_core::message::Name;
use serde_json::json;

use crate::completion;
use crate::context::Context;
use crate::printing::readiness::describe_not_ready;

/// Ask a worker whether it is ready for a task
///
/// Types `AGENT_TEAM_PING WORKER ATTEMPT` into its pane and waits for the pong. After each time-out
/// it looks at the pane. If the agent's program has ended, it starts it again, as `ensemble up WORKER` does. Without an answer
/// the reason is printed on stderr as a block of fields, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent ping worker-1 && ensemble assign worker-1 -f task.md"
)]
pub(crate) struct Arguments {
    /// The worker
    #[arg(add = completion::mailboxes())]
    worker: Name,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let spool = context.spool()?;
        let recorder = context.recorder()?;
        let mut worker = TargetAgent::find(context, &self.worker)?;
        let waiter = worker.waiter(context)?;
        let queue = ProjectQueue::open(context)?;
        let mut assigner = assigner(context, &spool, &spool, &*recorder)?;
        assigner.readiness.needs_pong = true;
        let elsewhere = worker.elsewhere(&queue, context.actor()?, &assigner.readiness);
        assigner.elsewhere = elsewhere.as_ref().map(|ask| ask as _);
        let mut pane = worker.openable_pane(context)?;
        let line = WaitLine::new(format!("{} to answer the ping", self.worker), None);
        let readied = assigner.ping(&self.worker, agent_pane(&mut pane), &mut resting(&waiter))?;
        drop(line);
        match readied {
            ReadyOutcome::Ready { attempt } => context.out.print_answer(
                &json!({ "worker": self.worker, "ready": true, "attempt": attempt }),
                format!("{} is ready (ping {attempt})", self.worker),
            ),
            ReadyOutcome::NotReady(failure) => Err(describe_not_ready(context, &failure)?),
        }
    }
}
