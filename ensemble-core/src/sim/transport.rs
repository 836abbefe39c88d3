//! Mailboxes in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{SimClock, lock};
use crate::env::{Clock, Counts, Delivery, Lease, Monotonic, PublishOutcome, Transport};
use crate::mail::{self, receive_order, stored_before};
use crate::message::{Envelope, MessageId, Name};
use crate::{Error, Result};

/// Duration of a lease without an extension.
pub const LEASE_DURATION: Duration = Duration::from_secs(300);
/// Deliveries of a message before it becomes a dead letter.
pub const ATTEMPTS_MAX: u64 = 5;

/// Mailboxes in memory with the contract of [`Transport`]: priorities, delays, leases, epochs,
/// expiry and dead letters, all by a [`SimClock`]. Clones are the same mailboxes.
#[derive(Clone, Debug)]
pub struct SimTransport {
    clock: SimClock,
    mailboxes: Arc<Mutex<BTreeMap<Name, SimMailbox>>>,
}

#[derive(Debug, Default)]
struct SimMailbox {
    /// Messages in the order of their arrival.
    messages: BTreeMap<u64, SimMessage>,
    next: u64,
}

#[derive(Debug)]
struct SimMessage {
    envelope: Envelope,
    epoch: u64,
    place: SimPlace,
}

#[derive(Debug)]
enum SimPlace {
    Queued { due: Monotonic },
    Held { holder: Name, until: Monotonic },
    Settled,
    Dead,
}

impl SimPlace {
    const fn phrase(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued again",
            Self::Held { .. } => "held by another consumer",
            Self::Settled => "settled",
            Self::Dead => "dead-lettered",
        }
    }
}

impl SimTransport {
    /// A queue without mailboxes.
    pub fn new(clock: SimClock) -> Self {
        Self { clock, mailboxes: Arc::default() }
    }

    /// Creates a mailbox; an existing one stays unchanged.
    pub fn add_mailbox(&self, name: &Name) {
        lock(&self.mailboxes).entry(name.clone()).or_default();
    }

    /// Releases every message whose lease has expired. Returns their number.
    pub fn sweep(&self) -> u64 {
        let now = self.clock.monotonic();
        let mut swept = 0;
        for mailbox in lock(&self.mailboxes).values_mut() {
            for message in mailbox.messages.values_mut() {
                if matches!(&message.place, SimPlace::Held { until, .. } if now >= *until) {
                    message.give_back(now);
                    swept += 1;
                }
            }
        }
        swept
    }

    fn with_mailbox<T>(&self, name: &Name, act: impl FnOnce(&mut SimMailbox) -> T) -> Result<T> {
        let mut mailboxes = lock(&self.mailboxes);
        match mailboxes.get_mut(name) {
            Some(mailbox) => Ok(act(mailbox)),
            None => Err(Error::NoMailbox { name: name.to_string(), nearest: Vec::new() }),
        }
    }

    fn with_held(&self, lease: &Lease, act: impl FnOnce(&mut SimMessage)) -> Result<()> {
        let lost = |now: &str| Error::LeaseLost { lease: lease.to_string(), now: now.to_owned() };
        self.with_mailbox(&lease.mailbox, |mailbox| {
            let message = mailbox.find(&lease.id).ok_or_else(|| lost("gone"))?;
            match &message.place {
                SimPlace::Held { holder, .. }
                    if *holder == lease.holder && message.epoch == lease.epoch =>
                {
                    act(message);
                    Ok(())
                }
                place => Err(lost(place.phrase())),
            }
        })?
    }
}

impl SimMailbox {
    fn find(&mut self, id: &MessageId) -> Option<&mut SimMessage> {
        self.messages.values_mut().find(|message| message.envelope.id == *id)
    }
}

impl SimMessage {
    fn give_back(&mut self, due: Monotonic) {
        self.place =
            if self.epoch < ATTEMPTS_MAX { SimPlace::Queued { due } } else { SimPlace::Dead };
    }
}

impl Transport for SimTransport {
    fn publish(&self, envelope: &Envelope) -> Result<PublishOutcome> {
        let due = self.clock.monotonic();
        self.with_mailbox(&envelope.to, |mailbox| {
            if let Some(stored) = mailbox.find(&envelope.id) {
                return stored_before(envelope, Ok(stored.envelope.clone()), false);
            }
            let place = SimPlace::Queued { due };
            let message = SimMessage { envelope: envelope.clone(), epoch: 0, place };
            mailbox.messages.insert(mailbox.next, message);
            mailbox.next += 1;
            Ok(PublishOutcome::Stored)
        })?
    }

    fn receive(&self, mailbox: &Name, holder: &Name) -> Result<Option<Delivery>> {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        self.with_mailbox(mailbox, |messages| {
            for message in messages.messages.values_mut() {
                let expired = message.envelope.expires_at.is_some_and(|at| wall >= at);
                if expired && matches!(message.place, SimPlace::Queued { .. }) {
                    message.place = SimPlace::Dead;
                }
            }
            let is_due =
                |m: &&mut SimMessage| matches!(m.place, SimPlace::Queued { due } if now >= due);
            let next = messages
                .messages
                .iter_mut()
                .filter_map(|(order, m)| Some(m).filter(is_due).map(|m| (*order, m)))
                .min_by_key(|(order, m)| receive_order(false, m.envelope.priority, *order, ()));
            let (_, message) = next?;
            message.epoch += 1;
            message.place = SimPlace::Held { holder: holder.clone(), until: now + LEASE_DURATION };
            let lease = Lease {
                mailbox: mailbox.clone(),
                id: message.envelope.id.clone(),
                holder: holder.clone(),
                epoch: message.epoch,
            };
            Some(Delivery::new(message.envelope.clone(), lease, LEASE_DURATION))
        })
    }

    fn settle(&self, lease: &Lease) -> Result<()> {
        self.with_held(lease, |message| message.place = SimPlace::Settled)
    }

    fn release(&self, lease: &Lease, delay: Duration) -> Result<()> {
        let due = self.clock.monotonic() + delay;
        self.with_held(lease, |message| message.give_back(due))
    }

    fn extend(&self, lease: &Lease, duration: Duration) -> Result<()> {
        let until = self.clock.monotonic() + Duration::from_secs(mail::lease_seconds(duration)?);
        let holder = lease.holder.clone();
        self.with_held(lease, |message| message.place = SimPlace::Held { holder, until })
    }

    fn scan(&self, mailbox: &Name) -> Result<Counts> {
        let now = self.clock.monotonic();
        self.with_mailbox(mailbox, |mailbox| {
            let mut counts = Counts::default();
            for message in mailbox.messages.values() {
                match &message.place {
                    SimPlace::Queued { due } => {
                        counts.queued += 1;
                        counts.delayed += u64::from(now < *due);
                    }
                    SimPlace::Held { .. } => counts.acked += 1,
                    SimPlace::Settled => counts.settled += 1,
                    SimPlace::Dead => counts.dead += 1,
                }
            }
            counts
        })
    }
}
