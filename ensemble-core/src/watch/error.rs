//! Errors of file notification.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::AreaError;

/// An error of file notification. [`Error::area`](crate::Error::area) finds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("no inotify instance left: raise fs.inotify.max_user_instances")]
    InstancesExhausted,
    #[error("{path}: no inotify watch left: raise fs.inotify.max_user_watches with sysctl")]
    WatchesExhausted { path: PathBuf },
    #[error("{path}: {}", text(*code))]
    Refused {
        path: PathBuf,
        /// The system's error number.
        code: i32,
    },
    #[error("cannot {operation}: {}", text(*code))]
    System {
        operation: &'static str,
        /// The system's error number.
        code: i32,
    },
}

impl AreaError for WatchError {}

impl WatchError {
    pub(super) fn system(operation: &'static str, error: Errno) -> Self {
        match error {
            Errno::MFILE => Self::InstancesExhausted,
            _ => Self::System { operation, code: error.raw_os_error() },
        }
    }

    pub(super) fn of_path(path: &Path, error: Errno) -> Self {
        let path = path.to_owned();
        match error {
            Errno::NOSPC => Self::WatchesExhausted { path },
            _ => Self::Refused { path, code: error.raw_os_error() },
        }
    }

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
