//! One typist a pane, across processes.

use std::path::Path;
use std::time::Duration;

use super::EXCHANGE_LIMIT;
use ensemble_core::Result;
use ensemble_core::durable::FileLock;

/// How long to wait for a process that types before us: longer than any profile's delay before
/// Enter.
pub(super) const LOCK_LIMIT: Duration = EXCHANGE_LIMIT;

/// The right to type into one pane; dropping it releases the right.
#[derive(Debug)]
pub(crate) struct PaneLock(#[expect(dead_code, reason = "held, not used")] FileLock);

impl PaneLock {
    /// Waits at most [`LOCK_LIMIT`] for the right to type into the pane with this token.
    pub(crate) fn wait_for_lock(directory: &Path, token: &str) -> Result<Self> {
        Self::acquire(directory, token, LOCK_LIMIT)
    }

    /// Waits for the right to type into the pane with this token, usually [`LOCK_LIMIT`].
    pub(super) fn acquire(directory: &Path, token: &str, patience: Duration) -> Result<Self> {
        FileLock::acquire(&directory.join(format!("pane-{token}.lock")), patience).map(Self)
    }
}
