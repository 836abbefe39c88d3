//! The only module that renames, locks or syncs.
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::durable::FileLock;
//!
//! let home = tempfile::tempdir()?;
//! let path = home.path().join("board.lock");
//! let held = FileLock::acquire(&path, Duration::ZERO)?;
//! assert!(FileLock::acquire(&path, Duration::ZERO).is_err()); // names the holder
//! drop(held);
//! FileLock::acquire(&path, Duration::ZERO)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything on disk changes through these few operations. Each of them has either happened or
//! not, even after a kill or a power cut:
//!
//! | operation | after it returns | a crash inside leaves |
//! |---|---|---|
//! | `Dir::write_new` | a whole file in an unwatched directory | a file in `tmp/`, swept later |
//! | `Dir::move_new` | the file at its new name, never over another | the file at one of the two names |
//! | `Dir::replace` | the new document | the old or the new document, whole |
//! | `SyncTogether::sync` | all names in a directory | the names from before |
//! | [`FileLock::acquire`] | exclusion until drop or death | nothing: the kernel unlocks |
//!
//! Directories are held open and names are resolved below them without following symlinks.
//! `Durability::Power` adds the syncs that make a change survive a power cut.
//!
//! # Limits
//!
//! A disk that reports a sync without doing it can lose what `power` promises. `flock` must work: a
//! network file system without it is not supported. Without `RENAME_NOREPLACE`, a crash inside
//! `Dir::move_new` can leave the file under both names.

mod listing;
mod lock;
mod many;
mod reading;
#[cfg(feature = "schema")]
mod schema;
mod stat;
#[cfg(test)]
mod tests;
mod together;
mod tree;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::error::allow_missing;
use crate::{Error, Result, sys};

pub(crate) use crate::sys::SyncReach;
pub(crate) use listing::stop_if;
pub use lock::FileLock;
pub use lock::{LockFile, LockFileGuard, jittered};
pub(crate) use many::SyncMany;
pub use reading::{
    open_chosen_file, open_file, read_chosen_file, read_file, read_trusted_file, read_whole,
};
use stat::file_stat;
pub use stat::{FileId, FileStat};
pub(crate) use stat::{stat_file, stat_path, timestamp};
pub(crate) use together::SyncTogether;
pub use tree::{make_directory, remove_where};

/// Durability of a stored message, which [`Queue::options`](crate::Queue::options) sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Survives the death of every process and of the machine: file and directory are synced.
    #[default]
    Power,
    /// Survives the death of every process; a power cut may lose what the kernel had not yet
    /// written.
    Process,
}

/// Permissions of created files and directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileModes {
    /// Mode of files; 0600 by default.
    pub file: u32,
    /// Mode of directories; 0700 by default.
    pub directory: u32,
}

