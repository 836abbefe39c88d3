//! Messages for an unreachable server: a bounded directory queue on this host, drained in order.
//!
//! ```text
//! publish --- outbox is empty, server answers ---> stored on the server
//!         \-- else ---> outbox (a queue like any other; `ensemble --queue <outbox> inbox` shows it)
//!                          |  the server is back: sent in order, stored once by id
//!                          +----> server
//! ```
//!
//! While a message waits in the outbox, every new message is queued behind it, so the order of a
//! sender is kept. A publish whose answer was lost goes to the outbox, too; the server stores its
//! id once. The outbox's own durability applies to its messages. A message for a mailbox that the
//! server does not have becomes a dead letter of the outbox.

use std::path::Path;

use crate::bridge::{Bridge, Carried, Unknown};
use ensemble_core::broker::Broker;
use ensemble_core::env::Published;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Options, Settings, Spool};
use ensemble_core::{Error, Result};

/// Default capacity of the outbox for each mailbox, in messages.
pub const OUTBOX_CAPACITY_DEFAULT: u64 = 10_000;
/// Holder of messages that are being sent.
const HOLDER: &str = "outbox";

/// The outbox of a host.
#[derive(Debug)]
pub struct Outbox {
    spool: Spool,
    capacity: u64,
}

/// Where a message was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The server has it.
    Sent(Published),
    /// The outbox holds it until the server is reachable.
    Kept,
}

impl Outbox {
    /// Opens or creates the outbox in this directory, with this capacity for each mailbox.
    ///
    /// # Errors
    /// The directory cannot be created or used.
    pub fn open(directory: &Path, capacity: u64, options: Options) -> Result<Self> {
        Ok(Self { spool: Spool::create(directory, options)?, capacity })
    }

    /// The outbox's queue.
    #[must_use]
    pub const fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Sends a message to `server`. Without a server (`None`) the outbox keeps it.
    ///
    /// # Errors
    /// [`Error::Full`] if the outbox is full, too, or the server's error for the message.
    pub fn post(&self, server: Option<&dyn Broker>, envelope: &Envelope) -> Result<Posted> {
        let Some(server) = server else { return self.keep(envelope) };
        match self.drain(server) {
            Ok(_) if self.waiting()? == 0 => {}
            Ok(_) | Err(Error::Full { .. } | Error::Server { unreachable: true, .. }) => {
                return self.keep(envelope);
            }
            Err(error) => return Err(error),
        }
        match server.publish(envelope) {
            Ok(published) => Ok(Posted::Sent(published)),
            Err(Error::Server { unreachable: true, .. }) => self.keep(envelope),
            Err(error) => Err(error),
        }
    }

    fn keep(&self, envelope: &Envelope) -> Result<Posted> {
        let settings = Settings::default().with_capacity(self.capacity);
        match self.spool.add_mailbox(&envelope.to, &settings) {
            Ok(()) | Err(Error::MailboxExists { .. }) => {}
            Err(error) => return Err(error),
        }
        self.spool.publish(envelope).map(|_| Posted::Kept)
    }

    /// Sends the waiting messages to the server, each mailbox in order.
    ///
    /// # Errors
    /// The server is unreachable or full; the remaining messages wait.
    pub fn drain(&self, server: &dyn Broker) -> Result<Carried> {
        let holder = Name::new(HOLDER)?;
        let bridge = Bridge::new(&self.spool, server, holder, Unknown::Bury);
        let mut all = Carried::default();
        for mailbox in self.spool.mailboxes()? {
            let counts = self.spool.counts(&mailbox)?;
            if counts.queued + counts.acked == 0 {
                continue;
            }
            let carried = bridge.carry(&mailbox)?;
            all.carried += carried.carried;
            all.buried += carried.buried;
        }
        Ok(all)
    }

    /// Number of messages that have not reached the server yet.
    ///
    /// # Errors
    /// The outbox cannot be listed.
    pub fn waiting(&self) -> Result<u64> {
        let mut waiting = 0;
        for mailbox in self.spool.mailboxes()? {
            let counts = self.spool.counts(&mailbox)?;
            waiting += counts.queued + counts.acked;
        }
        Ok(waiting)
    }
}
