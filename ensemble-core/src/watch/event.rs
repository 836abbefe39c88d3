//! The events of a [`FsWatcher`](super::FsWatcher).

use std::path::PathBuf;

use super::WatchError;

pub(super) const LOG_SUFFIX: &str = "-wal";

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
pub enum FsEvent {
    Landed {
        dir: PathBuf,
        name: String,
        /// The operation that put the file there.
        how: Landing,
    },
    /// A file landed whose name is not UTF-8.
    Strange { dir: PathBuf },
    /// A file was renamed away or removed.
    Left { dir: PathBuf },
    /// Events were lost: look at everything.
    Overflow,
    /// A watched directory was removed or renamed.
    Replaced { path: PathBuf },
    /// No more events will come.
    Failed { error: WatchError },
}
