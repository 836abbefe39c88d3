//! Errors of the event log.

use std::path::PathBuf;

use crate::error::AreaError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("{}: the clock is unusable: no session can be named after it", path.display())]
    UnusableClock { path: PathBuf },
    #[error("{}: the log has too many segments to follow", path.display())]
    TooManySegments { path: PathBuf },
}

impl AreaError for LogError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
