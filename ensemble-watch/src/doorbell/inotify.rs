//! The doorbell on Linux: one thread that blocks in `read` on an inotify instance.
//!
//! Without a poll before the read and with a mask of just what can ring, it is a third faster than
//! a portable watcher, and the kernel's queue (16,384 events) holds landings only, not every open
//! and close.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::Ring;

/// How many bytes of events are read at once: some two hundred of usual names.
const BUFFER_BYTES: usize = 16 * 1024;

/// What rings.
const MASK: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Directories that are watched.
#[derive(Debug)]
pub(super) struct Source {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inotify: OwnedFd,
    dirs: Mutex<HashMap<i32, PathBuf>>,
    ended: AtomicBool,
}

impl Source {
    pub(super) fn new(ring: impl Fn(Ring) + Send + 'static) -> Result<Self, String> {
        let inotify = inotify::init(CreateFlags::CLOEXEC).map_err(explain)?;
        let ended = AtomicBool::new(false);
        let shared = Arc::new(Shared { inotify, dirs: Mutex::default(), ended });
        let listener = Arc::clone(&shared);
        thread::Builder::new()
            .name("doorbell".to_owned())
            .spawn(move || listener.listen(ring))
            .map_err(|error| error.to_string())?;
        Ok(Self { shared })
    }

    pub(super) fn watch(&mut self, dir: &Path) -> Result<(), String> {
        // Held over both, so that the first event finds its directory.
        let mut dirs = self.shared.dirs();
        let watch = inotify::add_watch(&self.shared.inotify, dir, MASK).map_err(explain)?;
        dirs.insert(watch, dir.to_owned());
        Ok(())
    }

    pub(super) fn unwatch(&mut self, dir: &Path) {
        let mut dirs = self.shared.dirs();
        let watches: Vec<i32> = dirs.iter().filter(|(_, d)| *d == dir).map(|(w, _)| *w).collect();
        for watch in watches {
            dirs.remove(&watch);
            // It may be gone already, and its watch with it.
            let _ = inotify::remove_watch(&self.shared.inotify, watch);
        }
    }
}

impl Drop for Source {
    /// Wakes the thread for the last time: a watch that is removed makes an event.
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Ok(watch) = inotify::add_watch(&self.shared.inotify, "/", WatchFlags::DELETE_SELF) {
            let _ = inotify::remove_watch(&self.shared.inotify, watch);
        }
    }
}

impl Shared {
    fn dirs(&self) -> MutexGuard<'_, HashMap<i32, PathBuf>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, ring: impl Fn(Ring)) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(error) => return ring(Ring::Failed { why: explain(error) }),
            };
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            if let Some(rung) = self.meaning(&event) {
                ring(rung);
            }
        }
    }

    fn meaning(&self, event: &Event<'_>) -> Option<Ring> {
        let flags = event.events();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(Ring::Overflow);
        }
        let gone =
            ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if flags.intersects(gone) {
            let mut dirs = self.dirs();
            let dir = dirs.get(&event.wd()).cloned();
            if flags.contains(ReadFlags::IGNORED) {
                dirs.remove(&event.wd());
            }
            return dir.map(|path| Ring::Replaced { path });
        }
        let name = event.file_name()?.to_str().ok()?.to_owned();
        let dir = self.dirs().get(&event.wd())?.clone();
        Some(if flags.contains(ReadFlags::MOVED_FROM) {
            Ring::Left { dir, name }
        } else {
            Ring::Landed { dir, name, whole: flags.contains(ReadFlags::MOVED_TO) }
        })
    }
}

fn explain(error: Errno) -> String {
    match error {
        Errno::NOSPC => {
            "no inotify watch left: raise fs.inotify.max_user_watches with sysctl".to_owned()
        }
        Errno::MFILE => {
            "no inotify instance left: raise fs.inotify.max_user_instances with sysctl".to_owned()
        }
        other => std::io::Error::from(other).to_string(),
    }
}
