//! Sleeping until something lands.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Doorbell, READS_MAX, Ring};

/// Waits for something to land in some directories: for consumers that want to sleep until there
/// is mail. Falls back to short waits where nothing can ring.
#[derive(Debug)]
pub struct Waiter {
    doorbell: Option<Mutex<Doorbell>>,
}

/// How long a [`Waiter`] sleeps at most when nothing can ring.
pub const POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// How long a [`Waiter`] trusts its doorbell before it lets its owner look anyway.
pub const POLL_WITH_EVENTS: Duration = Duration::from_secs(5);

impl Waiter {
    /// Begins to listen: what lands from now on is not missed. Look once after this call, then
    /// wait, then look again.
    #[must_use]
    pub fn new(dirs: &[PathBuf]) -> Self {
        Self::with(dirs, Doorbell::watch)
    }

    /// As [`Waiter::new`], also for databases in there that grow.
    #[must_use]
    pub fn for_logs(dirs: &[PathBuf]) -> Self {
        Self::with(dirs, Doorbell::watch_logs)
    }

    fn with(dirs: &[PathBuf], watch: fn(&mut Doorbell, &Path) -> Result<(), String>) -> Self {
        let doorbell = Doorbell::new().and_then(|mut doorbell| {
            dirs.iter().try_for_each(|dir| watch(&mut doorbell, dir)).map(|()| doorbell)
        });
        Self { doorbell: doorbell.ok().map(Mutex::new) }
    }

    /// Sleeps until something rings, `patience` is over, or it is time to look anyway. Says
    /// nothing about which: look. Of several threads that wait, one hears a ring.
    pub fn wait(&self, patience: Duration) {
        let Some(doorbell) = &self.doorbell else {
            return std::thread::sleep(patience.min(POLL_WITHOUT_EVENTS));
        };
        let began = Instant::now();
        let mut doorbell = doorbell.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rings = doorbell.wait(patience.min(POLL_WITH_EVENTS));
        if rings.iter().any(|ring| matches!(ring, Ring::Failed { .. })) {
            // Nothing will ring any more, so sleeping is all that keeps its owner from spinning.
            let nap = patience.min(POLL_WITHOUT_EVENTS).saturating_sub(began.elapsed());
            return std::thread::sleep(nap);
        }
        // One look answers all that has rung so far.
        for _ in 0..READS_MAX {
            if rings.is_empty() {
                break;
            }
            rings = doorbell.take();
        }
    }
}
