//! Telling agents of their prompts where no watcher does: again, until it could be done or is not needed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::worker::TargetAgent;
use ensemble_core::broker::Broker;
use ensemble_core::env::Pane as _;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::pane::{Deferral, NudgeOutcome};
use ensemble_core::spool::State;
use ensemble_team::driver::SentPrompt;
use ensemble_team::steps::StepStore;

use crate::context::{Context, Failure, Outcome};
use ensemble_project::overview::WatcherView;

/// How soon a deferred nudge is tried again: the agent was busy, or a person typed there.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct OwedNudges {
    owed: BTreeMap<Name, OwedNudge>,
}

#[derive(Debug)]
struct OwedNudge {
    message: MessageId,
    /// The last obstacle that was printed; each reason is printed once.
    said: String,
}

impl OwedNudges {
    /// Sends the nudges that a killed driver may have missed.
    pub(super) fn resume(&mut self, store: &StepStore, mail: &dyn Broker, task: &str) -> Outcome {
        for step in store.steps(task)? {
            let Some(holder) = step.holder else { continue };
            let runs = store.runs(&step.key)?;
            let message = runs.last().and_then(|run| run.prompt_message.as_deref());
            if let Some(message) = message
                && let Ok(message) = MessageId::new(message)
            {
                self.owe(holder, message);
            }
        }
        self.owed.retain(|agent, owed| waits(mail, agent, &owed.message));
        Ok(())
    }

    pub(super) fn prompted(&mut self, prompted: &SentPrompt) {
        self.owe(prompted.step.agent.clone(), prompted.message.clone());
    }

    fn owe(&mut self, agent: Name, message: MessageId) {
        self.owed.insert(agent, OwedNudge { message, said: String::new() });
    }

    /// Nudges every agent that can be nudged. Returns when to try again.
    pub(super) fn drive(
        &mut self,
        context: &Context,
        mail: &dyn Broker,
    ) -> Outcome<Option<Instant>> {
        if self.owed.is_empty() {
            return Ok(None);
        }
        if WatcherView::of(context.project()?).holder.is_some() {
            // It reports new mail by itself, of this, too.
            self.owed.clear();
        }
        self.owed.retain(|agent, owed| {
            if !waits(mail, agent, &owed.message) {
                return false;
            }
            let why = match nudge(context, agent) {
                Ok(None) | Err(Failure::Block { .. } | Failure::ClosedPipe) => return false,
                Ok(Some(deferral)) => deferral.to_string(),
                Err(Failure::Told { text, .. }) => text,
            };
            if owed.said != why {
                say(&format!("{agent} is not nudged yet: {why}"));
                owed.said = why;
            }
            true
        });
        Ok((!self.owed.is_empty()).then(|| Instant::now() + RETRY))
    }
}

fn waits(mail: &dyn Broker, mailbox: &Name, message: &MessageId) -> bool {
    matches!(mail.state(mailbox, message), Ok(Some(State::Queued { .. })))
}

/// Why it could not be nudged now. An agent without a pane will find its mail.
fn nudge(context: &Context, agent: &Name) -> Outcome<Option<Deferral>> {
    let mut worker = TargetAgent::find(context, agent)?;
    let mailbox = worker.mailbox.clone();
    let Some(pane) = worker.pane() else { return Ok(None) };
    let text = pane.profile().program().nudge_text(&mailbox, 1, false);
    Ok(match pane.nudge(&text)? {
        NudgeOutcome::Sent => None,
        NudgeOutcome::TextOnly { deferral } | NudgeOutcome::Refused { deferral } => Some(deferral),
    })
}
