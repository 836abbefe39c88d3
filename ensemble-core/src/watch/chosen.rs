//! The backend of file events that a program has chosen, where it has both. One is inotify, read by the thread that
//! waits. The other is the crate `notify`, as on other systems, so that the watcher's tests can run with it on Linux.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::InotifyWatcher as Inotify;
use super::portable::PortableWatcher;
use super::{FsEvent, WatchError};

static IS_NOTIFY: AtomicBool = AtomicBool::new(false);

/// From now on, each new [`FsWatcher`] of this process uses the crate `notify`.
pub fn choose_notify() {
    IS_NOTIFY.store(true, Ordering::Relaxed);
}

/// Reports files that land in the watched directories, by inotify or as [`choose_notify`] says.
#[derive(Debug)]
pub struct FsWatcher(WatchBackend);

#[derive(Debug)]
enum WatchBackend {
    Inotify(Inotify),
    Notify(PortableWatcher),
}

impl AsFd for FsWatcher {
    /// Can be polled together with other descriptors: readable when [`FsWatcher::take_events`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            WatchBackend::Inotify(watcher) => watcher.as_fd(),
            WatchBackend::Notify(watcher) => watcher.as_fd(),
        }
    }
}

impl FsWatcher {
    pub fn new() -> Result<Self, WatchError> {
        let backend = match IS_NOTIFY.load(Ordering::Relaxed) {
            false => WatchBackend::Inotify(Inotify::new()?),
            true => WatchBackend::Notify(PortableWatcher::new()?),
        };
        Ok(Self(backend))
    }

    /// Watches a directory, or one file, which must exist.
    pub fn watch(&mut self, path: &Path) -> Result<(), WatchError> {
        match &mut self.0 {
            WatchBackend::Inotify(watcher) => watcher.watch(path),
            WatchBackend::Notify(watcher) => watcher.watch(path),
        }
    }

    /// As [`FsWatcher::watch`], and also reports growing databases.
    pub fn watch_logs(&mut self, path: &Path) -> Result<(), WatchError> {
        match &mut self.0 {
            WatchBackend::Inotify(watcher) => watcher.watch_logs(path),
            WatchBackend::Notify(watcher) => watcher.watch_logs(path),
        }
    }

    pub fn is_watched(&self, path: &Path) -> bool {
        match &self.0 {
            WatchBackend::Inotify(watcher) => watcher.is_watched(path),
            WatchBackend::Notify(watcher) => watcher.is_watched(path),
        }
    }

    pub fn unwatch(&mut self, path: &Path) {
        match &mut self.0 {
            WatchBackend::Inotify(watcher) => watcher.unwatch(path),
            WatchBackend::Notify(watcher) => watcher.unwatch(path),
        }
    }

    /// Returns some of the pending events, without waiting.
    pub fn take_events(&mut self) -> Vec<FsEvent> {
        match &mut self.0 {
            WatchBackend::Inotify(watcher) => watcher.take_events(),
            WatchBackend::Notify(watcher) => watcher.take_events(),
        }
    }
}
