use ensemble_app::diagnostics::say;
use ensemble_app::mail::receiving::explain_nothing;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::with_members;
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::{TargetAgent, agent_pane, assigner, resting};
use ensemble_core::driver::{PongBox, ReadyOutcome};
use ensemble_core::env::Pane as _;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome};
use ensemble_core::proto::ready::{ATTEMPTS_LIMIT, PongToken};
use serde_json::json;

use crate::completion;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::printing::describe_not_ready;

/// Ask a worker whether it is ready for a task
///
/// Types `AGENT_TEAM_PING WORKER ATTEMPT` into its pane and waits for the pong. After each time-out
/// it looks at the pane. If the agent's program has ended, it starts it again, as `ensemble up WORKER` does. Without an answer
/// the reason is printed on stderr as a block of fields, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent ping worker-1 && ensemble assign worker-1 -f task.md"
)]
pub(crate) struct PingWorker {
    /// The worker
    #[arg(add = completion::mailboxes())]
    worker: Name,
}

impl PingWorker {
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

/// Answer `AGENT_TEAM_PING WORKER ATTEMPT`: report that a worker is ready
///
/// Only the agent itself can answer, and only the ping that is being waited for. The answer is the file
/// `.ensemble/ready/<WORKER>@<ATTEMPT>.pong`, so `touch` does it as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent pong worker-1 2")]
pub(crate) struct AnswerPing {
    /// The worker, as the ping has named it
    #[arg(add = completion::mailboxes())]
    worker: Name,
    /// The attempt, as the ping has named it
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(ATTEMPTS_LIMIT)))]
    attempt: u8,
}

impl AnswerPing {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { worker, attempt } = self;
        TargetAgent::find(context, &worker)?;
        if let Some(other) = context.agent()?.filter(|agent| *agent != worker) {
            let text = format!("the ping asks {worker}, and you are {other}");
            return Err(Failure::refused(text).with_hint("only the agent that is asked can answer"));
        }
        // A pong needs the same proof of the agent's name as any command.
        context.check_name(&worker)?;
        let pongs = PongBox::open(context.project()?.ready())?;
        let pong = PongToken { worker, attempt };
        match pongs.asked(&pong.worker)? {
            Some(ping) if ping.attempt == attempt => {}
            Some(ping) => say(&format!("note: the ping that is waited for is {ping}")),
            None => say(&format!("note: no handshake asks {} at the moment", pong.worker)),
        }
        pongs.answer(&pong)?;
        let object = json!({ "worker": pong.worker, "attempt": attempt });
        context.out.print_answer(&object, &pong)
    }
}

const COUNT_MAX: usize = 100;

/// Type a hint to an agent that has mail, if that is safe now
///
/// The watcher does this by itself. Nothing is typed into a dialog, a busy agent, a person's
/// half-written line or a scrolled pane. The reason is printed instead, with exit code 75 if it may
/// pass and 1 if the pane is gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent nudge worker-1")]
pub(crate) struct NudgeAgent {
    /// The agent
    #[arg(add = completion::mailboxes())]
    agent: Name,
}

impl NudgeAgent {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let mut worker = TargetAgent::find(context, &self.agent)?;
        let (agent, mailbox) = (self.agent, worker.mailbox.clone());
        let queue = ProjectQueue::open(context)?;
        let waiting = queue.due_ids_for(&mailbox, &agent, COUNT_MAX)?.len();
        if waiting == 0 {
            return Err(explain_nothing(context, &queue, (&mailbox, &agent))?);
        }
        let pane = worker.pane_required().map_err(|failure| match queue.directory() {
            Some(_) => failure,
            None => failure.with_hint("the watcher of the host that has its pane nudges it"),
        })?;
        let text = pane.profile().program().nudge_text(&mailbox, waiting, waiting >= COUNT_MAX);
        let outcome = pane.nudge(&text)?;
        let id = pane.binding().id.clone();
        let (deferral, text_stands) = match outcome {
            NudgeOutcome::Sent => (None, false),
            NudgeOutcome::TextOnly { deferral } => (Some(deferral), true),
            NudgeOutcome::Refused { deferral } => (Some(deferral), false),
        };
        let (kind, data) = match &deferral {
            None => (types::NUDGE_SENT, json!({})),
            Some(why) => (
                types::NUDGE_DEFERRED,
                json!({ "reason": why.word(), "detail": why.to_string(), "waiting": waiting }),
            ),
        };
        let data = with_members(data, &json!({ "agent": agent, "mailbox": mailbox, "pane": id }));
        context.recorder()?.record(kind, agent.as_str(), data);
        if context.out.is_json() {
            context.out.object(&json!({
                "agent": agent, "mailbox": mailbox, "pane": id, "sent": deferral.is_none(),
                "reason": deferral.as_ref().map(Deferral::word),
                "detail": deferral.as_ref().map(ToString::to_string),
                "text_stands": text_stands,
            }))?;
        }
        match deferral {
            None if context.out.is_json() => Ok(()),
            None => {
                context.out.line(format!("notified {agent} in pane {id} that {mailbox} has mail"))
            }
            Some(why) => {
                let exit = if why.is_permanent() { VerbExit::Failed } else { VerbExit::Busy };
                Err(Failure::new(exit, format!("{agent} was not nudged: {} ({why})", why.word())))
            }
        }
    }
}
