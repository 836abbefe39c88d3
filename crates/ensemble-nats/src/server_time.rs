//! The server's time, which all hosts share. It is known from the creation of a consumer, and continues with
//! this host's monotonic clock. So a wrong wall clock of a host delays, expires and removes nothing.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::lock;
use ensemble_core::message::Timestamp;

#[derive(Clone, Debug, Default)]
pub(super) struct ServerTime(Arc<Mutex<Option<MeasuredTime>>>);

#[derive(Clone, Copy, Debug)]
struct MeasuredTime {
    /// The server's time, in milliseconds since the Unix epoch.
    millis: u64,
    at: Instant,
}

impl ServerTime {
    pub(super) fn set_time(&self, told: time::OffsetDateTime) {
        *lock(&self.0) = Some(MeasuredTime { millis: millis(told), at: Instant::now() });
    }

    /// The server's time now, in milliseconds since the Unix epoch; `None` if it is not known.
    pub(super) fn millis(&self) -> Option<u64> {
        let MeasuredTime { millis, at } = (*lock(&self.0))?;
        Some(millis.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }
}

pub(super) fn timestamp(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// A time of the server, in milliseconds since the Unix epoch.
pub(super) fn millis(time: time::OffsetDateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
