use std::cell::Cell;
use std::time::Instant;

use ensemble_app::content::fill;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::receipt::{Receipt, ReceiptTracker};
use ensemble_app::text::age;
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::{TargetAgent, agent_pane, assigner, resting};
use ensemble_core::Error;
use ensemble_core::driver::{AssignOutcome, DeliveryOrder, Ended};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_project::overview::WatcherView;
use ensemble_team::admission::{TaskAct, is_refusal};
use serde_json::json;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::flags::{ContentFlags, WaitFlags};
use crate::printing::{AssignProgress, describe_not_ready};
use crate::{args, completion};

/// Assign a task to a ready worker, and escalate until it is taken
///
/// A worker whose hooks or server report that it is idle gets the task at once; any other is asked first (`ensemble agent
/// ping`). A task that is not taken is followed by a nudge, by the keys of its profile that reset it, and by a file for
/// the conductor. The watcher does this; where none runs, this command does. Another controller at the same worker is
/// refused (exit code 75). `--wait` counts from the delivery.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble assign worker-1 'make the tests green' --task task-001
  ensemble assign worker-1 -f task.md --task task-002 --until settled --wait 2h")]
pub(crate) struct Arguments {
    /// The worker
    #[arg(add = completion::mailboxes())]
    worker: Name,
    #[command(flatten)]
    content: ContentFlags,
    /// The task's name: assigning it again continues the current attempt [default: a
    /// new one]
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    #[command(flatten)]
    waiting: WaitFlags<AssignWait>,
    /// Always ping the worker first, which proves that its model answers
    #[arg(long)]
    ping: bool,
    /// The worker submits a plan first, and finishes only after it is approved
    #[arg(long)]
    plan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AssignWait {
    /// The worker has received it
    Acked,
    /// The worker has settled it
    Settled,
}

struct DeliveredTask {
    task: String,
    worker: Name,
    mailbox: Name,
    message: MessageId,
    attempt: u32,
    phase: u8,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let recorder = context.recorder()?;
        let mut worker = TargetAgent::find(context, &self.worker)?;
        let order = self.order(context, &queue, &mut worker)?;
        let task = order.task.clone();
        let may_begin = context.project()?.doorkeeper().check(TaskAct::TakeUp, &task, &self.worker);
        may_begin.map_err(gated)?;
        if self.plan {
            let requests = ensemble_app::asking::requests(context, &queue)?;
            requests.demand_plan(&task, &context.actor()?)?;
        }
        let (assigned, delivered_at) =
            self.deliver(context, &queue, &*recorder, (&mut worker, order))?;
        let patience = self.waiting.patience();
        let deadline = patience.and_then(|patience| delivered_at.checked_add(patience));
        let (message, attempt, phase, acked) = match assigned {
            AssignOutcome::NotReady(failure) => return Err(describe_not_ready(context, &failure)?),
            AssignOutcome::Delivered { ended, .. } => match ended {
                Ended::Acked { phase, attempt, message } => (message, attempt, phase, true),
                Ended::Abandoned { phase, attempt, message } => (message, attempt, phase, false),
                Ended::Escalated { notice, file } => {
                    let words =
                        format!("{} ({}, after phase {})", task, notice.reason, notice.phase);
                    self.print(
                        context,
                        "escalated",
                        &DeliveredTask {
                            task,
                            worker: worker.name,
                            mailbox: worker.mailbox,
                            message: notice.message,
                            attempt: notice.attempt,
                            phase: notice.phase,
                        },
                    )?;
                    let text = format!("{} has not taken {words}", self.worker);
                    return Err(Failure::refused(text)
                        .with_hint(format!("the conductor is notified: queue/{file}")));
                }
                _ => return Err(Failure::refused(format!("{task} expired before it was taken"))),
            },
        };
        let (worker, mailbox) = (worker.name, worker.mailbox);
        let phase = phase.number();
        let delivered = DeliveredTask { task, worker, mailbox, message, attempt, phase };
        if !acked {
            self.print(context, "stored", &delivered)?;
            return Err(self.late("stored"));
        }
        match self.waiting.until().unwrap_or(AssignWait::Acked) {
            AssignWait::Acked => self.print(context, "acked", &delivered),
            AssignWait::Settled => self.settle(context, &queue, &*recorder, &delivered, deadline),
        }
    }

