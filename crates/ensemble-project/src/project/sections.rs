//! The small sections of `ensemble.yaml`, and how a section of the project precedes that of its user.

use std::time::Duration;

use ensemble_core::message::{ConfigDuration, Name, RESERVED_NAMES};
use ensemble_core::spool::Quota;
use ensemble_team::board::AlarmGraces;
use serde::{Deserialize, Serialize};

/// Gives a part of the configuration `or`: what it leaves out is as in another configuration.
macro_rules! fill_absent {
    ($part:ident: $($field:ident),+) => {
        impl $part {
            pub(super) fn or(self, fallback: Self) -> Self {
                Self { $($field: self.$field.or(fallback.$field)),+ }
            }
        }
    };
}

pub(super) use fill_absent;

/// Recipient and delays of the blackboard's alarms (docs/guides/board.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AlarmsConfig {
    /// Recipient's mailbox (default: a planner on the blackboard that has one, or `conductor`).
    pub to: Option<Name>,
    /// How long a rejected task may wait for its coder (default 30s).
    pub orphan: Option<ConfigDuration>,
    /// How long a claimed task may show no progress (default 30m).
    pub stalled: Option<ConfigDuration>,
    /// How long a task may be a draft (default 30m).
    pub draft: Option<ConfigDuration>,
    /// How long a task may wait for an agent that can take it (default 10m).
    pub untaken: Option<ConfigDuration>,
}

fill_absent!(AlarmsConfig: to, orphan, stalled, draft, untaken);

impl AlarmsConfig {
    pub fn graces(&self) -> AlarmGraces {
        let usual = AlarmGraces::default();
        let or = |set: Option<ConfigDuration>, usual| set.map_or(usual, Duration::from);
        AlarmGraces {
            orphan: or(self.orphan, usual.orphan),
            stalled: or(self.stalled, usual.stalled),
            draft: or(self.draft, usual.draft),
            untaken: or(self.untaken, usual.untaken),
        }
    }
}

/// What agents learn from their own hooks, and which are started with hooks (docs/guides/ways-in.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// How many bytes of messages one hook hands over (default 4096, at most 32768). A longer
    /// message is announced and waits to be received. 0 announces every message.
    pub carry_bytes: Option<u32>,
    /// The providers whose agents are started with hooks (default: those whose program asks no person to trust them). An
    /// empty list starts all without hooks and without tools.
    pub providers: Option<Vec<String>>,
}

fill_absent!(HooksConfig: carry_bytes, providers);

impl HooksConfig {
    pub const CARRY_BYTES: u32 = 4096;
    /// The largest `carry_bytes`: plain text of this size fits into one pipe.
    pub const CARRY_BYTES_MAX: u32 = 32 * 1024;

    pub fn carry_bytes(&self) -> usize {
        let bytes = self.carry_bytes.unwrap_or(Self::CARRY_BYTES).min(Self::CARRY_BYTES_MAX);
        usize::try_from(bytes).unwrap_or_default()
    }
}

/// Extension of leases by the watcher (docs/protocol/leases.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LeasesConfig {
    /// How long the watcher extends a lease while it sees the holder working (default 8h; 0 for not at all).
    pub extend_max: Option<ConfigDuration>,
}

fill_absent!(LeasesConfig: extend_max);

impl LeasesConfig {
    const EXTEND_MAX: Duration = Duration::from_secs(8 * 60 * 60);

    pub fn extend_max(self) -> Duration {
        self.extend_max.map_or(Self::EXTEND_MAX, Duration::from)
    }
}

/// `sender_quota` in `ensemble.yaml`. It does not count the senders `operator`, `unknown`, and
/// Ensemble's own parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// Number of messages (default 1000); 0 for no limit.
    pub messages: Option<u64>,
    /// Number of bytes, with attachments (default 64 MiB).
    pub bytes: Option<u64>,
}

fill_absent!(QuotaConfig: messages, bytes);

impl QuotaConfig {
    /// For programs that send for a sender. The watcher routes without it: it would look again for
    /// each file of a sender that floods the drop box, and other files would wait.
    pub fn quota(self) -> Option<Quota> {
        let mut quota = Quota::default();
        quota.messages = self.messages.unwrap_or(quota.messages);
        quota.bytes = self.bytes.unwrap_or(quota.bytes);
        let exempt = RESERVED_NAMES.iter().filter_map(|name| Name::new(*name).ok());
        (quota.messages > 0).then(|| quota.exempting(exempt))
    }
}
