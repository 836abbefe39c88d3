//! `leases` in `ensemble.yaml`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ensemble_core::message::ConfigDuration;

/// Extension of leases by the watcher (docs/protocol/leases.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LeasesConfig {
    /// How long the watcher extends a lease while it sees the holder working (default 8h; 0 for not at all).
    pub extend_max: Option<ConfigDuration>,
}

super::merge::fill_absent!(LeasesConfig: extend_max);

impl LeasesConfig {
    const EXTEND_MAX: Duration = Duration::from_secs(8 * 60 * 60);

    pub fn extend_max(self) -> Duration {
        self.extend_max.map_or(Self::EXTEND_MAX, Duration::from)
    }
}
