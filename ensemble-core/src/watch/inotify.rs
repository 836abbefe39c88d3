//! File notification by inotify, read by the thread that waits.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::event::LOG_SUFFIX;
use super::{FsEvent, Landing, READS_MAX, WatchError};

/// Bytes of events read at a time: some 250 events.
const READ_BYTES: usize = 16 * 1024;
/// The watched events. Reading a directory must not be one, or a listener would wake itself forever.
const WATCHED: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::CREATE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Reports files that land in the watched directories.
#[derive(Debug)]
pub struct InotifyWatcher {
    /// `None` only during drop.
    inotify: Option<OwnedFd>,
    watched: HashMap<PathBuf, i32>,
    /// Paths by watch descriptor. Two paths may lead to the same directory.
    places: HashMap<i32, PathBuf>,
}

impl AsFd for InotifyWatcher {
    /// Can be polled together with other descriptors: readable when [`InotifyWatcher::take_events`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.inotify {
            Some(inotify) => inotify.as_fd(),
            None => unreachable!("inotify is open until drop"),
        }
    }
}

impl Drop for InotifyWatcher {
    /// Closing inotify can block for milliseconds, so a short-lived thread does it.
    fn drop(&mut self) {
        let inotify = self.inotify.take();
        // Without a thread, the descriptor is dropped here.
        let _ = std::thread::Builder::new().spawn(move || drop(inotify));
    }
}

impl InotifyWatcher {
    /// The system has no instance left (`fs.inotify.max_user_instances`).
    pub fn new() -> Result<Self, WatchError> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| WatchError::system("create a file watcher", error))?;
        let inotify = Some(inotify);
        Ok(Self { inotify, watched: HashMap::new(), places: HashMap::new() })
    }

    /// Watches a directory, or one file, which must exist.
    pub fn watch(&mut self, path: &Path) -> Result<(), WatchError> {
        if self.watched.contains_key(path) { Ok(()) } else { self.add(path, WATCHED) }
    }

    /// As [`InotifyWatcher::watch`], and also reports growing databases. Each write to any file there wakes the listener.
    /// Use it only for directories that Ensemble alone writes to, and for the log itself.
    pub fn watch_logs(&mut self, path: &Path) -> Result<(), WatchError> {
        self.add(path, WATCHED | WatchFlags::MODIFY)
    }

    fn add(&mut self, path: &Path, flags: WatchFlags) -> Result<(), WatchError> {
        let number = inotify::add_watch(self.as_fd(), path, flags)
            .map_err(|error| WatchError::of_path(path, error))?;
        self.watched.insert(path.to_owned(), number);
        self.places.insert(number, path.to_owned());
        Ok(())
    }

    pub fn is_watched(&self, path: &Path) -> bool {
        self.watched.contains_key(path)
    }

    pub fn unwatch(&mut self, path: &Path) {
        let Some(number) = self.watched.remove(path) else { return };
        match self.watched.iter().find(|(_, other)| **other == number) {
            // The same directory under another name.
            Some((other, _)) => drop(self.places.insert(number, other.clone())),
            None => {
                self.places.remove(&number);
                // The directory may be gone already, and its watch with it.
                let _ = inotify::remove_watch(self.as_fd(), number);
            }
        }
    }

    /// Returns some of the pending events, without waiting.
    pub fn take_events(&mut self) -> Vec<FsEvent> {
        let mut events = Vec::new();
        let mut gone = HashSet::new();
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut reader = inotify::Reader::new(self.as_fd(), &mut buffer);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                if reads == READS_MAX || !events.is_empty() {
                    break;
                }
                reads += 1;
            }
            match reader.next() {
                Ok(raw) if raw.events().contains(ReadFlags::IGNORED) => {
                    gone.insert(raw.wd());
                }
                Ok(raw) => {
                    let place = self.places.get(&raw.wd()).map(PathBuf::as_path);
                    events.extend(translate(raw.events(), place, raw.file_name()));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    let error = WatchError::system("read file events", error);
                    events.push(FsEvent::Failed { error });
                    break;
                }
            }
        }
        if !gone.is_empty() {
            self.places.retain(|number, _| !gone.contains(number));
            self.watched.retain(|_, number| !gone.contains(number));
        }
        events
    }
}

pub(super) fn translate(
    events: ReadFlags,
    place: Option<&Path>,
    name: Option<&CStr>,
) -> Option<FsEvent> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(FsEvent::Overflow);
    }
    // An event of a removed watch.
    let place = place?;
    if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
        return Some(FsEvent::Replaced { path: place.to_owned() });
    }
    let landed = |how| {
        // The event of a watched file has no name.
        let (dir, name) = match name {
            Some(name) => match name.to_str() {
                Ok(name) => (place, name),
                Err(_) => return Some(FsEvent::Strange { dir: place.to_owned() }),
            },
            None => (place.parent()?, place.file_name()?.to_str()?),
        };
        Some(FsEvent::Landed { dir: dir.to_owned(), name: name.to_owned(), how })
    };
    if events.contains(ReadFlags::MOVED_TO) {
        landed(Landing::Renamed)
    } else if events.contains(ReadFlags::CREATE) {
        landed(Landing::Created)
    } else if events.contains(ReadFlags::CLOSE_WRITE) {
        landed(Landing::Closed)
    } else if events.contains(ReadFlags::MODIFY) {
        // Other files that are written in place raise an event when they are closed.
        landed(Landing::Written).filter(
            |event| matches!(event, FsEvent::Landed { name, .. } if name.ends_with(LOG_SUFFIX)),
        )
    } else if events.contains(ReadFlags::DELETE) && events.contains(ReadFlags::ISDIR) {
        Some(FsEvent::Replaced { path: place.join(OsStr::from_bytes(name?.to_bytes())) })
    } else if events.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
        Some(FsEvent::Left { dir: place.to_owned() })
    } else {
        None
    }
}
