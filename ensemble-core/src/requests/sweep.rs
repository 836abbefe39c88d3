//! Forgetting: requests that were closed long ago, and what killed processes have left.

use std::time::Duration;

use super::Requests;
use crate::Result;

/// How long a closed request is kept.
pub const CLOSED_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long the demand of a plan and the proof of its approval are kept.
pub const DEMAND_KEPT: Duration = Duration::from_secs(90 * 24 * 3_600);

impl Requests<'_> {
    /// Removes requests that were closed 30 days ago and that no gate names. Also removes gates whose request was
    /// never made, and directories of killed senders in `tmp/`. Returns how much was removed.
    pub fn sweep(&self) -> Result<usize> {
        let _lock = self.store.lock()?;
        self.store.sweep_requests()
    }
}
