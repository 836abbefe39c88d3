//! Properties of a queue under test.

use ensemble_core::leases::MailboxLeases;
use ensemble_core::proto::lease::LOOK_INTERVAL;

use crate::*;

pub use crate::queue::name;

pub const MAILBOX: &str = "dispatch";

/// A fresh queue with one mailbox, [`MAILBOX`], and time that is moved by hand.
pub struct Bed {
    // Before what it needs, such as a server, so that it ends first.
    pub broker: Box<dyn Broker>,
    /// What the queue and its other openings have recorded.
    pub log: SimRecorder,
    clock: SimClock,
    open: Arc<OpenQueue>,
}

type OpenQueue = dyn Fn(&SimClock, &SimRecorder) -> Box<dyn Broker> + Send + Sync;

/// Makes a fresh queue whose mailbox has these settings.
pub type Factory = fn(&Settings) -> Bed;

impl Bed {
    pub fn new(
        settings: &Settings,
        open: impl Fn(&SimClock, &SimRecorder) -> Box<dyn Broker> + Send + Sync + 'static,
    ) -> Self {
        let (clock, log) = (hand_clock(), SimRecorder::default());
        let broker = open(&clock, &log);
        broker.add_mailbox(&name(MAILBOX), settings).unwrap();
        Self { broker, log, clock, open: Arc::new(open) }
    }

    /// Another opening of the same queue, as another process would have it.
    pub fn again(&self) -> Self {
        let (clock, log, open) = (self.clock.clone(), self.log.clone(), Arc::clone(&self.open));
        Self { broker: open(&clock, &log), log, clock, open }
    }

    /// Time passes, for delays and expiry dates.
    pub fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// An observer that has watched for `time` takes back what fell silent. Returns how many.
    pub fn observe_for(&self, time: Duration) -> usize {
        observe_for(&*self.broker, time)
    }

    #[track_caller]
    pub fn publish(&self, envelope: &Envelope) -> MessageId {
        self.broker.publish(envelope).unwrap();
        envelope.id.clone()
    }

    #[track_caller]
    pub fn receive_as(&self, holder: &str) -> Option<Delivery> {
        self.broker.receive(&name(MAILBOX), &name(holder)).unwrap()
    }

    #[track_caller]
    pub fn receive(&self) -> Delivery {
        self.receive_as("reader").expect("a message waits")
    }

    /// Everything that can be received now, by its content, in order.
    #[track_caller]
    pub fn bodies(&self) -> Vec<String> {
        std::iter::from_fn(|| self.receive_as("reader")).map(|d| d.envelope.body).collect()
    }

    /// Runs this in four threads, each with its own opening of the queue.
    pub fn crowd<T: Send>(&self, run: impl Fn(usize, &Self) -> T + Sync) -> Vec<T> {
        let beds: Vec<_> = (0..4).map(|_| self.again()).collect();
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> =
                beds.iter().enumerate().map(|(n, bed)| scope.spawn(move || run(n, bed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Every operation of this holder is refused.
    #[track_caller]
    pub fn assert_fenced(&self, late: &Lease) {
        for (what, result) in [
            ("settle", self.broker.settle(late)),
            ("release", self.broker.release(late, Duration::ZERO)),
            ("extend", self.broker.extend(late, Duration::from_secs(60))),
            ("dead_letter", self.broker.dead_letter(late, "too late")),
        ] {
            assert!(
                matches!(result, Err(Error::LeaseLost { .. })),
                "{what} under a lease that is over: {result:?}"
            );
        }
    }
}

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
