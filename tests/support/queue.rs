//! A queue in its own directory, whose clock is moved by hand.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock, Counts, Delivery, Monotonic, PublishOutcome, SystemClock};
use ensemble_core::message::{Envelope, MessageId, Name, Timestamp};
use ensemble_core::sim::SimClock;
use ensemble_core::spool::{Settings, Spool, SpoolOptions};

pub fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// A clock that is moved by hand, some years from now.
pub fn hand_clock() -> SimClock {
    SimClock::new(Timestamp::from_unix_millis(1_900_000_000_000))
}

/// The machine's clocks, ahead by what is added. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct AheadClock(Arc<Mutex<Duration>>);

impl AheadClock {
    pub fn by(time: Duration) -> Self {
        Self(Arc::new(Mutex::new(time)))
    }
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
    fn ahead(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

impl Clock for AheadClock {
    fn monotonic(&self) -> Monotonic {
        SystemClock.monotonic() + self.ahead()
    }
    fn boottime(&self) -> Monotonic {
        SystemClock.boottime() + self.ahead()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall().plus(self.ahead())
    }
}

/// What a [`QueueBed`] begins with.
pub struct QueueSetup {
    mailboxes: Vec<Name>,
    settings: Settings,
    options: SpoolOptions,
    clock: SimClock,
}

impl QueueSetup {
    pub fn of<const N: usize>(mailboxes: [&str; N]) -> Self {
        Self {
            mailboxes: mailboxes.map(name).into(),
            settings: Settings::default(),
            options: SpoolOptions::default().with_durability(Durability::Process),
            clock: hand_clock(),
        }
    }
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }
    pub fn options(mut self, change: impl FnOnce(SpoolOptions) -> SpoolOptions) -> Self {
        self.options = change(self.options);
        self
    }
    pub fn clock(mut self, clock: SimClock) -> Self {
        self.clock = clock;
        self
    }

    pub fn build(self) -> QueueBed {
        let home = tempfile::tempdir().unwrap();
        let options = self.options.with_clock(Arc::new(self.clock.clone()));
        let spool = Spool::create(&home.path().join("queue"), options.clone()).unwrap();
        for mailbox in &self.mailboxes {
            spool.add_mailbox(mailbox, &self.settings).unwrap();
        }
        let mailbox = self.mailboxes[0].clone();
        QueueBed { home, clock: self.clock, spool, mailbox, options }
    }
}

pub struct QueueBed {
    pub home: tempfile::TempDir,
    pub clock: SimClock,
    pub spool: Spool,
    mailbox: Name,
    pub options: SpoolOptions,
}

impl QueueBed {
    /// The first mailbox is the one that its methods use.
    pub fn new<const N: usize>(mailboxes: [&str; N]) -> Self {
        QueueSetup::of(mailboxes).build()
    }

    pub fn publish(&self, body: &str) -> MessageId {
        let envelope = Envelope::new(self.mailbox.clone(), body);
        assert_eq!(self.spool.publish(&envelope).unwrap(), PublishOutcome::Stored);
        envelope.id
    }
    pub fn receive(&self) -> Option<Delivery> {
        self.spool.receive(&self.mailbox, &name("reader")).unwrap()
    }
    pub fn bodies(&self) -> Vec<String> {
        std::iter::from_fn(|| self.receive()).map(|d| d.envelope.body).collect()
    }
    pub fn counts(&self) -> Counts {
        self.spool.counts(&self.mailbox).unwrap()
    }
    pub fn path(&self, below: &str) -> PathBuf {
        self.spool.root().join("mailbox").join(self.mailbox.as_str()).join(below)
    }
    /// As another process of this machine has it.
    pub fn again(&self) -> Spool {
        Spool::open(self.spool.root(), self.options.clone()).unwrap()
    }
}
