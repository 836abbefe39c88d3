//! `readiness` and `ladder` in `ensemble.yaml`: the times of assignments and deliveries.

use std::path::Path;
use std::time::Duration;

use ensemble_core::proto::ack::Phase;
use ensemble_core::proto::{ack, ready};
use ensemble_core::{Error, Result};
use ensemble_tmux::provider::Profile;
use serde::{Deserialize, Serialize};

use super::ProjectConfig;
use ensemble_core::message::ConfigDuration;

const PHASES_MAX: u8 = Phase::ResetContext.number() + 1;

/// `readiness` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReadinessConfig {
    /// How long to wait for a pong (default 5s).
    pub wait: Option<ConfigDuration>,
    /// How long to wait before the next ping (default 5s).
    pub retry: Option<ConfigDuration>,
    /// Number of pings, 1 to 99 (default 3).
    pub attempts: Option<u8>,
}

super::sections::fill_absent!(ReadinessConfig: wait, retry, attempts);

/// `ladder` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LadderConfig {
    /// How long each phase waits for the ack (default 1m).
    pub phase: Option<ConfigDuration>,
    /// The longest additional wait for a worker that may not be interrupted, in seconds (default
    /// 1800).
    pub ceiling: Option<ConfigDuration>,
    /// How many phases there are before the conductor is notified, 1 to 4 (default 4). With 1 there is
    /// the delivery alone, with 2 a nudge as well.
    pub max_phases: Option<u8>,
}

super::sections::fill_absent!(LadderConfig: phase, ceiling, max_phases);

impl ProjectConfig {
    pub(super) fn check_counts(&self, path: &Path) -> Result<()> {
        for (field, count, most) in [
            ("ladder.max_phases", self.ladder.max_phases, PHASES_MAX),
            ("readiness.attempts", self.readiness.attempts, ready::ATTEMPTS_LIMIT),
        ] {
            if let Some(count) = count.filter(|count| !(1..=most).contains(count)) {
                let detail = format!("is {count}, and must be 1 to {most}");
                return Err(Error::malformed(path, field, detail));
            }
        }
        Ok(())
    }

    pub fn handshake(&self) -> ready::PingTimes {
        let usual = ready::PingTimes::default();
        let ReadinessConfig { wait, retry, attempts } = self.readiness;
        ready::PingTimes {
            pong_wait: wait.map_or(usual.pong_wait, Duration::from),
            retry_delay: retry.map_or(usual.retry_delay, Duration::from),
            attempts_max: attempts.unwrap_or(usual.attempts_max),
            ..usual
        }
    }

    /// Times of the ladder for a worker of this profile, and the keys it may press.
    pub fn ladder_for(&self, profile: Option<&Profile>) -> ack::LadderSettings {
        let usual = match profile {
            // The plain ladder, for agents without a known profile.
            Some(profile) if profile.name() == "generic" => ack::LadderSettings::generic(),
            _ => ack::LadderSettings::default(),
        };
        let LadderConfig { phase, ceiling, max_phases } = self.ladder;
        let phase_last = max_phases.and_then(|count| Phase::of_number(count.checked_sub(1)?));
        ack::LadderSettings {
            phase_timeout: phase.map_or(usual.phase_timeout, Duration::from),
            wait_max: ceiling.map_or(usual.wait_max, Duration::from),
            phase_last: phase_last.unwrap_or(usual.phase_last),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_phase_can_be_set() {
        for (count, last) in [(1, Phase::Deliver), (2, Phase::Nudge), (4, Phase::ResetContext)] {
            let text = format!("ladder: {{max_phases: {count}}}\n");
            let config = ProjectConfig::parse(&text, "ensemble.yaml".as_ref()).unwrap();
            assert_eq!(config.ladder_for(None).phase_last, last);
        }
        for count in [0, 5] {
            let text = format!("ladder: {{max_phases: {count}}}\n");
            let error =
                ProjectConfig::parse(&text, "ensemble.yaml".as_ref()).unwrap_err().to_string();
            assert!(error.contains("ladder.max_phases"), "{error}");
        }
    }
}