    /// Asks and delivers. Returns when the task was stored, too, from when a wait counts.
    fn deliver(
        &self,
        context: &Context,
        queue: &ProjectQueue,
        recorder: &dyn Recorder,
        (worker, order): (&mut TargetAgent, DeliveryOrder),
    ) -> Outcome<(AssignOutcome, Instant)> {
        let (spool, project) = (context.spool()?, context.project()?);
        let (waiter, host) = (worker.waiter(context)?, queue.ladder_host(project)?);
        let (store, patience) = (queue.request_store(), self.waiting.patience());
        let (name, task) = (&self.worker, order.task.clone());
        let progress = AssignProgress { recorder, worker: name, task: &task, patience };
        let mut assigner = assigner(context, &spool, store, &progress)?;
        assigner.readiness.needs_pong = self.ping;
        let elsewhere = worker.elsewhere(queue, context.actor()?, &assigner.readiness);
        assigner.elsewhere = elsewhere.as_ref().map(|ask| ask as _);
        // A running watcher has the ladder. This is asked once the task is stored.
        let stored_at = Cell::new(None);
        let is_watched = || {
            stored_at.set(stored_at.get().or_else(|| Some(Instant::now())));
            WatcherView::of(project).runs()
        };
        let mut pane = worker.openable_pane(context)?;
        let rest = &mut resting(&waiter);
        let _line = WaitLine::new(format!("{name} to receive {task}"), patience);
        let assigned = assigner.assign(order, agent_pane(&mut pane), &host, &is_watched, rest);
        Ok((assigned.map_err(gated)?, stored_at.get().unwrap_or_else(Instant::now)))
    }

    fn order(
        &self,
        context: &Context,
        queue: &ProjectQueue,
        worker: &mut TargetAgent,
    ) -> Outcome<DeliveryOrder> {
        let content = self.content.read()?;
        let task = self.task.clone().unwrap_or_else(|| MessageId::generate().to_string());
        let kind = Name::new("task").map_err(Error::from)?;
        let mut envelope = Envelope::new(worker.mailbox.clone(), String::new()).with_kind(kind);
        envelope = context.sign(envelope)?;
        envelope.traceparent = args::trace_around();
        let envelope = fill(context, &**queue, envelope, content)?;
        let profile = worker.pane().map(|pane| pane.profile().clone());
        let config = context.project()?.config.ladder_for(profile.as_deref());
        let order = DeliveryOrder::new(task, self.worker.clone(), envelope).with_config(config);
        Ok(order.with_patience(self.waiting.patience()))
    }

    fn settle(
        &self,
        context: &Context,
        queue: &ProjectQueue,
        recorder: &dyn Recorder,
        delivered: &DeliveredTask,
        deadline: Option<Instant>,
    ) -> Outcome {
        let (mailbox, message) = (delivered.mailbox.clone(), delivered.message.clone());
        let mut tracker = ReceiptTracker::new(queue, mailbox, message, None);
        let line = WaitLine::new(
            format!("{} to settle {}", self.worker, delivered.task),
            self.waiting.patience(),
        );
        let reached = tracker.wait(Receipt::Settled, deadline);
        drop(line);
        match reached {
            Ok(Receipt::Settled) => {
                let known = queue.peek(&delivered.mailbox, &delivered.message);
                if let Ok(envelope) = known {
                    let requests = ensemble_app::asking::requests(context, queue)?;
                    let (worker, now) = (&delivered.worker, queue.request_store().now());
                    if let Some(gate) = requests.report_unplanned(&envelope, worker, now)? {
                        let task = &delivered.task;
                        let text = format!("{worker} has settled {task}, and {}", gate.advice());
                        let hint = "look at what it has done, and assign the task again if need be";
                        return Err(Failure::refused(text).with_hint(hint));
                    }
                    // On servers, the host on which it was settled has the report, and records it.
                    if queue.directory().is_some() {
                        context.project()?.task_ends().settled(&envelope, worker, recorder)?;
                    }
                }
                self.print(context, "settled", delivered)
            }
            Ok(_) => {
                self.print(context, "acked", delivered)?;
                Err(self.late("acked"))
            }
            // The process that made the message a dead letter has recorded it.
            Err(failure) => Err(failure),
        }
    }

    fn late(&self, reached: &str) -> Failure {
        let patience = age(self.waiting.patience().unwrap_or_default());
        Failure::nothing(format!("after {patience} the task is {reached}"))
    }

    fn print(&self, context: &Context, state: &str, what: &DeliveredTask) -> Outcome {
        let DeliveredTask { task, worker, mailbox, message, attempt, phase } = what;
        let object = json!({
            "id": message, "mailbox": mailbox, "state": state, "attempt": attempt,
            "phase": phase, "task": task, "task_id": task, "worker": worker,
        });
        let said = format!("{message} {state} by {worker} (attempt {attempt}, phase {phase})");
        context.out.print_answer(&object, said)
    }
}

/// A task that may not be begun now may be assigned later.
fn gated(error: Error) -> Failure {
    match is_refusal(&error) {
        true => Failure::from(error).with_exit(VerbExit::Busy),
        false => error.into(),
    }
}
