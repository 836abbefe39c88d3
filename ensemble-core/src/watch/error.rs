//! Errors of file notification.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::AreaError;

/// An error of file notification. [`Error::area`](crate::Error::area) finds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The user has no inotify instance left.
    #[error("no inotify instance left: raise fs.inotify.max_user_instances")]
    InstancesExhausted,
    /// The user has no inotify watch left.
    #[error("{path}: no inotify watch left: raise fs.inotify.max_user_watches with sysctl")]
    WatchesExhausted {
        /// The directory or file to watch.
        path: PathBuf,
    },
    /// The system refused to watch a path, for instance because it does not exist.
    #[error("{path}: {}", text(*code))]
    Refused {
        /// The directory or file to watch.
        path: PathBuf,
        /// The system's error number.
        code: i32,
    },
    /// The system refused to create a watcher, or to deliver events.
    #[error("cannot {operation}: {}", text(*code))]
    System {
        /// The attempted operation, in the infinitive.
        operation: &'static str,
        /// The system's error number.
        code: i32,
    },
}

impl AreaError for WatchError {}

impl WatchError {
    /// An error of a whole watcher.
    pub(super) fn system(operation: &'static str, error: Errno) -> Self {
        match error {
            Errno::MFILE => Self::InstancesExhausted,
            _ => Self::System { operation, code: error.raw_os_error() },
        }
    }

    /// An error of one watched path.
    pub(super) fn of_path(path: &Path, error: Errno) -> Self {
        let path = path.to_owned();
        match error {
            Errno::NOSPC => Self::WatchesExhausted { path },
            _ => Self::Refused { path, code: error.raw_os_error() },
        }
    }

    /// The kind of the system's error.
    ///
    /// ```
    /// use std::{io::ErrorKind, path::Path};
    /// use ensemble_core::watch::FsWatcher;
    /// let refused = FsWatcher::new()?.watch(Path::new("/missing/directory")).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::NotFound);
    /// # Ok::<(), ensemble_core::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::InstancesExhausted | Self::WatchesExhausted { .. } => {
                io::ErrorKind::QuotaExceeded
            }
            Self::Refused { code, .. } | Self::System { code, .. } => {
                io::Error::from_raw_os_error(*code).kind()
            }
        }
    }
}

fn text(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
