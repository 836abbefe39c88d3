//! Files that the hosts of a team share: small documents that are replaced by compare-and-set.

use std::fmt;
use std::time::Duration;

use crate::Result;
use crate::message::Timestamp;

/// A shared file as it was found; without content it is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedFile {
    pub content: Vec<u8>,
    /// Note of its writer, in the same version.
    pub note: String,
    /// Number of the version; 0 if there was never one.
    pub revision: u64,
    /// Time of the write, by the clock of the medium.
    pub at: Option<Timestamp>,
}

/// Where the hosts of a team keep files that they share. A path is `directory/name`. Calls fail as the medium does.
pub trait SharedFiles: fmt::Debug + Send + Sync {
    fn place_of(&self, path: &str) -> String;
    fn read_file(&self, path: &str) -> Result<SharedFile>;
    fn list_files(&self, directory: &str) -> Result<Vec<(String, SharedFile)>>;
    /// Replaces a file that still has the revision `last`, and returns the new one. `None` if another writer was
    /// quicker. A file without content is removed.
    fn write_file(&self, path: &str, content: &[u8], note: &str, last: u64) -> Result<Option<u64>>;
    /// Whether a file may have changed since the last call of this.
    fn may_have_changed(&self) -> bool;
    /// Sleeps for `duration`, to wait for another process rather than for the medium.
    fn rest(&self, duration: Duration);
}
