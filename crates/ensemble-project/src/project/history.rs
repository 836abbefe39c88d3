//! How long what people look up is kept.

use std::time::Duration;

use super::ProjectConfig;

const HISTORY_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl ProjectConfig {
    pub fn history_kept(&self) -> Duration {
        self.history.map_or(HISTORY_DEFAULT, Duration::from)
    }
}
