//! The time that counts for a connection: the server's, or that of the embedder's clock.

use super::NatsTransport;
use super::consumer::PullConsumer;
use super::server_time::timestamp;
use async_nats::jetstream::consumer::DeliverPolicy;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::Timestamp;

fn unix_millis(time: Timestamp) -> u64 {
    u64::try_from(time.unix_millis()).unwrap_or(0)
}

impl NatsTransport {
    /// The time that counts for delays, expiry and retention: the server's, or that of the embedder's clock. Asks the
    /// server if its time is not known. If it does not answer, this host's time is used.
    pub fn now(&self) -> Timestamp {
        if let Some(clock) = &self.clock {
            return clock.wall();
        }
        let known = self.wire.time.millis().or_else(|| {
            let (wire, subject) = (self.wire.clone(), self.subjects.clock());
            let asked = self.call("ask for the time", async move {
                // The server says its time with each consumer that it opens. This one is removed by itself.
                let opened = PullConsumer::open(&wire, &subject, DeliverPolicy::New, true).await;
                opened.map(drop).map_err(|error| wire.unreachable("ask for the time", error))
            });
            asked.ok().and_then(|()| self.wire.time.millis())
        });
        known.map_or_else(|| SystemClock.wall(), timestamp)
    }

    pub(super) fn monotonic(&self) -> Monotonic {
        self.clock.as_ref().map_or_else(|| SystemClock.monotonic(), |clock| clock.monotonic())
    }

    /// [`NatsTransport::now`] without asking the server, in milliseconds since the Unix epoch. A connection that
    /// follows a mailbox knows it. Callers may hold an index, so this never waits.
    pub(super) fn now_millis(&self) -> u64 {
        match (&self.clock, self.wire.time.millis()) {
            (Some(clock), _) => unix_millis(clock.wall()),
            (None, Some(known)) => known,
            (None, None) => unix_millis(SystemClock.wall()),
        }
    }
}
