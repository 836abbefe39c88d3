//! Sleeps until a file lands.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Doorbell, READS_MAX, Ring};

/// Waits for a file to land in one of some directories: for consumers that sleep until there is
/// mail. Without inotify it falls back to short waits.
#[derive(Debug)]
pub struct Waiter {
    doorbell: Option<Mutex<Doorbell>>,
}

/// Maximum sleep of a [`Waiter`] without inotify.
pub const POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// Time after which a [`Waiter`] lets its owner look without an event.
pub const POLL_WITH_EVENTS: Duration = Duration::from_secs(5);

impl Waiter {
    /// Starts listening: no file that lands from now on is missed. Look once after this call, then
    /// wait, then look again.
    #[must_use]
    pub fn new(dirs: &[PathBuf]) -> Self {
        Self::with(dirs, Doorbell::watch)
    }

    /// As [`Waiter::new`], also for growing databases in these directories.
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

    /// Sleeps until an event, the end of `patience`, or the time of a regular look. Does not tell
    /// which: look. If several threads wait, one of them receives an event.
    pub fn wait(&self, patience: Duration) {
        let Some(doorbell) = &self.doorbell else {
            return std::thread::sleep(patience.min(POLL_WITHOUT_EVENTS));
        };
        let began = Instant::now();
        let mut doorbell = doorbell.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rings = doorbell.wait(patience.min(POLL_WITH_EVENTS));
        if rings.iter().any(|ring| matches!(ring, Ring::Failed { .. })) {
            // No more events will come; the sleep keeps the owner from spinning.
            let nap = patience.min(POLL_WITHOUT_EVENTS).saturating_sub(began.elapsed());
            return std::thread::sleep(nap);
        }
        // One look answers all pending events.
        for _ in 0..READS_MAX {
            if rings.is_empty() {
                break;
            }
            rings = doorbell.take();
        }
    }
}
