//! Mail of Dispatch that belongs to no batch, so that no failure ends there in silence.
//!
//! | message | becomes |
//! |---|---|
//! | a report of a task of an instruction that is not settled | left for its batch, with which an earlier process may have begun |
//! | a report of a task of another batch of this process | settled: the summary includes it |
//! | a report of success | settled |
//! | any other report, a review | passed on to the conductor, then settled |
//! | `mail.returned` | settled: the dead letter has ended its attempt |
//! | anything else | left where it is |
//!
//! A message is forwarded under an id that is derived from its own, and then settled, so that a crash in between does
//! not forward it twice. Without a mailbox `conductor` it stays where it is.

use std::collections::BTreeSet;

use ensemble_core::Result;
use ensemble_core::broker::{Broker, RETURNED_TYPE};
use ensemble_core::message::{Envelope, KnownSender, MessageId, Name};
use ensemble_core::spool::{Found, State};
use ensemble_reports::contract::{self, Reading, Status, TaskReport};
use ensemble_team::driver::{INSTRUCTION_TYPE, TaskBatch};

use super::{LastRemarks, MESSAGES_MAX, settle};

const CONDUCTOR: &str = "conductor";
const REPORT_PREFIX: &str = "report.";

pub(super) struct OtherMail<'a> {
    queue: &'a dyn Broker,
    actor: &'a KnownSender,
    /// The tasks of all batches of this process.
    expected: BTreeSet<String>,
    /// Those of the batch that is worked on.
    current: BTreeSet<String>,
    remarks: LastRemarks,
}

#[derive(Debug, PartialEq, Eq)]
enum MailFate {
    Settle,
    PassOn,
    Leave,
}

impl<'a> OtherMail<'a> {
    pub(super) fn new(queue: &'a dyn Broker, actor: &'a KnownSender) -> Self {
        Self {
            queue,
            actor,
            expected: BTreeSet::new(),
            current: BTreeSet::new(),
            remarks: LastRemarks::default(),
        }
    }

    pub(super) fn expect(&mut self, batch: &TaskBatch) {
        self.expected.extend(batch.tasks.iter().cloned());
        self.current = batch.tasks.iter().cloned().collect();
    }

    pub(super) fn finish(&mut self) {
        self.current.clear();
    }

    /// Reads all that waits. Failures are tried again at the next look.
    pub(super) fn read(&mut self) {
        let failed = self.read_all().err();
        self.remarks.say_new(failed.map(|error| error.to_string()));
    }

    /// A message that cannot be read now keeps no other one from being read.
    fn read_all(&self) -> Result<()> {
        let mut mail = Vec::new();
        let actor = &self.actor.name;
        for found in self.queue.unfinished(actor, MESSAGES_MAX)? {
            match self.queue.peek(actor, &found.id) {
                Ok(envelope) => mail.push((found, envelope)),
                // It may be an instruction, whose reports are not to be read here.
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => {}
            }
        }
        let instructed = mail.iter().flat_map(|(_, envelope)| instructed(envelope)).collect();
        let mut first = Ok(());
        for (found, envelope) in &mail {
            let read = self.read_one(found, envelope, &instructed);
            first = first.and(read);
        }
        first
    }

    fn read_one(
        &self,
        found: &Found,
        envelope: &Envelope,
        instructed: &BTreeSet<String>,
    ) -> Result<()> {
        let actor = &self.actor.name;
        let is_ours = match &found.state {
            State::Queued { .. } => true,
            // An earlier process of this command was killed before it settled the message.
            State::Acked { holder, .. } => holder == actor,
            State::Settled | State::Dead => false,
        };
        let fate = self.fate(envelope, instructed);
        if !is_ours
            || fate == MailFate::Leave
            || (fate == MailFate::PassOn && !self.has_conductor()?)
        {
            return Ok(());
        }
        let lease = match &found.state {
            State::Acked { .. } => found.lease()?,
            _ => match self.queue.receive_id(actor, &found.id, actor)? {
                Some(delivery) => delivery.lease,
                None => return Ok(()),
            },
        };
        if fate == MailFate::PassOn {
            self.pass_on(envelope)?;
        }
        settle(self.queue, &lease)
    }

    fn has_conductor(&self) -> Result<bool> {
        Ok(self.queue.mailboxes()?.iter().any(|mailbox| mailbox.as_str() == CONDUCTOR))
    }

    fn fate(&self, envelope: &Envelope, instructed: &BTreeSet<String>) -> MailFate {
        let kind = envelope.kind.as_str();
        if kind == RETURNED_TYPE {
            return MailFate::Settle;
        }
        if !kind.starts_with(REPORT_PREFIX) {
            return MailFate::Leave;
        }
        let is_of = |tasks: &BTreeSet<String>| {
            envelope.task_id.as_ref().is_some_and(|task| tasks.contains(task))
        };
        if is_of(&self.current) || is_of(instructed) {
            return MailFate::Leave;
        }
        if is_of(&self.expected) || is_success(&envelope.body) {
            MailFate::Settle
        } else {
            MailFate::PassOn
        }
    }

    fn pass_on(&self, envelope: &Envelope) -> Result<()> {
        let mut copy = Envelope::new(Name::new(CONDUCTOR)?, envelope.body.clone())
            .with_kind(envelope.kind.clone())
            .with_id(MessageId::new(format!("{}.on", envelope.id))?);
        copy.task_id.clone_from(&envelope.task_id);
        copy.source.clone_from(&envelope.source);
        copy.causation_id = Some(envelope.id.to_string());
        self.queue.publish(&self.actor.sign(copy)).map(drop)
    }
}

fn instructed(envelope: &Envelope) -> Vec<String> {
    let is_instruction = envelope.kind.as_str() == INSTRUCTION_TYPE;
    let read = is_instruction.then(|| super::read(envelope).ok()).flatten();
    read.map_or_else(Vec::new, |(batch, _)| batch.tasks)
}

/// Whether it is a report of success; what cannot be read is none.
fn is_success(body: &str) -> bool {
    match contract::read_as::<TaskReport>(body, "report.yaml".as_ref()) {
        Ok(Reading::Whole(report)) => report.status == Status::Success,
        Ok(Reading::Foreign) | Err(_) => false,
    }
}