impl Default for FileModes {
    fn default() -> Self {
        Self { file: 0o600, directory: 0o700 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The file has its new name.
    Done,
    /// There was no such file: another process moved it first.
    Gone,
    /// The new name is taken; nothing changed.
    Exists,
}

/// Bytes of a long document that are written at once.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// An open directory. Names given to its methods are single components.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory by its path, in which links are followed (an administrator's choice).
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| fs::open(path, flags, Mode::empty()))
            .map_err(|e| Error::io("open directory", path, e))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a directory below this one; a link in its place is rejected.
    pub fn open_child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| fs::openat(&self.fd, name, flags, Mode::empty()))
            .map_err(|e| Error::io("open directory", &path, e))?;
        Ok(Self { fd, path })
    }

    /// Opens a directory below this one, and creates it if needed.
    pub fn ensure_child(&self, name: &str, modes: FileModes) -> Result<Self> {
        if let Some(child) = allow_missing(self.open_child(name))? {
            return Ok(child);
        }
        match fs::mkdirat(&self.fd, name, sys::mode(modes.directory)) {
            Ok(()) | Err(Errno::EXIST) => self.open_child(name),
            Err(e) => Err(Error::io("create directory", self.path.join(name), e)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the names in this directory survive a power cut.
    pub fn sync(&self) -> Result<()> {
        retry_on_intr(|| sys::sync_names(&self.fd))
            .map_err(|e| Error::io("sync directory", &self.path, e))
    }

    /// Whether the sync of a file that was moved into this directory makes its name survive a power cut, too. Then a
    /// message is renamed first, and synced once. Until then a power cut may empty it, which only a message shows.
    pub fn names_go_with_files(&self) -> bool {
        self.find_sync_reach() >= SyncReach::Name
    }

    /// What the sync of a file that was moved into this directory covers.
    pub(crate) fn find_sync_reach(&self) -> SyncReach {
        sys::find_sync_reach(&self.fd)
    }

    /// Why a power cut may harm more here than what was not synced, as far as known.
    pub fn find_power_cut_risk(&self) -> Option<&'static str> {
        sys::find_power_cut_risk(&self.fd)
    }

    /// Whether the file system has stopped writing after an error, without being mounted read-only.
    #[must_use]
    pub fn is_stopped_by_error(&self) -> bool {
        sys::is_stopped_by_error(&self.fd)
    }

    pub(crate) fn own_stat(&self) -> Result<FileStat> {
        let stat = fs::fstat(&self.fd).map_err(|e| Error::io("examine", &self.path, e))?;
        Ok(file_stat(&stat))
    }

    pub fn id(&self) -> Result<FileId> {
        Ok(self.own_stat()?.id)
    }

    /// Whether the path by which it was opened still leads to this directory. It does not if the
    /// directory was moved away, replaced or mounted over.
    pub fn is_at_its_path(&self) -> bool {
        match (self.id(), stat_path(&self.path)) {
            (Ok(open), Ok(Some(at_path))) => open == at_path.id,
            _ => false,
        }
    }

    /// Reads the metadata of an entry, of a link itself; `None` if there is no entry.
    pub fn stat(&self, name: &str) -> Result<Option<FileStat>> {
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(file_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::io("examine", self.path.join(name), e)),
        }
    }

    /// When a name was last added, removed or renamed here: nanoseconds since the Unix epoch.
    pub(crate) fn changed_ns(&self) -> Result<i128> {
        Ok(self.own_stat()?.changed_ns)
    }

    /// Creates a file with this content. On any error no file stays behind.
    pub fn write_new(
        &self,
        name: &str,
        content: &[u8],
        modes: FileModes,
        durability: Durability,
    ) -> Result<File> {
        self.write_new_with(name, |file| file.write_all(content), modes, durability)
    }

    /// As [`Dir::write_new`], with a function that writes the content.
    fn write_new_with(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
        modes: FileModes,
        durability: Durability,
    ) -> Result<File> {
        let path = || self.path.join(name);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| fs::openat(&self.fd, name, flags, sys::mode(modes.file)))
            .map_err(|e| Error::io("create", path(), e))?;
        let mut file = File::from(fd);
        let written = write(&mut file).map_err(|e| Error::io("write", path(), e)).and_then(|()| {
            match durability {
                Durability::Power => retry_on_intr(|| sys::sync_content(&file))
                    .map_err(|e| Error::io("sync", path(), e)),
                Durability::Process => Ok(()),
            }
        });
        match written {
            Ok(()) => Ok(file),
            Err(error) => {
                let _ = self.remove(name);
                Err(error)
            }
        }
    }

    /// Renames a file into another directory, never over an existing one.
    pub fn move_new(&self, name: &str, to: &Self, new_name: &str) -> Result<MoveOutcome> {
        self.move_named(OsStr::new(name), to, new_name)
    }

    /// As [`Dir::move_new`], for a name that need not be UTF-8.
    pub fn move_named(&self, name: &OsStr, to: &Self, new_name: &str) -> Result<MoveOutcome> {
        let moved = match sys::rename_new(&self.fd, name, &to.fd, new_name) {
            Err(Errno::INVAL | Errno::NOSYS) => self.link_and_unlink(name, to, new_name),
            other => other,
        };
        to.move_outcome(moved, new_name)
    }

    /// What a rename to this name here has done.
    fn move_outcome(&self, moved: Result<(), Errno>, new_name: &str) -> Result<MoveOutcome> {
        match moved {
            Ok(()) => Ok(MoveOutcome::Done),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(MoveOutcome::Exists),
            Err(Errno::NOENT) => Ok(MoveOutcome::Gone),
            Err(e) => Err(Error::io("move to", self.path.join(new_name), e)),
        }
    }

    /// The substitute on file systems without `RENAME_NOREPLACE`. It is equally exclusive, but for
    /// a moment the file has both names.
    fn link_and_unlink(&self, name: &OsStr, to: &Self, new_name: &str) -> Result<(), Errno> {
        fs::linkat(&self.fd, name, &to.fd, new_name, AtFlags::empty())?;
        fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Replaces a whole document: readers see the old or the new one. `tmp` must be in the same
    /// file system.
    pub fn replace(
        &self,
        name: &str,
        content: &[u8],
        tmp: &Self,
        modes: FileModes,
        durability: Durability,
    ) -> Result<()> {
        self.replace_by(name, content, tmp, &temporary_name(name), modes, durability)
    }

    /// As [`Dir::replace`], with a given name for the temporary file.
    pub fn replace_by(
        &self,
        name: &str,
        content: &[u8],
        tmp: &Self,
        tmp_name: &str,
        modes: FileModes,
        durability: Durability,
    ) -> Result<()> {
        tmp.write_new(tmp_name, content, modes, durability)?;
        self.put(name, tmp, tmp_name, durability)
    }

    /// As [`Dir::replace`], with a function that writes the content, which need not be in memory.
    pub(crate) fn replace_with(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
        tmp: &Self,
        modes: FileModes,
        durability: Durability,
    ) -> Result<()> {
        let tmp_name = temporary_name(name);
        let buffered = |file: &mut File| {
            let mut buffer = io::BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
            write(&mut buffer).and_then(|()| buffer.flush())
        };
        tmp.write_new_with(&tmp_name, buffered, modes, durability)?;
        self.put(name, tmp, &tmp_name, durability)
    }

    /// Renames a temporary file over a document.
    fn put(&self, name: &str, tmp: &Self, tmp_name: &str, durability: Durability) -> Result<()> {
        if let Err(e) = fs::renameat(&tmp.fd, tmp_name, &self.fd, name) {
            let _ = tmp.remove(tmp_name);
            return Err(Error::io("replace", self.path.join(name), e));
        }
        match durability {
            Durability::Power => self.sync(),
            Durability::Process => Ok(()),
        }
    }

    /// Opens a file for appending, and creates it if needed: every write atomically goes to the end.
    /// A link or anything but a regular file is rejected.
    pub fn open_append(&self, name: &str, modes: FileModes) -> Result<File> {
        let path = || self.path.join(name);
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| fs::openat(&self.fd, name, flags, sys::mode(modes.file)))
            .map_err(|e| Error::io("open for appending", path(), e))?;
        let file = File::from(fd);
        let stat = fs::fstat(&file).map_err(|e| Error::io("examine", path(), e))?;
        if !file_stat(&stat).is_file {
            return Err(Error::malformed(path(), "file", "is not a regular file"));
        }
        Ok(file)
    }

    /// Begins a file again, empty. What had its name is removed, so a link there is not followed.
    pub fn begin_file(&self, name: &str) -> Result<File> {
        self.remove(name)?;
        self.write_new(name, b"", FileModes::default(), Durability::Process)
    }

    /// Removes a file; a missing one is not an error.
    pub fn remove(&self, name: &str) -> Result<()> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("remove", self.path.join(name), e)),
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Replaces the whole document at `path`, or creates it, private to its owner, in its directory.
///
/// # Errors
/// The disk failed; the old document is unchanged.
pub fn write_document(path: &Path, content: &[u8], durability: Durability) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Error::malformed(path, "file name", "is not a UTF-8 file name"))?;
    let dir = Dir::open(parent_of(path))?;
    let tmp_name = format!(".{}", temporary_name(name));
    dir.replace_by(name, content, &dir, &tmp_name, FileModes::default(), durability)
}

