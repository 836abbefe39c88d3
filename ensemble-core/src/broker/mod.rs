//! A whole queue, for tools: a [`Transport`] that can also manage mailboxes and dead letters, peek
//! at messages without receiving them, and observe leases.
//!
//! | queue | is in | a change of state is |
//! |---|---|---|
//! | [`Spool`] | a directory | a rename |
//! | `NatsTransport` of `ensemble-nats` | a JetStream stream | a compare-and-set |
//!
//! Both have the same contract, and one test suite checks both.

use crate::env::{Delivery, Lease, Transport};
use crate::error::allow_gone;
use crate::event_log::Recorder;
use crate::leases::LeaseTable;
use crate::mailboxes::visit_mailboxes;
use crate::message::{Attachment, Envelope, MessageId, Name};
use crate::spool::{DeadLetter, FormerHolding, Found, Settings, Spool, State};
use crate::{Error, Result};

mod end;
mod leave;

pub use end::{EndedMessage, TaskEnd, WITHDRAWN_TYPE};
pub use leave::{HandedBack, RETURNED_TYPE, UnreadMail, returned};

/// A queue with its mailboxes. Calls block as those of [`Transport`] do. Threads share a queue by reference.
pub trait Broker: Transport + LeaseTable + Send + Sync {
    fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()>;

