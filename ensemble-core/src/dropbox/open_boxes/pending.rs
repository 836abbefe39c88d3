//! Files that are examined again later: their writers may still change them, or an attempt failed.

use std::time::Duration;

use crate::dropbox::file_writers::{WRITER_PATIENCE, files_being_written};
use crate::durable::FileStat;
use crate::env::Monotonic;

use super::{FOUND_QUIET, IN_PLACE_QUIET, INCOMPLETE_PATIENCE, OpenBox, WRITERS_AGE_MAX};

/// A file that is examined again.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingFile {
    /// `None` for a file that is examined again even if it has not changed.
    version: Option<FileVersion>,
    unchanged_since: Monotonic,
    /// The time of its next examination.
    pub(super) due: Monotonic,
}

/// Two equal versions of a file have the same content, judging by its time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    bytes: u64,
    modified_ns: i128,
}

impl From<&FileStat> for FileVersion {
    fn from(stat: &FileStat) -> Self {
        Self { bytes: stat.bytes, modified_ns: stat.modified_ns }
    }
}

impl OpenBox {
    fn version(&self, file: &str) -> Option<FileVersion> {
        self.drop_box.dir().stat(file).ok().flatten().as_ref().map(FileVersion::from)
    }

    /// Up to `count` of the files that are due.
    pub(super) fn due(&self, now: Monotonic, count: usize) -> Vec<String> {
        let due = self.pending.iter().filter(|(_, pending)| pending.due <= now);
        due.map(|(file, _)| file.clone()).take(count).collect()
    }

    /// Examines a file again after this time, changed or not.
    pub(super) fn retry(&mut self, now: Monotonic, file: &str, after: Duration) {
        let pending = PendingFile { version: None, unchanged_since: now, due: now + after };
        self.pending.insert(file.to_owned(), pending);
    }

    /// Examines a file again once it has been unchanged for `quiet`.
    pub(super) fn await_quiet(&mut self, now: Monotonic, file: &str, quiet: Duration) {
        let Some(version) = self.version(file) else { return };
        let known = self.pending.get(file).filter(|pending| pending.version == Some(version));
        let unchanged_since = known.map_or(now, |pending| pending.unchanged_since);
        let pending = PendingFile { version: Some(version), unchanged_since, due: now + quiet };
        self.pending.insert(file.to_owned(), pending);
    }

    /// Examines a file that is not complete again once its writer has had [`INCOMPLETE_PATIENCE`].
    pub(super) fn await_writer(&mut self, now: Monotonic, file: &str, version: FileVersion) {
        let unchanged_since = self.unchanged_since(now, file);
        let due = (unchanged_since + INCOMPLETE_PATIENCE).max(now + FOUND_QUIET);
        self.pending
            .insert(file.to_owned(), PendingFile { version: Some(version), unchanged_since, due });
    }

    /// An event named a file whose content was read before. So the version of the event was overwritten before
    /// it was read, unless it was found without an event.
    pub(super) fn note_overwritten(&mut self, file: &str) {
        if !self.found.remove(file) {
            *self.overwritten.entry(file.to_owned()).or_default() += 1;
        }
    }

    /// Since when a file has been seen unchanged.
    pub(super) fn unchanged_since(&self, now: Monotonic, file: &str) -> Monotonic {
        self.pending.get(file).map_or(now, |pending| pending.unchanged_since)
    }

    /// Whether the writer of a file may still complete it.
    pub(super) fn may_grow(&self, now: Monotonic, file: &str) -> bool {
        let longest = match self.being_written.contains(file) {
            true => WRITER_PATIENCE,
            false => INCOMPLETE_PATIENCE,
        };
        now.since(self.unchanged_since(now, file)) < longest
    }

    /// Whether a process has a file open for writing. An event that it was closed is newer than the look at all
    /// processes, of which there is one a second at most.
    pub(super) fn is_open(&mut self, now: Monotonic, file: &str) -> bool {
        if self.closed.contains(file) {
            return false;
        }
        let is_fresh = |at: Monotonic| now.since(at) < WRITERS_AGE_MAX;
        if self.writers.as_ref().is_none_or(|(at, _)| !is_fresh(*at)) {
            self.writers = Some((now, files_being_written(self.drop_box.dir().path())));
        }
        match self.writers.as_ref().and_then(|(_, writers)| writers.as_ref()) {
            Some(writers) => writers.contains_key(file),
            None => self.being_written.contains(file) && self.may_grow(now, file),
        }
    }

    /// Whether a pending file is as it was; if not, its quiet time starts again.
    pub(super) fn is_unchanged(&mut self, now: Monotonic, file: &str) -> bool {
        let Some(version) = self.version(file) else {
            self.pending.remove(file);
            return false;
        };
        let Some(pending) = self.pending.get_mut(file) else { return false };
        let is_unchanged = pending.version.is_none_or(|known| known == version);
        if !is_unchanged {
            let longest = match self.being_written.contains(file) {
                true => INCOMPLETE_PATIENCE,
                false => FOUND_QUIET,
            };
            let quiet = pending.due.since(pending.unchanged_since).clamp(IN_PLACE_QUIET, longest);
            *pending =
                PendingFile { version: Some(version), unchanged_since: now, due: now + quiet };
        }
        is_unchanged
    }

    /// Whether the version that was read was quiet before, and was not changed while it was read.
    pub(super) fn is_still(&self, file: &str, read: FileVersion) -> bool {
        let known = self.pending.get(file).and_then(|pending| pending.version);
        known.is_none_or(|known| known == read) && self.version(file) == Some(read)
    }
}
