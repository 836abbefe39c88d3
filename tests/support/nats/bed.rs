//! The conformance suite's queue on a real server.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::spool::{Quota, Settings};
use ensemble_nats::NatsTransport;

use super::{Server, fresh_team};
use crate::conformance::bed::Bed;

pub fn fresh(settings: &Settings) -> Bed {
    let (server, team) = (Server::shared(), fresh_team());
    Bed::new(settings, move |clock, log| {
        let mut options = server
            .options(&team)
            .with_clock(Arc::new(clock.clone()))
            .with_recorder(Arc::new(log.clone()))
            .with_patience(Duration::from_secs(20));
        options.quota = Some(Quota::default());
        Box::new(NatsTransport::connect(&options).unwrap())
    })
}