    fn ensure_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        match self.add_mailbox(name, settings) {
            Err(Error::MailboxExists { .. }) => Ok(()),
            added => added,
        }
    }

    fn mailboxes(&self) -> Result<Vec<Name>>;

    /// The mailbox that an agent reads: that of its name, if the queue's addresses know no other.
    fn mailbox_of(&self, agent: &Name) -> Name {
        agent.clone()
    }

    fn settings(&self, mailbox: &Name) -> Result<Settings>;

    /// Where a message is; `None` if it is not in this mailbox.
    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>>;

    fn mailboxes_with(&self, _id: &MessageId) -> Result<Vec<Name>> {
        self.mailboxes()
    }

    fn find(&self, id: &MessageId) -> Result<Found> {
        Found::find_in(self.mailboxes_with(id)?, id, |mailbox| self.state(mailbox, id))
    }

    /// Takes one particular waiting message for `holder`; `None` if it does not wait any more.
    fn receive_id(&self, mailbox: &Name, id: &MessageId, holder: &Name)
    -> Result<Option<Delivery>>;

    /// As [`Broker::receive_id`], to settle work that is done: an agent that may begin nothing may do that, too. A
    /// plan that is not approved still keeps it back.
    fn receive_done(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>>;

    /// How many deliveries of a message do not count as attempts: those before it was redriven.
    fn attempts_before(&self, mailbox: &Name, id: &MessageId) -> Result<u64>;

    /// Reads a message in any state, without changing it.
    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope>;

    /// The first `limit` messages that are held or wait, in the order of their receiving.
    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>>;

    /// How many messages of a mailbox could be received now, counted up to `limit`.
    fn count_due(&self, mailbox: &Name, limit: usize) -> Result<usize>;

    /// The first `limit` messages that an agent could receive now: none that a plan gate or a standstill keeps
    /// from it.
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>>;

    fn restate_dead(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()>;

    /// Gives up a held message, with a reason for the reader of dead letters.
    fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()>;

    /// All dead letters of a mailbox, oldest first.
    fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>>;

    fn note_told(&self, letter: &DeadLetter) -> Result<()>;

    /// Gives a dead letter back to the queue with all its attempts.
    fn redrive(&self, mailbox: &Name, id: &MessageId) -> Result<()>;

    fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()>;

    /// Makes a waiting message a dead letter.
    fn set_aside(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()>;

    /// Stores a message that is not to be received before `due`, in milliseconds since the Unix
    /// epoch. One that exists stays as it is.
    fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()>;

    /// Stores a dead letter. One that exists stays as it is.
    fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()>;

    fn attach(&self, content: &[u8]) -> Result<Attachment>;

    fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>>;

    /// Returns everything that an agent holds to the queues, in all mailboxes, and returns the
    /// number of messages. A mailbox that cannot be read is skipped, because the leases in it
    /// expire anyway.
    fn release_all(&self, agent: &Name, reason: &str) -> Result<u64> {
        let mut released = 0;
        let bad = visit_mailboxes(self.mailboxes()?, |name| {
            let held = self.observe(name)?.into_iter().map(|observed| observed.lease);
            for lease in held.filter(|lease| lease.holder == *agent) {
                released += u64::from(self.take_back(&lease, reason)?);
            }
            Ok(())
        })?;
        let retried = bad.into_iter().find(|bad| bad.error.is_transient());
        retried.map_or(Ok(released), |bad| Err(bad.error))
    }

    /// Cleans up after an agent that leaves: returns everything it holds, in all mailboxes, and
    /// disposes of the unread mail in its own `mailbox`. `reason` is what the dead letters and the
    /// senders will show. A repeated call is harmless.
    fn hand_back(
        &self,
        agent: &Name,
        mailbox: &Name,
        unread: UnreadMail,
        reason: &str,
    ) -> Result<HandedBack> {
        leave::hand_back(self, (agent, mailbox), unread, reason)
    }

    /// Takes a message away from a holder that is known to have ended. It can be received again, or
    /// becomes a dead letter after its last attempt, with the reason. `false` if the lease has ended.
    fn take_back(&self, lease: &Lease, reason: &str) -> Result<bool>;

    /// Unfinished messages of a mailbox whose delivery to an agent has ended, with that agent. The mailbox's own
    /// agent may be left out.
    fn former_holders(&self, mailbox: &Name) -> Result<Vec<FormerHolding>>;

    /// The task that the author of a report means where it has no open message of exactly this task: the only one of
    /// its open tasks that [`is_same_task`](crate::message::fields::is_same_task) as this.
    fn meant_task(&self, task: &str, author: &Name) -> Result<Option<String>> {
        end::meant_task(self, task, author)
    }

    /// Settles the messages of a task that an agent has reported on, in all mailboxes, and notifies
    /// any other agent that now holds one. A repeated call is harmless.
    fn end_task(&self, end: &TaskEnd<'_>, recorder: &dyn Recorder) -> Result<Vec<EndedMessage>> {
        end::end_task(self, end, recorder)
    }
}

impl Broker for Spool {
    crate::forward_calls! {
        add_mailbox(name: &Name, settings: &Settings) -> ();
        mailboxes() -> Vec<Name>;
        settings(mailbox: &Name) -> Settings;
        state(mailbox: &Name, id: &MessageId) -> Option<State>;
        receive_id(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        receive_done(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        attempts_before(mailbox: &Name, id: &MessageId) -> u64;
        peek(mailbox: &Name, id: &MessageId) -> Envelope;
        unfinished(mailbox: &Name, limit: usize) -> Vec<Found>;
        due_ids_for(mailbox: &Name, agent: &Name, limit: usize) -> Vec<MessageId>;
        dead_letter(lease: &Lease, reason: &str) -> ();
        restate_dead(mailbox: &Name, id: &MessageId, reason: &str) -> ();
        dead_letters(mailbox: &Name) -> Vec<DeadLetter>;
        note_told(letter: &DeadLetter) -> ();
        redrive(mailbox: &Name, id: &MessageId) -> ();
        drop_dead(mailbox: &Name, id: &MessageId) -> ();
        attach(content: &[u8]) -> Attachment;
        take_back(lease: &Lease, reason: &str) -> bool;
        former_holders(mailbox: &Name) -> Vec<FormerHolding>;
    }

    fn mailbox_of(&self, agent: &Name) -> Name {
        self.options().addresses.as_ref().map_or_else(|| agent.clone(), |of| of(agent))
    }
    fn count_due(&self, mailbox: &Name, limit: usize) -> Result<usize> {
        Ok(self.due_ids(mailbox, limit)?.len())
    }
    fn set_aside(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()> {
        self.dead_letter_waiting(mailbox, id, reason)
    }
    fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()> {
        self.publish_due(envelope, due).map(drop)
    }
    fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()> {
        self.publish(envelope)?;
        let state = self.state(&envelope.to, &envelope.id)?;
        if !matches!(state, Some(State::Queued { epoch: 0, not_before: 0 })) {
            return Ok(());
        }
        allow_gone(self.dead_letter_waiting(&envelope.to, &envelope.id, reason)).map(drop)
    }
    fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>> {
        self.read_attachment(attachment)
    }
}
