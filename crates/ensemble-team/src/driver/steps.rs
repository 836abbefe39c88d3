//! Step queues over mailboxes: a prompt is a message to the step's agent, and a report settles it
//! (seed 003, "Execution Logic").
//!
//! ```text
//! round():   leases -> prompts that a crash has left out -> next steps -> prompts -> notices
//! submit():  the report -> the prompt's message is settled -> notices
//! ```
//!
//! The database is the truth, and mail follows. A step is taken first. Its prompt is published
//! under an id that follows from step and epoch. Then the database notes which message that is.
//! If a process is killed in between, the next round of any process does what is missing.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::steps::{
    ClaimOutcome, ClaimRequest, ClaimedStep, Completion, NoStep, StepKey, StepStore, SubmittedStep,
};
use ensemble_core::broker::Broker;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{Digest, Envelope, KnownSender, MessageId, Name};
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::spool::State;
use ensemble_core::{Error, Result};

pub const STEP_TYPE: &str = "step";

pub struct StepDriver<'a> {
    pub store: &'a StepStore,
    pub mail: &'a dyn Broker,
    pub recorder: &'a dyn Recorder,
    pub actor: KnownSender,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SentPrompt {
    #[serde(flatten)]
    pub step: ClaimedStep,
    pub message: MessageId,
}

/// What a round has done, and why it did no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRound {
    pub prompted: Vec<SentPrompt>,
    /// Steps whose workers had fallen silent.
    pub returned: Vec<StepKey>,
    pub nothing: NoStep,
    /// When the next round is due although nothing has changed: a lease may end then. At most 30 s.
    pub next_in: Duration,
    /// Why a prompt, or a notice, perhaps of another task, is not sent yet.
    pub unsent: Option<String>,
}

