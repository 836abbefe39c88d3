//! What each collector has: `.ensemble/export.json`, which `--follow` alone reads and writes.
//!
//! It is written after the collector has answered. A crash before that sends the last request again, with the same
//! ids. Without the file everything is sent again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_core::Result;
use ensemble_core::document::{read_json, write_json};

use super::RecordMark;

const FILE: &str = "export.json";
/// The largest file that is read, in bytes: thousands of collectors.
const PROGRESS_BYTES_MAX: usize = 1024 * 1024;

pub struct ExportProgress {
    path: PathBuf,
    sent: BTreeMap<String, RecordMark>,
}

impl ExportProgress {
    /// Reads the file of a project. One that cannot be read is as good as none.
    pub fn read(state: &Path) -> Self {
        let path = state.join(FILE);
        let sent = read_json(&path, PROGRESS_BYTES_MAX).ok().flatten().unwrap_or_default();
        Self { path, sent }
    }

    pub fn of(&self, url: &str) -> Option<&RecordMark> {
        self.sent.get(url)
    }

    pub fn record_mark(&mut self, url: &str, mark: RecordMark) -> Result<()> {
        self.sent.insert(url.to_owned(), mark);
        write_json(&self.path, &self.sent)
    }
}
