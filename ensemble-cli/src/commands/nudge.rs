use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::mail::receiving::explain_nothing;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::with_members;
use ensemble_app::worker::TargetAgent;
use ensemble_core::env::Pane as _;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome};
use serde_json::json;

use crate::completion;
use crate::context::Context;

const COUNT_MAX: usize = 100;

/// Type a hint to an agent that has mail, if that is safe now
///
/// The watcher does this by itself. Nothing is typed into a dialog, a busy agent, a person's
/// half-written line or a scrolled pane. The reason is printed instead, with exit code 75 if it may
/// pass and 1 if the pane is gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent nudge worker-1")]
pub(crate) struct Arguments {
    /// The agent
    #[arg(add = completion::mailboxes())]
    agent: Name,
}

impl Arguments {
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
