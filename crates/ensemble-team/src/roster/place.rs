//! Where a file about running agents was written: in a copy of the project, its panes and processes are those of the
//! original.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A directory of a project, as it was when a file in it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPlace {
    path: PathBuf,
    inode: u64,
}

impl RecordedPlace {
    /// The place of a directory; `None` if there is no such directory.
    pub fn of(directory: &Path) -> Option<Self> {
        let path = directory.canonicalize().ok()?;
        let inode = path.metadata().ok()?.ino();
        Some(Self { path, inode })
    }

    /// Where the original is, if the file is in a copy of its directory. A directory that was moved is not a copy, and
    /// neither is one that another mount shows as well.
    pub fn original_of(&self, directory: &Path) -> Option<&Path> {
        let original = self.path.metadata().ok().filter(|it| it.ino() == self.inode)?;
        let identity = |it: &Metadata| (it.dev(), it.ino());
        (identity(&original) != identity(&directory.metadata().ok()?)).then_some(&*self.path)
    }
}
