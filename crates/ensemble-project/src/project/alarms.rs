//! `alarms` in `ensemble.yaml`.

use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_team::board::AlarmGraces;
use serde::{Deserialize, Serialize};

use ensemble_core::message::ConfigDuration;

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

super::merge::fill_absent!(AlarmsConfig: to, orphan, stalled, draft, untaken);

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
