//! Loops over tasks, of which one that fails stops no other one.

use std::io::ErrorKind;

use ensemble_core::{Error, Result};

use crate::admission::is_refusal;

/// Does something for each of these tasks. One that fails, with its worker, its mailbox or its report, stops no other
/// one, unless all would fail alike; what it fails with is returned.
pub(super) fn each_task<T>(
    tasks: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T) -> Result<()>,
) -> Result<Vec<String>> {
    let mut stuck = Vec::new();
    for task in tasks {
        match act(task) {
            Err(error) if is_of_all(&error) => return Err(error),
            other => stuck.extend(other.err().map(|error| error.to_string())),
        }
    }
    Ok(stuck)
}

/// Whether the reason concerns all workers: the servers, the disk, the descriptors, or the whole team.
pub(super) fn is_of_all(error: &Error) -> bool {
    const DISK: [ErrorKind; 3] =
        [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem];
    error.is_server_away()
        || error.io_kind().is_some_and(|kind| DISK.contains(&kind))
        || error.is_out_of_descriptors()
        || is_refusal(error)
}
