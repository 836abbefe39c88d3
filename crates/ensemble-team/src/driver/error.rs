//! Errors of batches.

use std::path::PathBuf;

use ensemble_core::AreaError;

/// The summary of a batch was not written. Callers find it by
/// [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("{} was not delivered yet: wait for the watcher, or start one", path.display())]
    Undelivered { path: PathBuf },
    #[error("{}: the summary is gone: write it again", path.display())]
    Gone { path: PathBuf },
}

impl AreaError for BatchError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Undelivered { .. })
    }

    fn is_invariant_broken(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}
