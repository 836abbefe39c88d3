//! The conformance suite's queue on a real server.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::env::Transport;
use ensemble_core::sim::{SimClock, SimRecorder};
use ensemble_core::spool::{Quota, Settings};
use ensemble_nats::{NatsOptions, NatsTransport};

use super::{Server, fresh_team};
use crate::conformance::bed::{Bed, MAILBOX, name, observe_for};
use crate::queue::hand_clock;

pub struct NatsBed {
    options: NatsOptions,
    clock: SimClock,
    log: SimRecorder,
    // Before the server, so that it ends first.
    pub queue: NatsTransport,
    server: Arc<Server>,
}

pub fn fresh(settings: &Settings) -> Box<dyn Bed> {
    Box::new(NatsBed::on(Server::shared(), settings))
}

impl NatsBed {
    pub fn on(server: Arc<Server>, settings: &Settings) -> Self {
        let (clock, log) = (hand_clock(), SimRecorder::default());
        let mut options = server
            .options(&fresh_team())
            .with_clock(Arc::new(clock.clone()))
            .with_recorder(Arc::new(log.clone()))
            .with_patience(Duration::from_secs(20));
        options.quota = Some(Quota::default());
        let queue = NatsTransport::connect(&options).unwrap();
        queue.add_mailbox(&name(MAILBOX), settings).unwrap();
        Self { options, clock, log, queue, server }
    }
}

impl Bed for NatsBed {
    fn broker(&self) -> &dyn Broker {
        &self.queue
    }
    fn log(&self) -> &SimRecorder {
        &self.log
    }
    fn again(&self) -> Box<dyn Bed> {
        Box::new(Self {
            options: self.options.clone(),
            clock: self.clock.clone(),
            log: self.log.clone(),
            queue: NatsTransport::connect(&self.options).unwrap(),
            server: Arc::clone(&self.server),
        })
    }
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
    fn observe_for(&self, time: Duration) -> usize {
        observe_for(&self.queue, time)
    }
}
