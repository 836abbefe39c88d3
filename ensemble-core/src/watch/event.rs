//! The events of a [`FsWatcher`](super::FsWatcher), and the inotify event behind each.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::ReadFlags;

use super::WatchError;

/// Suffix of an SQLite database's log.
const LOG_SUFFIX: &str = "-wal";

/// The operation by which a file landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Renamed into place, so the file is whole.
    Renamed,
    /// Its writer closed it, and may open it again.
    Closed,
    /// Created: linked into place and whole, or just begun.
    Created,
    /// A database's log (`…-wal`) has grown; its writer keeps it open. Only with
    /// [`FsWatcher::watch_logs`](super::FsWatcher::watch_logs).
    Written,
}

/// An event. Its content is only a hint: look at the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FsEvent {
    /// A file landed.
    Landed {
        /// The watched directory.
        dir: PathBuf,
        /// The file's name.
        name: String,
        /// The operation that put the file there.
        how: Landing,
    },
    /// A file was renamed away or removed.
    Left {
        /// The watched directory.
        dir: PathBuf,
    },
    /// Events were lost: look at everything.
    Overflow,
    /// A watched directory was removed or renamed.
    Replaced {
        /// The directory, or a path that was in it.
        path: PathBuf,
    },
    /// No more events will come.
    Failed {
        /// The system's error.
        error: WatchError,
    },
}

/// Translates an inotify event.
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
            Some(name) => (place, name.to_str().ok()?),
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
