//! This host's copy of the files that the hosts of a team share. It is for readers without a connection, and for programs
//! that wait for a file to change.
//!
//! ```text
//! servers                 --pull-->  this host, in the copy's directory
//! control/PAUSE                      PAUSE
//! board/state.yaml                   state.yaml
//! leases/coder-1@3.beat              leases/coder-1@3.beat
//! ```
//!
//! The servers are the truth. A copy is never written back. *A crash* between two files leaves some of them old; the next
//! pull replaces them. The lock `copy.lock` is held for each pull, so that no older list replaces a newer one.

use std::path::{Path, PathBuf};

use super::control::{CONTROLS, ControlFile};
use super::leases::BEATS;
use super::shared_lock::is_missing;
use super::{BOARD_BYTES_MAX, FILE_NAME, LOCK_PATIENCE};
use ensemble_core::Result;
use ensemble_core::document::{SharedFile, SharedFiles};
use ensemble_core::durable::{Dir, Durability, FileLock, make_directory, write_document};

const LOCK: &str = "copy.lock";
pub(super) const BOARD: &str = "board/state.yaml";

#[derive(Clone, Debug)]
pub struct SharedCopy<'a> {
    directory: PathBuf,
    files: &'a dyn SharedFiles,
}

impl<'a> SharedCopy<'a> {
    pub const fn new(directory: PathBuf, files: &'a dyn SharedFiles) -> Self {
        Self { directory, files }
    }

    /// Pulls everything. Without a board there are no beats.
    pub fn pull(&self) -> Result<()> {
        self.pull_controls()?;
        match is_missing(&self.pull_board()?) {
            true => Ok(()),
            false => self.pull_beats(),
        }
    }

    pub fn pull_controls(&self) -> Result<()> {
        let _lock = self.lock()?;
        let found = self.files.list_files(CONTROLS)?;
        let names = ControlFile::ALL.map(ControlFile::name);
        replace(&self.directory, &found, |name| names.contains(&name))
    }

    pub fn pull_beats(&self) -> Result<()> {
        let _lock = self.lock()?;
        let found = self.files.list_files(BEATS)?;
        let directory = self.directory.join(BEATS);
        ensure(&directory)?;
        replace(&directory, &found, |name| !name.starts_with('.'))
    }

    /// Makes one beat or sign that of the servers. The copy must be locked.
    pub(super) fn put_beat(&self, name: &str, found: &SharedFile) -> Result<()> {
        let directory = self.directory.join(BEATS);
        ensure(&directory)?;
        replace_one(&directory, name, found)
    }

    /// Makes the board that of the servers; returns the board as it was read.
    pub fn pull_board(&self) -> Result<SharedFile> {
        let _lock = self.lock()?;
        let found = self.files.read_file(BOARD)?;
        replace_one(&self.directory, FILE_NAME, &found)?;
        Ok(found)
    }

    pub(super) fn lock(&self) -> Result<FileLock> {
        ensure(&self.directory)?;
        FileLock::acquire(&self.directory.join(LOCK), LOCK_PATIENCE)
    }
}

/// Creates a directory of the copy, private to its owner, in a project that exists.
pub(super) fn ensure(directory: &Path) -> Result<()> {
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent)?;
    }
    make_directory(directory)
}

fn replace_one(directory: &Path, name: &str, found: &SharedFile) -> Result<()> {
    let file = (!is_missing(found)).then(|| (name.to_owned(), found.clone()));
    replace(directory, file.as_slice(), |other| other == name)
}

/// Writes the files that differ, and removes those of this kind that are not there.
fn replace(
    directory: &Path,
    files: &[(String, SharedFile)],
    is_of_kind: impl Fn(&str) -> bool,
) -> Result<()> {
    let dir = Dir::open(directory)?;
    for name in dir.names()?.into_iter().filter(|name| is_of_kind(name)) {
        if !files.iter().any(|(kept, _)| *kept == name) {
            dir.remove(&name)?;
        }
    }
    for (name, file) in files.iter().filter(|(name, _)| is_of_kind(name)) {
        if dir.read(name, BOARD_BYTES_MAX).ok().flatten().as_ref() != Some(&file.content) {
            write_document(&directory.join(name), &file.content, Durability::Process)?;
        }
    }
    Ok(())
}
