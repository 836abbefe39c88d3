//! A whole queue, for tools: what a [`Transport`] is to the machines, and beside it mailboxes,
//! dead letters, looking without taking, and what an observer of leases needs.
//!
//! | queue | lies in | a change of state is |
//! |---|---|---|
//! | [`Spool`] | a directory | a rename |
//! | `nats::NatsTransport` (feature `nats`) | a JetStream stream | a compare-and-set |
//!
//! Both keep the same contract, and one suite of tests holds them to it.
//!
//! ```
//! use ensemble_core::broker::Broker;
//! use ensemble_core::message::{Envelope, Name};
//! use ensemble_core::spool::{Options, Spool};
//!
//! fn hand_over(queue: &dyn Broker, to: &Name) -> ensemble_core::Result<()> {
//!     queue.add_mailbox(to, &Default::default())?;
//!     queue.publish(&Envelope::new(to.clone(), "count the lines of src/\n"))?;
//!     assert_eq!(queue.unfinished(to, 10)?.len(), 1);
//!     Ok(())
//! }
//!
//! let home = tempfile::tempdir()?;
//! let spool = Spool::create(&home.path().join("queue"), Options::default())?;
//! hand_over(&spool, &Name::new("worker-1")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::env::{Lease, Transport};
use crate::message::{Envelope, MessageId, Name};
use crate::spool::{DeadLetter, Found, Observed, Settings, Spool, State};
use crate::{Error, Result};

/// A queue with its mailboxes. Calls block as those of [`Transport`] do.
pub trait Broker: Transport {
    /// Creates a mailbox.
    ///
    /// # Errors
    /// [`crate::Error::MailboxExists`], or the settings are out of their limits.
    fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()>;

    /// All mailboxes by name.
    ///
    /// # Errors
    /// The medium failed.
    fn mailboxes(&self) -> Result<Vec<Name>>;

    /// What is set for a mailbox.
    ///
    /// # Errors
    /// The mailbox is unknown or its settings cannot be read.
    fn settings(&self, mailbox: &Name) -> Result<Settings>;

    /// Where a message is; `None` if it is not in this mailbox.
    ///
    /// # Errors
    /// The mailbox is unknown or the medium failed.
    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>>;

    /// Finds a message by its id in any mailbox.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`], or [`crate::Error::Ambiguous`] if several mailboxes have it.
    fn find(&self, id: &MessageId) -> Result<Found> {
        let mut found = Vec::new();
        for mailbox in self.mailboxes()? {
            if let Some(state) = self.state(&mailbox, id)? {
                found.push(Found::new(mailbox, id.clone(), state));
            }
        }
        match found.len() {
            0 => Err(Error::NoMessage { id: id.to_string(), place: "in any mailbox".to_owned() }),
            1 => Ok(found.remove(0)),
            _ => Err(Error::Ambiguous {
                id: id.to_string(),
                mailboxes: found.into_iter().map(|f| f.mailbox.into()).collect(),
            }),
        }
    }

    /// Reads a message in whatever state it is, without changing it.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if it is not in this mailbox.
    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope>;

    /// The first `limit` messages that are held or wait, in the order of their receiving.
    ///
    /// # Errors
    /// The mailbox is unknown or the medium failed.
    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>>;

    /// Gives a held message up, with a reason for whoever looks at it.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`] if the message is no longer held under this lease.
    fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()>;

    /// All dead letters of a mailbox, oldest first.
    ///
    /// # Errors
    /// The mailbox is unknown or the medium failed.
    fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>>;

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

    /// The held messages, for an observer of leases ([`crate::proto::lease`]).
    ///
    /// # Errors
    /// The mailbox is unknown or the medium failed.
    fn observe(&self, mailbox: &Name) -> Result<Vec<Observed>>;

    /// Takes a message away from a holder that has fallen silent; `false` if the holder was
    /// quicker.
    ///
    /// # Errors
    /// The mailbox is unknown or the medium failed.
    fn expire(&self, observed: &Observed) -> Result<bool>;
}

impl Broker for Spool {
    fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        Self::add_mailbox(self, name, settings)
    }
    fn mailboxes(&self) -> Result<Vec<Name>> {
        Self::mailboxes(self)
    }
    fn settings(&self, mailbox: &Name) -> Result<Settings> {
        Self::settings(self, mailbox)
    }
    fn state(&self, mailbox: &Name, id: &MessageId) -> Result<Option<State>> {
        Self::state(self, mailbox, id)
    }
    fn peek(&self, mailbox: &Name, id: &MessageId) -> Result<Envelope> {
        Self::peek(self, mailbox, id)
    }
    fn unfinished(&self, mailbox: &Name, limit: usize) -> Result<Vec<Found>> {
        Self::unfinished(self, mailbox, limit)
    }
    fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<()> {
        Self::dead_letter(self, lease, reason)
    }
    fn dead_letters(&self, mailbox: &Name) -> Result<Vec<DeadLetter>> {
        Self::dead_letters(self, mailbox)
    }
    fn redrive(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        Self::redrive(self, mailbox, id)
    }
    fn drop_dead(&self, mailbox: &Name, id: &MessageId) -> Result<()> {
        Self::drop_dead(self, mailbox, id)
    }
    fn observe(&self, mailbox: &Name) -> Result<Vec<Observed>> {
        Self::observe(self, mailbox)
    }
    fn expire(&self, observed: &Observed) -> Result<bool> {
        Self::expire(self, observed)
    }
}
