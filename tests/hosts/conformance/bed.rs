//! Properties of a queue under test.

use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::env::{Delivery, Lease};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::{Envelope, MessageId};
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::sim::SimRecorder;
use ensemble_core::spool::Settings;

use crate::queue::hand_clock;
pub use crate::queue::name;

/// The agent whose mailbox the tests use.
pub const MAILBOX: &str = "dispatch";

/// A fresh queue with one mailbox, [`MAILBOX`], and time that is moved by hand.
pub trait Bed: Send + Sync {
    /// The queue. What is stored through one clone or connection is seen through all.
    fn broker(&self) -> &dyn Broker;

    /// What the queue and its other openings have recorded.
    fn log(&self) -> &SimRecorder;

    /// Another opening of the same queue, as another process would have it.
    fn again(&self) -> Box<dyn Bed>;

    /// Time passes, for delays and expiry dates.
    fn pass(&self, time: Duration);

    /// An observer that has watched for `time` takes back what fell silent. Returns how many.
    fn observe_for(&self, time: Duration) -> usize;
}

/// Makes a fresh queue whose mailbox has these settings.
pub type Factory = fn(&Settings) -> Box<dyn Bed>;

/// Observes the leases of the mailbox while this time passes; returns how many messages were returned.
pub fn observe_for(broker: &dyn Broker, time: Duration) -> usize {
    let (clock, mailboxes) = (hand_clock(), [name(MAILBOX)]);
    let mut leases = MailboxLeases::new("observer", &clock);
    let (mut left, mut taken_back) = (time, 0);
    loop {
        let returned = leases.scan_mailboxes(&clock, broker, &mailboxes, &NullRecorder).unwrap();
        taken_back += returned.len();
        if left.is_zero() {
            return taken_back;
        }
        let step = left.min(LOOK_INTERVAL);
        clock.advance(step);
        left -= step;
    }
}

pub fn id(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

pub fn message(body: &str) -> Envelope {
    Envelope::new(name(MAILBOX), body)
}

/// Stores a message and returns its id.
#[track_caller]
pub fn publish(bed: &dyn Bed, envelope: &Envelope) -> MessageId {
    bed.broker().publish(envelope).unwrap();
    envelope.id.clone()
}

#[track_caller]
pub fn receive_as(bed: &dyn Bed, holder: &str) -> Option<Delivery> {
    bed.broker().receive(&name(MAILBOX), &name(holder)).unwrap()
}

#[track_caller]
pub fn receive(bed: &dyn Bed) -> Delivery {
    receive_as(bed, "reader").expect("a message waits")
}

/// Everything that can be received now, by its content, in order.
#[track_caller]
pub fn bodies(bed: &dyn Bed) -> Vec<String> {
    std::iter::from_fn(|| receive_as(bed, "reader")).map(|d| d.envelope.body).collect()
}

/// Receives and settles everything in a mailbox; the bodies in order.
pub fn settle_all(queue: &dyn Broker, mailbox: &str) -> Vec<String> {
    let mailbox = name(mailbox);
    let mut bodies = Vec::new();
    while let Some(delivery) = queue.receive(&mailbox, &mailbox).unwrap() {
        queue.settle(&delivery.lease).unwrap();
        bodies.push(delivery.envelope.body);
    }
    bodies
}

#[track_caller]
pub fn assert_lost(what: &str, result: ensemble_core::Result<()>) {
    assert!(
        matches!(result, Err(ensemble_core::Error::LeaseLost { .. })),
        "{what} under a lease that is over: {result:?}"
    );
}

/// Every operation of a holder.
#[track_caller]
pub fn assert_fenced(bed: &dyn Bed, late: &Lease) {
    let broker = bed.broker();
    assert_lost("settle", broker.settle(late));
    assert_lost("release", broker.release(late, Duration::ZERO));
    assert_lost("extend", broker.extend(late, Duration::from_secs(60)));
    assert_lost("dead_letter", broker.dead_letter(late, "too late"));
}
