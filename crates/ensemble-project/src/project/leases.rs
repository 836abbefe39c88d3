//! `leases` in `ensemble.yaml`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Extension of leases by the watcher (docs/protocol/leases.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LeasesConfig {
    /// How long the watcher extends a lease while it sees the holder working, in hours (default 8; 0 for not at
    /// all).
    pub extend_max_hours: Option<u64>,
}

impl LeasesConfig {
    /// The default of `extend_max_hours`.
    pub const EXTEND_MAX_HOURS: u64 = 8;

    pub(super) fn or(self, fallback: Self) -> Self {
        Self { extend_max_hours: self.extend_max_hours.or(fallback.extend_max_hours) }
    }

    /// How long the watcher extends a lease.
    #[must_use]
    pub fn extend_max(self) -> Duration {
        let hours = self.extend_max_hours.unwrap_or(Self::EXTEND_MAX_HOURS);
        Duration::from_secs(hours.saturating_mul(60 * 60))
    }
}
