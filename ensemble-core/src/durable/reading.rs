//! Reads files that other programs may have made: only regular files, never through links, never
//! beyond a limit.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Dir, FileStat, file_stat, stat_file};
use crate::{Error, Result};

impl Dir {
    /// Reads a regular file of at most `bytes_max`; `None` if it does not exist. Never blocks on a
    /// pipe and never follows a link.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is not a regular file, [`Error::TooLarge`], or the disk failed.
    pub fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        match self.open_regular(name, OFlags::RDONLY)? {
            None => Ok(None),
            Some((file, stat)) => {
                read_sized(&file, || self.path.join(name), stat.bytes, bytes_max).map(Some)
            }
        }
    }

    /// As [`Dir::read`], with the metadata of the file that was read.
    ///
    /// # Errors
    /// As for [`Dir::read`].
    pub fn read_with_stat(
        &self,
        name: &str,
        bytes_max: usize,
    ) -> Result<Option<(FileStat, Vec<u8>)>> {
        let Some((file, stat)) = self.open_regular(name, OFlags::RDONLY)? else { return Ok(None) };
        let content = read_sized(&file, || self.path.join(name), stat.bytes, bytes_max)?;
        Ok(Some((stat, content)))
    }

    /// Opens a regular file for reading; `None` if it does not exist.
    ///
    /// # Errors
    /// As for [`Dir::read`].
    pub fn open_file(&self, name: &str) -> Result<Option<File>> {
        Ok(self.open_regular(name, OFlags::RDONLY)?.map(|(file, _)| file))
    }

    /// Opens a regular file for changes in place; `None` if it does not exist. Only for files whose
    /// content may be wrong: readers can see a partial change.
    pub(crate) fn open_in_place(&self, name: &str) -> Result<Option<File>> {
        Ok(self.open_regular(name, OFlags::RDWR)?.map(|(file, _)| file))
    }

    /// Opens a regular file and reads its metadata.
    fn open_regular(&self, name: &str, access: OFlags) -> Result<Option<(File, FileStat)>> {
        let path = || self.path.join(name);
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match retry_on_intr(|| fs::openat(&self.fd, name, flags, Mode::empty())) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(Error::malformed(
                    path(),
                    "file",
                    "is a symbolic link, which is never followed",
                ));
            }
            Err(Errno::NXIO) => {
                return Err(Error::malformed(path(), "file", "is a socket, not a regular file"));
            }
            Err(e) => return Err(Error::io("open", path(), e)),
        };
        let stat = fs::fstat(&file).map_err(|e| Error::io("examine", path(), e))?;
        let stat = file_stat(&stat);
        if !stat.is_file {
            return Err(Error::malformed(path(), "file", "is not a regular file"));
        }
        Ok(Some((file, stat)))
    }
}

/// Reads an open file of at most `bytes_max` bytes.
///
/// # Errors
/// The file is larger, or the disk failed.
pub fn read_whole(file: &File, path: &Path, bytes_max: usize) -> Result<Vec<u8>> {
    read_sized(file, || path.to_owned(), stat_file(file, path)?.bytes, bytes_max)
}

/// As [`read_whole`], for a file of known size.
fn read_sized(
    file: &File,
    path: impl Fn() -> PathBuf,
    bytes: u64,
    bytes_max: usize,
) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let too_large = |bytes| {
        let what = path().display().to_string();
        Error::TooLarge { what, bytes, limit: bytes_max as u64 }
    };
    if bytes > bytes_max as u64 {
        return Err(too_large(bytes));
    }
    let bytes = usize::try_from(bytes).unwrap_or(bytes_max);
    // Reserve one byte more than the size, so that one read gets everything and sees the end.
    let mut content = Vec::with_capacity(bytes + 1);
    let read =
        retry_on_intr(|| rustix::io::read(file, rustix::buffer::spare_capacity(&mut content)))
            .map_err(|e| Error::io("read", path(), e))?;
    if read != bytes {
        // The file is being written, or does not report its size.
        let room = (bytes_max + 1).saturating_sub(read) as u64;
        file.take(room).read_to_end(&mut content).map_err(|e| Error::io("read", path(), e))?;
    }
    if content.len() > bytes_max {
        return Err(too_large(content.len() as u64));
    }
    Ok(content)
}
