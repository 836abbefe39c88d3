//! `alarms` in `ensemble.yaml`.

use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_team::board::Graces;
use serde::{Deserialize, Serialize};

/// Recipient and delays of the blackboard's alarms (docs/guides/board.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AlarmsConfig {
    /// Recipient's mailbox (default: a planner on the blackboard that has one, else `conductor`).
    pub to: Option<Name>,
    /// How long a rejected task may wait for its coder, in seconds (default 30).
    pub orphan_seconds: Option<u64>,
    /// How long a claimed task may show no progress, in seconds (default 1800).
    pub stalled_seconds: Option<u64>,
    /// How long a task may be a draft, in seconds (default 1800).
    pub draft_seconds: Option<u64>,
    /// How long a task may wait for an agent that can take it, in seconds (default 600).
    pub untaken_seconds: Option<u64>,
}

impl AlarmsConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        Self {
            to: self.to.or(fallback.to),
            orphan_seconds: self.orphan_seconds.or(fallback.orphan_seconds),
            stalled_seconds: self.stalled_seconds.or(fallback.stalled_seconds),
            draft_seconds: self.draft_seconds.or(fallback.draft_seconds),
            untaken_seconds: self.untaken_seconds.or(fallback.untaken_seconds),
        }
    }

    /// How long a condition may last before its alarm is raised.
    #[must_use]
    pub fn graces(&self) -> Graces {
        let usual = Graces::default();
        let or = |seconds: Option<u64>, usual| seconds.map_or(usual, Duration::from_secs);
        Graces {
            orphan: or(self.orphan_seconds, usual.orphan),
            stalled: or(self.stalled_seconds, usual.stalled),
            draft: or(self.draft_seconds, usual.draft),
            untaken: or(self.untaken_seconds, usual.untaken),
        }
    }
}
