//! A whole queue, for tools: a [`Transport`] that can also manage mailboxes and dead letters, peek
//! at messages without receiving them, and observe leases.
//!
//! | queue | is in | a change of state is |
//! |---|---|---|
//! | [`Spool`] | a directory | a rename |
//! | `NatsTransport` of `ensemble-nats` | a JetStream stream | a compare-and-set |
//!
//! Both have the same contract, and one test suite checks both.
//!
//! ```
//! use ensemble_core::broker::Broker;
//! use ensemble_core::message::{Envelope, Name};
//! use ensemble_core::spool::{SpoolOptions, Spool};
//!
//! fn hand_over(queue: &dyn Broker, to: &Name) -> ensemble_core::Result<()> {
//!     queue.add_mailbox(to, &Default::default())?;
//!     queue.publish(&Envelope::new(to.clone(), "count the lines of src/\n"))?;
//!     assert_eq!(queue.unfinished(to, 10)?.len(), 1);
//!     Ok(())
//! }
//!
//! let home = tempfile::tempdir()?;
//! let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default())?;
//! hand_over(&spool, &Name::new("worker-1")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::env::{Delivery, Lease, Transport};
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
    /// Creates a mailbox.
    ///
    /// # Errors
    /// [`crate::Error::MailboxExists`], or the settings are out of their limits.
    fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()>;

    /// Creates a mailbox unless there is one.
    ///
    /// # Errors
    /// As for [`Self::add_mailbox`].
    fn ensure_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        match self.add_mailbox(name, settings) {
            Err(Error::MailboxExists { .. }) => Ok(()),
            added => added,
        }
    }

    /// All mailboxes by name.
    fn mailboxes(&self) -> Result<Vec<Name>>;

    /// The settings of a mailbox.
    ///
    /// # Errors
    /// The mailbox is unknown or its settings cannot be read.
    fn settings(&self, mailbox: &Name) -> Result<Settings>;

    /// Where a message is; `None` if it is not in this mailbox.
    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>>;

    /// The mailboxes in which a message with this id may be.
    fn mailboxes_with(&self, _id: &MessageId) -> Result<Vec<Name>> {
        self.mailboxes()
    }

    /// Finds a message by its id in any mailbox.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`], or [`crate::Error::Ambiguous`] if several mailboxes have it.
    fn find(&self, id: &MessageId) -> Result<Found> {
        Found::find_in(self.mailboxes_with(id)?, id, |mailbox| self.state(mailbox, id))
    }

    /// Takes one particular waiting message for `holder`; `None` if it does not wait any more.
    ///
    /// # Errors
    /// As for [`Transport::receive`]; [`GatedTask`](crate::requests::GatedTask) if its task waits for the approval of a plan.
    fn receive_id(&self, mailbox: &Name, id: &MessageId, holder: &Name)
    -> Result<Option<Delivery>>;

    /// Reads a message in any state, without changing it.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if it is not in this mailbox.
    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope>;

    /// The first `limit` messages that are held or wait, in the order of their receiving.
    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>>;

    /// How many messages of a mailbox could be received now, counted up to `limit`.
    fn count_due(&self, mailbox: &Name, limit: usize) -> Result<usize>;

    /// The first `limit` messages that an agent could receive now: none that a plan gate or a standstill keeps
    /// from it.
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>>;

    /// Replaces the reason of a dead letter.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if it is not among the dead letters.
    fn restate_dead(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()>;

    /// Gives up a held message, with a reason for the reader of dead letters.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`] if the message is no longer held under this lease.
    fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()>;

    /// All dead letters of a mailbox, oldest first.
    fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>>;

    /// Notes that the sender of a dead letter was notified.
    fn note_told(&self, letter: &DeadLetter) -> Result<()>;

    /// Gives a dead letter back to the queue with all its attempts.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if it is not among the dead letters.
    fn redrive(&self, mailbox: &Name, id: &MessageId) -> Result<()>;

    /// Removes a dead letter for good.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if it is not among the dead letters.
    fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()>;

    /// Makes a waiting message a dead letter.
    ///
    /// # Errors
    /// [`Error::NoMessage`] if it does not wait any more.
    fn set_aside(&self, mailbox: &Name, id: &MessageId, reason: &str) -> Result<()>;

    /// Stores a message that is not to be received before `due`, in milliseconds since the Unix
    /// epoch. One that exists stays as it is.
    ///
    /// # Errors
    /// As for publishing: [`Error::Conflict`] if the id already names other content, in any state.
    fn restore_delayed(&self, envelope: &Envelope, due: u64) -> Result<()>;

    /// Stores a dead letter. One that exists stays as it is.
    ///
    /// # Errors
    /// As for publishing: [`Error::Conflict`] if the id already names other content, in any state.
    fn restore_dead(&self, envelope: &Envelope, reason: &str) -> Result<()>;

    /// Stores content for a message that will name it.
    ///
    /// # Errors
    /// It has more than 256 MiB, or the medium failed.
    fn attach(&self, content: &[u8]) -> Result<Attachment>;

    /// Reads content that a message names.
    ///
    /// # Errors
    /// It is missing or altered, or the medium failed.
    fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>>;

    /// Returns everything that an agent holds to the queues, in all mailboxes, and returns the
    /// number of messages. A mailbox that cannot be read is skipped, because the leases in it
    /// expire anyway.
    ///
    /// # Errors
    /// The mailboxes cannot be listed, or the same may succeed later, as on a full disk.
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
    ///
    /// # Errors
    /// The mailbox is unknown, a notice could not be stored, or the medium failed.
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

    /// Settles the messages of a task that an agent has reported on, in all mailboxes, and notifies
    /// any other agent that now holds one. A repeated call is harmless.
    ///
    /// # Errors
    /// A mailbox cannot be read, a message cannot be settled, or its admission refuses.
    ///
    /// ```
    /// # use ensemble_core::{broker::{Broker, TaskEnd}, message::{Envelope, Name}, spool::{SpoolOptions, Spool}};
    /// # use ensemble_core::event_log::NullRecorder;
    /// # let home = tempfile::tempdir()?;
    /// # let spool = Spool::create(home.path(), SpoolOptions::default())?;
    /// let worker = Name::new("worker-1")?;
    /// spool.add_mailbox(&worker, &Default::default())?;
    /// spool.publish(&Envelope::new(worker.clone(), "count the lines").with_task("task-7"))?;
    /// let end = TaskEnd { task: "task-7", author: &worker, written_at: None, attempt: None, only_in: None };
    /// assert_eq!(spool.end_task(&end, &NullRecorder)?.len(), 1);
    /// assert!(spool.receive(&worker, &worker)?.is_none(), "it is not handed out any more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        match self.dead_letter_waiting(&envelope.to, &envelope.id, reason) {
            Err(Error::NoMessage { .. }) => Ok(()),
            other => other,
        }
    }
    fn attached(&self, attachment: &Attachment) -> Result<Vec<u8>> {
        self.read_attachment(attachment)
    }
}
