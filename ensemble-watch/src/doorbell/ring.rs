//! What a doorbell says, and which event of inotify means what.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::ReadFlags;

/// How the log of an SQLite database ends.
const LOG_SUFFIX: &str = "-wal";

/// How a file has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It was renamed into place, so it is whole.
    Renamed,
    /// Its writer has closed it, but may open it again.
    Closed,
    /// It has got its name: linked into place and whole, or just begun.
    Created,
    /// A database's log (`…-wal`) has grown: whoever writes it keeps it open. Only where
    /// [`Doorbell::watch_logs`](super::Doorbell::watch_logs) listens.
    Written,
}

/// What a ring says. None of it is the truth; all of it is a reason to look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ring {
    /// A file has landed.
    Landed {
        /// The watched directory.
        dir: PathBuf,
        /// The file's name.
        name: String,
        /// How.
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
        /// The directory, or what was in it.
        path: PathBuf,
    },
    /// Nothing will ring any more.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// What an event means here.
pub(super) fn of(events: ReadFlags, place: Option<&Path>, name: Option<&CStr>) -> Option<Ring> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Ring::Overflow);
    }
    // One of a watch that was given up.
    let place = place?;
    if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
        return Some(Ring::Replaced { path: place.to_owned() });
    }
    let landed = |how| {
        // A file that is watched itself has no name in its own event.
        let (dir, name) = match name {
            Some(name) => (place, name.to_str().ok()?),
            None => (place.parent()?, place.file_name()?.to_str()?),
        };
        Some(Ring::Landed { dir: dir.to_owned(), name: name.to_owned(), how })
    };
    if events.contains(ReadFlags::MOVED_TO) {
        landed(Landing::Renamed)
    } else if events.contains(ReadFlags::CREATE) {
        landed(Landing::Created)
    } else if events.contains(ReadFlags::CLOSE_WRITE) {
        landed(Landing::Closed)
    } else if events.contains(ReadFlags::MODIFY) {
        // What else is written to in place rings when it is closed.
        landed(Landing::Written)
            .filter(|ring| matches!(ring, Ring::Landed { name, .. } if name.ends_with(LOG_SUFFIX)))
    } else if events.contains(ReadFlags::DELETE) && events.contains(ReadFlags::ISDIR) {
        Some(Ring::Replaced { path: place.join(OsStr::from_bytes(name?.to_bytes())) })
    } else if events.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
        Some(Ring::Left { dir: place.to_owned() })
    } else {
        None
    }
}
