//! Sleeps until a file lands.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{FsEvent, FsWatcher, READS_MAX, WatchError};

/// Waits for a file to land in one of some directories, for consumers that sleep until mail comes.
/// Without inotify it falls back to short waits.
#[derive(Debug)]
pub struct Waiter {
    watcher: Option<Mutex<FsWatcher>>,
}

/// Maximum sleep of a [`Waiter`] without inotify.
pub const POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// Time after which a [`Waiter`] lets its owner look without an event.
pub const POLL_WITH_EVENTS: Duration = Duration::from_secs(5);

impl Waiter {
    /// Starts listening: no file that lands from now on is missed. Look once after this call, then
    /// wait, then look again.
    pub fn new(dirs: &[PathBuf]) -> Self {
        Self::with(dirs, FsWatcher::watch)
    }

    /// As [`Waiter::new`], also for growing databases in these directories.
    pub fn for_logs(dirs: &[PathBuf]) -> Self {
        Self::with(dirs, FsWatcher::watch_logs)
    }

    fn with(dirs: &[PathBuf], watch: fn(&mut FsWatcher, &Path) -> Result<(), WatchError>) -> Self {
        let watcher = FsWatcher::new().and_then(|mut watcher| {
            dirs.iter().try_for_each(|dir| watch(&mut watcher, dir)).map(|()| watcher)
        });
        Self { watcher: watcher.ok().map(Mutex::new) }
    }

    /// Sleeps until an event, the end of `patience`, or the time of a regular look. The caller must look for what has
    /// changed. If several threads wait, one of them receives an event.
    pub fn wait(&self, patience: Duration) {
        let Some(watcher) = &self.watcher else {
            return std::thread::sleep(patience.min(POLL_WITHOUT_EVENTS));
        };
        let began = Instant::now();
        let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = watcher.wait(patience.min(POLL_WITH_EVENTS));
        if events.iter().any(|event| matches!(event, FsEvent::Failed { .. })) {
            // No more events will come; the sleep keeps the owner from spinning.
            let nap = patience.min(POLL_WITHOUT_EVENTS).saturating_sub(began.elapsed());
            return std::thread::sleep(nap);
        }
        // One look answers all pending events.
        for _ in 0..READS_MAX {
            if events.is_empty() {
                break;
            }
            events = watcher.take_events();
        }
    }
}
