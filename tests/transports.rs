//! Every transport keeps the same contract: the suite of `conformance/` against a directory, against
//! the double of the simulation and, with the feature `nats`, against a real server.

#[path = "conformance/mod.rs"]
mod conformance;
#[cfg(feature = "nats")]
#[path = "nats_support/mod.rs"]
mod nats_support;

use std::sync::Arc;
use std::time::Duration;

use conformance::bed::{Bed, HandClock, MAILBOX, name, observe_for};
use ensemble_core::broker::Broker;
use ensemble_core::durable::Durability;
use ensemble_core::env::Transport;
use ensemble_core::spool::{Options, Settings, Spool};

struct SpoolBed {
    home: Arc<tempfile::TempDir>,
    clock: HandClock,
    spool: Spool,
}

impl SpoolBed {
    fn open(home: Arc<tempfile::TempDir>, clock: HandClock) -> Self {
        let mut options = Options::default().with_durability(Durability::Process);
        options.clock = Arc::new(clock.clone());
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        Self { home, clock, spool }
    }

    fn fresh(settings: &Settings) -> Box<dyn Bed> {
        let bed = Self::open(Arc::new(tempfile::tempdir().unwrap()), HandClock::default());
        bed.spool.add_mailbox(&name(MAILBOX), settings).unwrap();
        Box::new(bed)
    }
}

impl Bed for SpoolBed {
    fn transport(&self) -> &(dyn Transport + Sync) {
        &self.spool
    }
    fn broker(&self) -> Option<&(dyn Broker + Sync)> {
        Some(&self.spool)
    }
    fn again(&self) -> Box<dyn Bed> {
        Box::new(Self::open(Arc::clone(&self.home), self.clock.clone()))
    }
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
    fn observe_for(&self, time: Duration) -> usize {
        observe_for(&self.spool, time)
    }
}

conformance!(directory, SpoolBed::fresh);

#[cfg(feature = "sim")]
mod simulated {
    use ensemble_core::message::Timestamp;
    use ensemble_core::sim::{SimClock, SimTransport};

    use super::*;

    struct SimBed {
        clock: SimClock,
        transport: SimTransport,
    }

    pub(super) fn fresh(_: &Settings) -> Box<dyn Bed> {
        let clock = SimClock::new(Timestamp::from_unix_millis(1_800_000_000_000));
        let transport = SimTransport::new(clock.clone());
        transport.add_mailbox(&name(MAILBOX));
        Box::new(SimBed { clock, transport })
    }

    impl Bed for SimBed {
        fn transport(&self) -> &(dyn Transport + Sync) {
            &self.transport
        }
        fn broker(&self) -> Option<&(dyn Broker + Sync)> {
            None
        }
        fn again(&self) -> Box<dyn Bed> {
            Box::new(Self { clock: self.clock.clone(), transport: self.transport.clone() })
        }
        fn pass(&self, time: Duration) {
            self.clock.advance(time);
        }
        fn observe_for(&self, time: Duration) -> usize {
            self.clock.advance(time);
            usize::try_from(self.transport.sweep()).unwrap()
        }
    }
}

#[cfg(feature = "sim")]
conformance!(simulation, simulated::fresh);

#[cfg(feature = "nats")]
conformance!(nats, nats_support::bed::fresh);
