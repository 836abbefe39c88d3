//! Messages for a server that is away: a directory queue on this host, bounded, drained in order.
//!
//! ```text
//! publish --- outbox is empty, server answers ---> stored on the server
//!         \-- else ---> outbox (a queue like any other; `ensemble --queue <outbox> inbox` shows it)
//!                          |  the server is back: carried in order, stored once by id
//!                          +----> server
//! ```
//!
//! While something waits in the outbox every new message goes behind it, so the order of a sender is
//! kept. A publish whose answer was lost goes to the outbox too; the server stores its id once. What
//! was put here survives as the outbox's durability says. A message for a mailbox that the server
//! turns out not to have becomes a dead letter of the outbox.

use std::path::Path;

use crate::bridge::{Bridge, Carried, Unknown};
use crate::broker::Broker;
use crate::env::Published;
use crate::message::{Envelope, Name};
use crate::spool::{Options, Settings, Spool};
use crate::{Error, Result};

/// How many messages the outbox takes for each mailbox, unless configured.
pub const OUTBOX_CAPACITY_DEFAULT: u64 = 10_000;
/// Who holds messages on their way out.
const HOLDER: &str = "outbox";

/// The outbox of a host.
#[derive(Debug)]
pub struct Outbox {
    spool: Spool,
    capacity: u64,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The server has it.
    Sent(Published),
    /// It waits in the outbox until the server can be reached.
    Kept,
}

impl Outbox {
    /// Opens the outbox in this directory, or makes it; it takes so many messages for each mailbox.
    ///
    /// # Errors
    /// The directory cannot be made or used.
    pub fn open(directory: &Path, capacity: u64, options: Options) -> Result<Self> {
        Ok(Self { spool: Spool::create(directory, options)?, capacity })
    }

    /// The queue that it is.
    #[must_use]
    pub const fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Sends a message to `server`, which may be away (`None`): then it is kept.
    ///
    /// # Errors
    /// [`Error::Full`] if the outbox is full too, or what the server says against the message.
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

    /// Carries what waits to the server, each mailbox in order.
    ///
    /// # Errors
    /// The server is away (again) or full; the rest waits.
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

    /// How many messages have not reached the server yet.
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
