//! Messages for an unreachable server: a bounded directory queue on this host, drained in order.
//!
//! ```text
//! publish --- outbox is empty, server answers ---> stored on the server
//!         \-- else ---> outbox (a queue like any other; `ensemble --queue <outbox> inbox` shows it)
//!                          |  the server is back: sent in order, stored once by id
//!                          +----> server
//! ```
//!
//! While a message waits in the outbox, every new message for its mailbox is queued behind it, so
//! that a sender's messages stay in order. A publish whose answer was lost goes to the outbox, too,
//! because the server stores an id only once. The outbox's own durability applies to its messages.
//! A message for a mailbox that the server does not have, or that it refuses for good, becomes a
//! dead letter of the outbox, and its sender receives a `mail.returned`.

use std::path::Path;

use super::bridge::{Bridge, BridgeReport, UnknownMailbox};
use super::carry_attachment;
use crate::Result;
use crate::broker::Broker;
use crate::env::PublishOutcome;
use crate::error::allow_no_mailbox;
use crate::message::{Envelope, Name};
use crate::spool::{Settings, Spool, SpoolOptions};

pub const OUTBOX_CAPACITY_DEFAULT: u64 = 10_000;
/// Holder of messages that are being sent.
const HOLDER: &str = "outbox";

#[derive(Debug)]
pub struct Outbox {
    spool: Spool,
    capacity: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    Sent(PublishOutcome),
    /// The outbox holds it until the server accepts it, for this reason.
    Kept(String),
}

impl PostOutcome {
    /// Whether the mailbox had a message of this id before.
    #[must_use]
    pub const fn was_stored_before(&self) -> bool {
        matches!(self, Self::Sent(PublishOutcome::AlreadyStored))
    }
}

impl Outbox {
    pub fn open(directory: &Path, capacity: u64, options: SpoolOptions) -> Result<Self> {
        Ok(Self { spool: Spool::create(directory, options)?, capacity })
    }

    pub const fn spool(&self) -> &Spool {
        &self.spool
    }

    pub fn into_spool(self) -> Spool {
        self.spool
    }

    /// Sends a message to `server`, behind those that wait for the same mailbox. Without a server (`None`)
    /// the outbox keeps it. Content that it names must be attached to the outbox's queue.
    pub fn post(&self, server: Option<&dyn Broker>, envelope: &Envelope) -> Result<PostOutcome> {
        let Some(server) = server else {
            return self.store_locally(envelope, "no server is connected");
        };
        for mailbox in self.waiting_mailboxes()? {
            match self.carry(server, &mailbox) {
                Ok(carried) if mailbox == envelope.to => {
                    if let Some(full) = carried.stuck {
                        return Err(full);
                    }
                }
                Ok(_) => {}
                Err(error) if error.is_server_away() => {
                    return self.store_locally(envelope, &error.to_string());
                }
                Err(error) if mailbox == envelope.to => return Err(error),
                // It is not this message's: the watcher reports it.
                Err(_) => {}
            }
        }
        let before = self.waiting_for(&envelope.to)?;
        if before > 0 {
            return self.store_locally(envelope, &format!("{before} wait there before it"));
        }
        let sent = carry_attachment(&self.spool, server, envelope);
        match sent.and_then(|()| server.publish(envelope)) {
            Ok(published) => Ok(PostOutcome::Sent(published)),
            Err(error) if error.is_server_away() => {
                self.store_locally(envelope, &error.to_string())
            }
            Err(error) => Err(error),
        }
    }

    fn store_locally(&self, envelope: &Envelope, why: &str) -> Result<PostOutcome> {
        let settings = Settings::default().with_capacity(self.capacity);
        self.spool.ensure_mailbox(&envelope.to, &settings)?;
        self.spool.publish(envelope).map(|_| PostOutcome::Kept(why.to_owned()))
    }

    /// Sends the waiting messages of all mailboxes to the server, each mailbox in order. A full mailbox and a
    /// message that the server refuses keep no other from being sent.
    ///
    /// # Errors
    /// The server is unreachable, or the outbox cannot be used; the remaining messages wait.
    pub fn drain(&self, server: &dyn Broker) -> Result<BridgeReport> {
        let mut all = BridgeReport::default();
        for mailbox in self.waiting_mailboxes()? {
            let carried = self.carry(server, &mailbox)?;
            all.carried += carried.carried;
            all.buried += carried.buried;
            all.stuck = all.stuck.or(carried.stuck);
        }
        Ok(all)
    }

    /// Sends the waiting messages of one mailbox. One that the server can never accept becomes a
    /// dead letter of the outbox, and its sender is notified.
    pub fn carry(&self, server: &dyn Broker, mailbox: &Name) -> Result<BridgeReport> {
        let holder = Name::new(HOLDER)?;
        let bridge =
            Bridge::new(&self.spool, server, holder, UnknownMailbox::Bury).telling_senders();
        bridge.carry(mailbox)
    }

    /// Mailboxes for which messages wait here, and those that cannot be read: to carry one of them fails and says why.
    pub fn waiting_mailboxes(&self) -> Result<Vec<Name>> {
        let mut mailboxes = self.spool.mailboxes()?;
        mailboxes.retain(|mailbox| !matches!(self.waiting_for(mailbox), Ok(0)));
        Ok(mailboxes)
    }

    fn waiting_for(&self, mailbox: &Name) -> Result<u64> {
        let counts = allow_no_mailbox(self.spool.counts(mailbox))?;
        Ok(counts.map_or(0, |counts| counts.queued + counts.acked))
    }

    /// Number of messages that could not be sent and are dead letters here, where that can be read.
    pub fn dead(&self) -> Result<u64> {
        let counts = |mailbox: &Name| self.spool.counts(mailbox).ok().map(|counts| counts.dead);
        Ok(self.spool.mailboxes()?.iter().filter_map(counts).sum())
    }

    /// Number of messages that have not reached the server yet, where that can be read.
    pub fn waiting(&self) -> Result<u64> {
        let counts = |mailbox: &Name| self.waiting_for(mailbox).ok();
        Ok(self.spool.mailboxes()?.iter().filter_map(counts).sum())
    }
}
