//! `readiness` and `ladder` in `ensemble.yaml`: the times of assignments and deliveries.

use std::path::Path;
use std::time::Duration;

use ensemble_core::proto::ack::Phase;
use ensemble_core::proto::{ack, ready};
use ensemble_core::{Error, Result};
use ensemble_tmux::provider::Profile;
use serde::{Deserialize, Serialize};

use super::Config;

/// The largest `max_phases`.
const PHASES_MAX: u8 = Phase::ResetContext.number() + 1;

/// `readiness` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ReadinessConfig {
    /// How long to wait for a pong, in seconds (default 5).
    pub wait_seconds: Option<u64>,
    /// How long to wait before the next ping, in seconds (default 5).
    pub retry_seconds: Option<u64>,
    /// Number of pings, 1 to 99 (default 3).
    pub attempts: Option<u8>,
}

/// `ladder` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LadderConfig {
    /// How long each phase waits for the ack, in seconds (default 60).
    pub phase_seconds: Option<u64>,
    /// The longest additional wait for a worker that may not be interrupted, in seconds (default
    /// 1800).
    pub ceiling_seconds: Option<u64>,
    /// How many phases there are before the conductor is told, 1 to 4 (default 4). With 1 there is
    /// the delivery alone, with 2 a nudge as well.
    pub max_phases: Option<u8>,
}

impl ReadinessConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        Self {
            wait_seconds: self.wait_seconds.or(fallback.wait_seconds),
            retry_seconds: self.retry_seconds.or(fallback.retry_seconds),
            attempts: self.attempts.or(fallback.attempts),
        }
    }
}

impl LadderConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        Self {
            phase_seconds: self.phase_seconds.or(fallback.phase_seconds),
            ceiling_seconds: self.ceiling_seconds.or(fallback.ceiling_seconds),
            max_phases: self.max_phases.or(fallback.max_phases),
        }
    }

    pub(super) fn check(self, path: &Path) -> Result<()> {
        match self.max_phases {
            Some(count) if !(1..=PHASES_MAX).contains(&count) => {
                let detail = format!("is {count}, and must be 1 to {PHASES_MAX}");
                Err(Error::malformed(path, "ladder.max_phases", detail))
            }
            _ => Ok(()),
        }
    }
}

impl Config {
    /// Times of the handshake before an assignment.
    #[must_use]
    pub fn handshake(&self) -> ready::Config {
        let usual = ready::Config::default();
        let ReadinessConfig { wait_seconds, retry_seconds, attempts } = self.readiness;
        let attempts_max = attempts.unwrap_or(usual.attempts_max).clamp(1, ready::ATTEMPTS_LIMIT);
        usual
            .with_pong_wait(wait_seconds.map_or(usual.pong_wait, Duration::from_secs))
            .with_retry_delay(retry_seconds.map_or(usual.retry_delay, Duration::from_secs))
            .with_attempts_max(attempts_max)
    }

    /// Times of the ladder for a worker of this profile, and the keys it may press.
    #[must_use]
    pub fn ladder_for(&self, profile: Option<&Profile>) -> ack::Config {
        let usual = match profile {
            // The plain ladder, for agents without a known profile.
            Some(profile) if profile.name() == "generic" => ack::Config::generic(),
            _ => ack::Config::default(),
        };
        let LadderConfig { phase_seconds, ceiling_seconds, max_phases } = self.ladder;
        let phase_last = max_phases.and_then(|count| Phase::of_number(count.checked_sub(1)?));
        usual
            .with_phase_timeout(phase_seconds.map_or(usual.phase_timeout, Duration::from_secs))
            .with_wait_max(ceiling_seconds.map_or(usual.wait_max, Duration::from_secs))
            .with_phase_last(phase_last.unwrap_or(usual.phase_last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_phase_can_be_set() {
        for (count, last) in [(1, Phase::Deliver), (2, Phase::Nudge), (4, Phase::ResetContext)] {
            let text = format!("ladder: {{max_phases: {count}}}\n");
            let config = Config::parse(&text, "ensemble.yaml".as_ref()).unwrap();
            assert_eq!(config.ladder_for(None).phase_last, last);
        }
        for count in [0, 5] {
            let text = format!("ladder: {{max_phases: {count}}}\n");
            let error = Config::parse(&text, "ensemble.yaml".as_ref()).unwrap_err().to_string();
            assert!(error.contains("ladder.max_phases"), "{error}");
        }
    }
}
