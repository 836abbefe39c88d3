//! Metadata of a file.

use std::fs::File;
use std::path::Path;

use rustix::fs;
use rustix::io::Errno;

use crate::message::Timestamp;
use crate::{Error, Result, sys};

/// Identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// Metadata of a file, read without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub id: FileId,
    /// Whether it is a regular file, not a link, pipe, device or directory.
    pub is_file: bool,
    pub is_directory: bool,
    /// Size in bytes.
    pub bytes: u64,
    /// Last change of the content: nanoseconds since the Unix epoch.
    pub modified_ns: i128,
    /// Last change of the file or its name: nanoseconds since the Unix epoch.
    pub changed_ns: i128,
    /// File type and permission bits.
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
    /// Number of names (hard links).
    pub links: u64,
}

impl FileStat {
    /// When the file or its name was changed last.
    pub(crate) fn changed_at(&self) -> Timestamp {
        timestamp(self.changed_ns)
    }

    /// When its content was changed last.
    pub(crate) fn modified_at(&self) -> Timestamp {
        timestamp(self.modified_ns)
    }
}

/// A stamp in nanoseconds since the Unix epoch, in whole milliseconds.
pub(crate) fn timestamp(stamp_ns: i128) -> Timestamp {
    let millis = i64::try_from(stamp_ns.div_euclid(1_000_000)).unwrap_or(i64::MAX);
    Timestamp::from_unix_millis(millis)
}

/// Reads the metadata of the target of a path; `None` if it does not exist.
pub(crate) fn stat_path(path: &Path) -> Result<Option<FileStat>> {
    match fs::stat(path) {
        Ok(stat) => Ok(Some(file_stat(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(Error::io("examine", path, e)),
    }
}

pub(crate) fn stat_file(file: &File, path: &Path) -> Result<FileStat> {
    fs::fstat(file).map(|stat| file_stat(&stat)).map_err(|e| Error::io("examine", path, e))
}

#[allow(clippy::useless_conversion, reason = "the width of a link count differs by platform")]
pub(super) fn file_stat(stat: &fs::Stat) -> FileStat {
    let kind = fs::FileType::from_raw_mode(stat.st_mode);
    FileStat {
        id: FileId { device: sys::device_of(stat), inode: stat.st_ino },
        is_file: kind == fs::FileType::RegularFile,
        is_directory: kind == fs::FileType::Directory,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        mode: sys::mode_of(stat),
        owner: stat.st_uid,
        group: stat.st_gid,
        links: u64::from(stat.st_nlink),
    }
}
