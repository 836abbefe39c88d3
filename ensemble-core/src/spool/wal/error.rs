//! Errors of the write-ahead log.

use std::path::PathBuf;

use crate::error::AreaError;

/// The write-ahead log cannot go on. Callers find it by [`Error::area`](crate::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// Another process made or removed the segment, although it does not hold the lock.
    #[error("{}: another process changed the segments of the write-ahead log", path.display())]
    Interfered {
        /// Directory of the segments.
        path: PathBuf,
    },
    /// Segments of an earlier boot must be replayed before any segment is removed.
    #[error(
        "{}: the write-ahead log must be replayed before anything is removed: repair the queue",
        path.display()
    )]
    NeedsReplay {
        /// Directory of the segments.
        path: PathBuf,
    },
}

impl AreaError for WalError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
