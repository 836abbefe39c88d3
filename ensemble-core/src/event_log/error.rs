//! Errors of the event log.

use std::path::PathBuf;

use crate::error::AreaError;

/// The event log cannot be continued. Callers find it by [`Error::area`](crate::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The wall clock is outside of the years that file names can hold.
    #[error("{}: the clock is unusable: no session can be named after it", path.display())]
    UnusableClock {
        /// Directory of the log.
        path: PathBuf,
    },
    /// Other processes began segments faster than this process could follow.
    #[error("{}: the log has too many segments to follow", path.display())]
    TooManySegments {
        /// Directory of the log.
        path: PathBuf,
    },
}

impl AreaError for LogError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
