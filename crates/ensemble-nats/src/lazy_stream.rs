//! A stream that is created at the first write. Until then a reader sees an empty one.

use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::jetstream::stream::Config;

use super::NatsTransport;
use super::wire::Wire;
use ensemble_core::Result;

pub(super) struct LazyStream {
    wire: Wire,
    config: Config,
    /// Whether it was seen, so that its absence would be an error.
    is_there: AtomicBool,
}

impl LazyStream {
    pub(super) const fn new(wire: Wire, config: Config) -> Self {
        Self { wire, config, is_there: AtomicBool::new(false) }
    }

    fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    pub(super) fn wire(&self) -> Wire {
        Wire { may_be_absent: !self.is_there(), ..self.wire.clone() }
    }

    pub(super) fn note_there(&self) {
        self.is_there.store(true, Ordering::Relaxed);
    }

    pub(super) fn for_writing(
        &self,
        transport: &NatsTransport,
        operation: &'static str,
    ) -> Result<Wire> {
        if !self.is_there() {
            let (wire, config) = (self.wire(), self.config.clone());
            transport.call(operation, async move { wire.open(Some(&config)).await.map(drop) })?;
            self.note_there();
        }
        Ok(self.wire())
    }
}
