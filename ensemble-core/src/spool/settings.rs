//! Settings of one mailbox: `mailbox/<name>/mailbox.yaml`, written by hand or by `ensemble mailbox add`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mail::LEASE_SECONDS_MAX;
use crate::message::period::{read_days, read_seconds};

pub const LEASE_SECONDS_DEFAULT: u64 = 300;
pub const ATTEMPTS_MAX_DEFAULT: u64 = 5;
/// How long settled messages are kept, in days. Within this time an id cannot be stored twice.
pub const DONE_DAYS_DEFAULT: u64 = 7;

/// The settings of one mailbox.
///
/// ```
/// use ensemble_core::{Queue, Settings};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let mut settings = Settings::default().with_lease_seconds(60).with_attempts_max(3).with_capacity(1_000);
/// settings.done_days = 30;
/// let inbox = queue.mailbox_with("worker-1", &settings)?;
/// assert_eq!(inbox.settings()?.lease_duration().as_secs(), 60);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// How many messages may wait; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// How often a message is delivered before it is dead-lettered.
    pub attempts_max: u64,
    /// How long a received message is held without an extension, in seconds.
    #[serde(deserialize_with = "read_seconds")]
    pub lease_seconds: u64,
    /// How long settled messages are kept, in days.
    #[serde(deserialize_with = "read_days")]
    pub done_days: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            capacity: None,
            attempts_max: ATTEMPTS_MAX_DEFAULT,
            lease_seconds: LEASE_SECONDS_DEFAULT,
            done_days: DONE_DAYS_DEFAULT,
        }
    }
}

impl Settings {
    /// With room for this number of waiting messages.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: u64) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// With this number of deliveries before a message is dead-lettered.
    #[must_use]
    pub const fn with_attempts_max(mut self, attempts_max: u64) -> Self {
        self.attempts_max = attempts_max;
        self
    }

    /// With leases of this number of seconds.
    #[must_use]
    pub const fn with_lease_seconds(mut self, lease_seconds: u64) -> Self {
        self.lease_seconds = lease_seconds;
        self
    }

    /// How long a received message is held without an extension.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Settings {
    /// The first invalid value, with its field.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if self.lease_seconds == 0 || self.lease_seconds > LEASE_SECONDS_MAX {
            return Some((
                "lease_seconds",
                format!("{} is not in 1 to {LEASE_SECONDS_MAX}", self.lease_seconds),
            ));
        }
        if self.attempts_max == 0 {
            return Some(("attempts_max", "a message needs at least one attempt".to_owned()));
        }
        if self.capacity == Some(0) {
            return Some((
                "capacity",
                "a mailbox of 0 messages can hold none: leave it out for no limit".to_owned(),
            ));
        }
        None
    }
}
