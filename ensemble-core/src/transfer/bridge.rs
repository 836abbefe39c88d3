//! Carries messages from one queue to another: between a directory and a server, or out of a local
//! outbox once the server is back.
//!
//! ```text
//! source                                   target
//! receive as the bridge (or: still held from before)
//!                                          publish, which stores an id once
//! settle
//! ```
//!
//! A crash at any point leaves the message held by the bridge in the source. The next run finds it
//! there and continues. The target stores a repeated id once, and the bridge settles only after
//! that. So every message arrives exactly once, by its id. If two bridges run at a time, the slower
//! one finds its leases over, which changes nothing. While the target is away, or its mailbox is full,
//! the bridge holds at most one message a mailbox and extends its lease. The others wait in place. A
//! message that the target can never take is a dead letter of the source, and the next one is carried.

use std::time::Duration;

use super::{carry_attachment, concerns_message};
use crate::broker::{Broker, returned};
use crate::env::Lease;
use crate::error::{allow_gone, allow_no_mailbox};
use crate::message::{Envelope, MessagePurpose, Name};
use crate::requests::UndecidedRequest;
use crate::{Error, Result};

/// Lease extension of a message that the target cannot take at the moment.
const LEASE: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownMailbox {
    /// The mailbox is created with the settings it has in the source.
    Create,
    /// The message becomes a dead letter of the source.
    Bury,
}

#[derive(Debug, Default)]
pub struct BridgeReport {
    /// Number of messages stored in the target and settled in the source.
    pub carried: u64,
    /// Number of messages that the target can never take; they are dead letters of the source.
    pub buried: u64,
    /// Why messages of the mailbox wait in the source although the target answers: it is full there.
    pub stuck: Option<Error>,
}

enum CarryOutcome {
    /// It is finished in the source.
    Over,
    /// The target has no room for it now. The bridge keeps it until the next run.
    Stuck(Error),
}

pub struct Bridge<'a> {
    source: &'a dyn Broker,
    target: &'a dyn Broker,
    holder: Name,
    unknown: UnknownMailbox,
    tells_senders: bool,
}

impl<'a> Bridge<'a> {
    /// Creates a bridge from `source` to `target`. It holds messages in the source as `holder`; no
    /// other process may use that name.
    pub const fn new(
        source: &'a dyn Broker,
        target: &'a dyn Broker,
        holder: Name,
        unknown: UnknownMailbox,
    ) -> Self {
        Self { source, target, holder, unknown, tells_senders: false }
    }

    /// Also notifies the sender, in the target, of each message that the target can never accept.
    pub const fn telling_senders(mut self) -> Self {
        self.tells_senders = true;
        self
    }

    /// Carries all messages that wait in a mailbox of the source now.
    ///
    /// One of the queues failed. Messages that were not carried are still in the source, and the next run
    /// continues. A target mailbox that is full, and a message that the target refuses, are not an error:
    /// [`BridgeReport`] reports them.
    pub fn carry(&self, mailbox: &Name) -> Result<BridgeReport> {
        let mut carried = BridgeReport::default();
        // Fails before anything is received if the target cannot be reached.
        let known = allow_no_mailbox(self.target.settings(mailbox))?;
        if known.is_none() && self.unknown == UnknownMailbox::Create {
            self.target.ensure_mailbox(mailbox, &self.source.settings(mailbox)?)?;
        }
        for observed in self.source.observe(mailbox)? {
            if observed.lease.holder != self.holder {
                continue;
            }
            // Held by a run that was interrupted, or that met a full mailbox.
            if let Some(envelope) = allow_gone(self.source.peek(mailbox, &observed.lease.id))? {
                let handed = self.hand_over(&observed.lease, &envelope, &mut carried)?;
                if carried.is_over(handed) {
                    return Ok(carried);
                }
            }
        }
        while let Some(delivery) = self.source.receive(mailbox, &self.holder)? {
            let handed = self.hand_over(&delivery.lease, &delivery.envelope, &mut carried)?;
            if carried.is_over(handed) {
                break;
            }
        }
        Ok(carried)
    }

    fn hand_over(
        &self,
        lease: &Lease,
        envelope: &Envelope,
        carried: &mut BridgeReport,
    ) -> Result<CarryOutcome> {
        let envelope = envelope.addressed_to(lease.mailbox.clone());
        let sent = carry_attachment(self.source, self.target, &envelope);
        let finished = match sent.and_then(|()| self.target.publish(&envelope)) {
            Ok(_) => {
                carried.carried += 1;
                match self.source.settle(lease) {
                    // The request continues at the target. Here it is undecided, so its message
                    // cannot be settled.
                    Err(error) if error.area::<UndecidedRequest>().is_some() => {
                        self.source.dead_letter(lease, "carried to another queue")
                    }
                    settled => settled,
                }
            }
            Err(error) if is_permanent(&error) => {
                carried.buried += 1;
                let reason = format!("not carried: {error}");
                self.tell_sender(&envelope, &reason)?;
                self.source.dead_letter(lease, &reason)
            }
            Err(error) => {
                // The bridge keeps it until the next run; this does not count as a failed attempt.
                let _ = self.source.extend(lease, LEASE);
                return match error {
                    Error::Full { .. } | Error::Quota { .. } => Ok(CarryOutcome::Stuck(error)),
                    error => Err(error),
                };
            }
        };
        match finished {
            // Another run took the message over and did the same work.
            Ok(()) | Err(Error::LeaseLost { .. }) => Ok(CarryOutcome::Over),
            Err(error) => Err(error),
        }
    }

    /// Notifies a sender in the target that its message is a dead letter here. This happens before
    /// the message is moved, so that a crash in between only repeats the notice, which is stored
    /// once.
    fn tell_sender(&self, envelope: &Envelope, reason: &str) -> Result<()> {
        // An automatic message is never answered automatically.
        if !self.tells_senders || envelope.purpose() == MessagePurpose::Notice {
            return Ok(());
        }
        match self.target.publish(&returned(self.target, &self.holder, envelope, reason)?) {
            // A sender without a mailbox, such as a script, cannot be notified.
            Err(error) if !is_permanent(&error) && !error.is_undeliverable() => Err(error),
            _ => Ok(()),
        }
    }
}

impl BridgeReport {
    /// Notes what happened to a message. Returns whether the run has ended: behind a full mailbox every
    /// message of it waits. A sender that has used up its quota holds up no other.
    fn is_over(&mut self, handed: CarryOutcome) -> bool {
        let CarryOutcome::Stuck(error) = handed else { return false };
        let is_full = matches!(error, Error::Full { .. });
        self.stuck = Some(error);
        is_full
    }
}

/// Whether the target can never take a message: trying again does not help.
const fn is_permanent(error: &Error) -> bool {
    concerns_message(error) || matches!(error, Error::Server { unreachable: false, .. })
}
