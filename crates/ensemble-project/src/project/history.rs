//! How long what people look up is kept.

use std::time::Duration;

use super::Config;

/// The default, in days.
const HISTORY_DAYS_DEFAULT: u64 = 30;

impl Config {
    /// How long rejected files, counts of reviews, batches and segments of the event log are kept.
    #[must_use]
    pub fn history_kept(&self) -> Duration {
        let days = self.history_days.unwrap_or(HISTORY_DAYS_DEFAULT);
        Duration::from_secs(days.saturating_mul(24 * 60 * 60))
    }
}