impl StepDriver<'_> {
    /// Hands out all steps of a task that can be handed out, each to its agent's mailbox. Call it again when the
    /// store has changed ([`StepStore::data_version`]), and after [`StepRound::next_in`].
    ///
    /// # Errors
    /// [`StepError::NoTask`](crate::steps::StepError::NoTask) if there is no such task; an agent has no mailbox; the
    /// disk failed. Steps handed out before the error stay so, and the next call continues from there.
    pub fn round(&self, task_id: &str) -> Result<StepRound> {
        let observed = self.store.observe()?;
        let (mut prompted, mut unsent) = (Vec::new(), None);
        let mut send = |step| {
            match self.prompt(step) {
                Ok(sent) => prompted.push(sent),
                // The other agents get theirs, and the next round tries again.
                Err(error @ (Error::Full { .. } | Error::Quota { .. })) => unsent = Some(error),
                Err(error) => return Err(error),
            }
            Ok(())
        };
        for (step, noted) in self.store.handed(task_id)? {
            if noted.is_none() && self.mail.settings(&self.mail.mailbox_of(&step.agent)).is_ok() {
                send(step)?;
            }
        }
        let nothing = loop {
            match self.store.claim_step(&ClaimRequest::for_task(task_id))? {
                ClaimOutcome::Handed(step) => send(*step)?,
                ClaimOutcome::Nothing(nothing) => break nothing,
            }
        };
        let unnoticed = self.store.post_notices(self.mail).err();
        // Include the leases of the steps that were just handed out.
        let next =
            if prompted.is_empty() { observed.next_in } else { self.store.observe()?.next_in };
        let next_in = next.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL);
        let unsent = unsent.or(unnoticed).map(|error| error.to_string());
        Ok(StepRound { prompted, returned: observed.returned, nothing, next_in, unsent })
    }

    /// Stores a worker's report ([`StepStore::submit`]), settles the message with the prompt, and sends the
    /// orchestrator its notices. Doing it again changes nothing.
    pub fn submit(
        &self,
        completion: &Completion,
        by: &Name,
        epoch: Option<u64>,
    ) -> Result<SubmittedStep> {
        let submitted = self.store.submit(completion, by, epoch)?;
        let tidied = self.tidy(&submitted, by);
        let told = self.store.post_notices(self.mail);
        if let Some(error) = [tidied.err(), told.err()].into_iter().flatten().next() {
            let data = json!({
                "task_id": submitted.key.task_id, "step_index": submitted.key.step_index,
                "error": error.to_string(),
            });
            self.recorder.record(types::STEP_UNTOLD, by.as_str(), data);
        }
        Ok(submitted)
    }

    fn prompt(&self, step: ClaimedStep) -> Result<SentPrompt> {
        let prompt = self.store.prompt(&step)?;
        let message = prompt_id(&step)?;
        self.supersede(&step, &message)?;
        let mailbox = self.mail.mailbox_of(&step.agent);
        let mut envelope = Envelope::new(mailbox.clone(), prompt.text.clone())
            .with_id(message.clone())
            .with_kind(Name::new(STEP_TYPE)?)
            .with_task(step.key.task_id.clone())
            .with_attempt(step.attempt);
        envelope = self.actor.sign(envelope);
        if matches!(envelope.encode(), Err(Error::TooLarge { .. })) {
            envelope = self.shortened(envelope, &prompt.text)?;
        }
        match self.mail.publish(&envelope) {
            // A conflict was published before a crash, with files as they were then.
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        self.store.note_prompt(&step, Some(message.as_str()), &prompt)?;
        let data = json!({
            "task_id": step.key.task_id, "step_index": step.key.step_index,
            "attempt": step.attempt, "epoch": step.epoch, "id": message,
            "mailbox": mailbox, "prompt_sha256": prompt.sha256,
        });
        self.recorder.record(types::STEP_PROMPTED, self.actor.name.as_str(), data);
        Ok(SentPrompt { step, message })
    }

    fn shortened(&self, mut envelope: Envelope, text: &str) -> Result<Envelope> {
        let attachment = self.mail.attach(text.as_bytes())?;
        let (sha256, bytes) = (&attachment.sha256, attachment.bytes);
        envelope.body = format!("attachments/{sha256} has the prompt ({bytes} bytes).\n");
        Ok(envelope.with_attachment(attachment))
    }

    /// Buries the prompts of earlier hand-outs, so that no agent works from one.
    fn supersede(&self, step: &ClaimedStep, by: &MessageId) -> Result<()> {
        let reason = format!("superseded by {by}");
        for run in self.store.runs(&step.key)? {
            let Some(message) = run.prompt_message.filter(|m| m != by.as_str()) else { continue };
            let message = MessageId::new(message)?;
            let mailbox = self.mail.mailbox_of(&run.agent);
            let retired = match self.mail.state(&mailbox, &message)? {
                Some(State::Queued { .. }) => self.mail.set_aside(&mailbox, &message, &reason),
                Some(State::Acked { holder, epoch }) => {
                    let lease = ensemble_core::env::Lease { mailbox, id: message, holder, epoch };
                    self.mail.dead_letter(&lease, &reason)
                }
                Some(State::Settled | State::Dead) | None => Ok(()),
            };
            match retired {
                // It has moved in the meantime; its epoch fences the holder.
                Ok(()) | Err(Error::NoMessage { .. } | Error::LeaseLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tidy(&self, submitted: &SubmittedStep, by: &Name) -> Result<()> {
        let Some(message) = &submitted.prompt_message else { return Ok(()) };
        let (message, mailbox) = (MessageId::new(message)?, self.mail.mailbox_of(by));
        let lease = match self.mail.state(&mailbox, &message)? {
            Some(State::Acked { holder, epoch }) if holder == *by => {
                ensemble_core::env::Lease { mailbox, id: message, holder, epoch }
            }
            // Read in another way than by receiving it.
            Some(State::Queued { .. }) => match self.mail.receive_done(&mailbox, &message, by)? {
                Some(delivery) => delivery.lease,
                None => return Ok(()),
            },
            Some(State::Acked { .. } | State::Settled | State::Dead) | None => return Ok(()),
        };
        self.mail.settle(&lease)
    }
}

fn prompt_id(step: &ClaimedStep) -> Result<MessageId> {
    let (index, epoch) = (step.key.step_index.to_string(), step.epoch.to_string());
    let (task_id, since) = (step.key.task_id.as_bytes(), step.queue_created_at.as_bytes());
    let parts = [task_id, since, index.as_bytes(), epoch.as_bytes()];
    Ok(MessageId::new(format!("s-{}.{index}.{epoch}", Digest::of_parts(&parts).short(24)))?)
}