/// Removes a file; a missing one is not an error.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    let removed = std::fs::remove_file(path);
    allow_missing(removed.map_err(|error| Error::io("remove", path, error))).map(drop)
}

/// The directory that a path is in, which for a mere name is the current one.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Makes the content of an open file survive a power cut.
pub(crate) fn sync_file(file: &File, path: &Path) -> Result<()> {
    retry_on_intr(|| sys::sync_content(file)).map_err(|e| Error::io("sync", path, e))
}

/// Makes an open file survive a power cut, and its name where [`Dir::names_go_with_files`].
pub(crate) fn sync_file_and_name(file: &File, path: &Path) -> Result<()> {
    retry_on_intr(|| sys::sync_content_and_name(file)).map_err(|e| Error::io("sync", path, e))
}

/// Makes all of an open file's file system survive a power cut.
fn sync_file_system(file: &File, path: &Path) -> Result<()> {
    retry_on_intr(|| sys::sync_file_system(file)).map_err(|e| Error::io("sync", path, e))
}

/// A name for a file in `tmp/` that no other process or thread uses.
pub fn temporary_name(stem: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    // The random part distinguishes a process from an earlier one with the same pid.
    let start = START.get_or_init(|| sys::random_bits() as u32);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{stem}.{}.{start:x}.{count}", std::process::id())
}
