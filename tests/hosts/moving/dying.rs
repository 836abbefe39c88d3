//! A queue whose caller dies at one of its calls.

use ensemble_core::Result;
use ensemble_core::env::{Counts, Transport};
use ensemble_core::leases::{LeaseTable, ObservedLease};
use ensemble_core::spool::{FormerHolding, Found};

use crate::*;

/// When the call fails: before its work, or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Before,
    After,
}

/// The calls that are left.
#[derive(Debug)]
pub struct Life {
    calls: AtomicUsize,
    death: Death,
}

impl Life {
    pub fn of(calls: usize, death: Death) -> Self {
        Self { calls: AtomicUsize::new(calls), death }
    }

    fn call<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let left = self.calls.load(Ordering::Relaxed).checked_sub(1);
        self.calls.store(left.unwrap_or(0), Ordering::Relaxed);
        match (left, self.death) {
            (None, _) => Err(died()),
            (Some(0), Death::Before) => Err(died()),
            (Some(0), Death::After) => act().and_then(|_| Err(died())),
            (Some(_), _) => act(),
        }
    }
}

fn died() -> Error {
    let (server, detail) = ("the test".to_owned(), "it dies here".to_owned());
    Error::Server { operation: "live", server, detail, unreachable: true }
}

/// The queue as seen by the process that is about to die.
pub struct Dying<'a> {
    queue: &'a dyn Broker,
    life: &'a Life,
}

impl<'a> Dying<'a> {
    pub fn new(queue: &'a dyn Broker, life: &'a Life) -> Self {
        Self { queue, life }
    }
}

macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> Result<$result> {
            self.life.call(|| self.queue.$name($($argument),*))
        })*
    };
}

impl Transport for Dying<'_> {
    passed_on! {
        publish(envelope: &Envelope) -> PublishOutcome;
        receive(mailbox: &Name, holder: &Name) -> Option<Delivery>;
        settle(lease: &Lease) -> ();
        release(lease: &Lease, delay: Duration) -> ();
        extend(lease: &Lease, duration: Duration) -> ();
        scan(mailbox: &Name) -> Counts;
    }
}

impl LeaseTable for Dying<'_> {
    passed_on! {
        observe(mailbox: &Name) -> Vec<ObservedLease>;
        expire(observed: &ObservedLease) -> bool;
    }
}

impl Broker for Dying<'_> {
    passed_on! {
        add_mailbox(name: &Name, settings: &Settings) -> ();
        mailboxes() -> Vec<Name>;
        settings(mailbox: &Name) -> Settings;
        state(mailbox: &Name, id: &MessageId) -> Option<State>;
        receive_id(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        receive_done(mailbox: &Name, id: &MessageId, holder: &Name) -> Option<Delivery>;
        attempts_before(mailbox: &Name, id: &MessageId) -> u64;
        peek(mailbox: &Name, id: &MessageId) -> Envelope;
        unfinished(mailbox: &Name, limit: usize) -> Vec<Found>;
        count_due(mailbox: &Name, limit: usize) -> usize;
        due_ids_for(mailbox: &Name, agent: &Name, limit: usize) -> Vec<MessageId>;
        restate_dead(mailbox: &Name, id: &MessageId, reason: &str) -> ();
        dead_letter(lease: &Lease, reason: &str) -> ();
        dead_letters(mailbox: &Name) -> Vec<DeadLetter>;
        redrive(mailbox: &Name, id: &MessageId) -> ();
        drop_dead(mailbox: &Name, id: &MessageId) -> ();
        set_aside(mailbox: &Name, id: &MessageId, reason: &str) -> ();
        restore_delayed(envelope: &Envelope, due: u64) -> ();
        restore_dead(envelope: &Envelope, reason: &str) -> ();
        attach(content: &[u8]) -> Attachment;
        attached(attachment: &Attachment) -> Vec<u8>;
        note_told(letter: &DeadLetter) -> ();
        take_back(lease: &Lease, reason: &str) -> bool;
        former_holders(mailbox: &Name) -> Vec<FormerHolding>;
    }
}
