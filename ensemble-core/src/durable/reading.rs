//! Reads files that other programs may have made: only regular files, never beyond a limit, and our own files never
//! through a link. Opening never blocks on a pipe.
//!
//! | reader | for | links |
//! |---|---|---|
//! | [`read_file`], `Dir::read` | our own files | refused |
//! | [`read_chosen_file`] | a file that a person has named, in the configuration or elsewhere | followed |
//! | [`read_trusted_file`] | a file that says what is run, which only its user and root may change | followed, within the project |

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Dir, FileStat, file_stat, stat_file};
use crate::message::shell_word;
use crate::{Error, Result};

impl Dir {
    /// Reads a regular file of at most `bytes_max`; `None` if it does not exist. Never blocks on a
    /// pipe and never follows a link.
    pub fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        Ok(self.read_with_stat(name, bytes_max)?.map(|(_, content)| content))
    }

    /// As [`Dir::read`], with the metadata of the file that was read.
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
    pub fn open_file(&self, name: &str) -> Result<Option<File>> {
        Ok(self.open_regular(name, OFlags::RDONLY)?.map(|(file, _)| file))
    }

    /// Opens a regular file for changes in place; `None` if it does not exist. Only for files whose
    /// content may be wrong: readers can see a partial change.
    pub(crate) fn open_in_place(&self, name: &str) -> Result<Option<File>> {
        Ok(self.open_regular(name, OFlags::RDWR)?.map(|(file, _)| file))
    }

    fn open_regular(&self, name: &str, access: OFlags) -> Result<Option<(File, FileStat)>> {
        open_regular(&self.fd, Path::new(name), access | OFlags::NOFOLLOW, || self.path.join(name))
    }
}

/// Reads one of our files, at most `bytes_max`; `None` if it does not exist. A link in its place is refused.
pub fn read_file(path: &Path, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let Some((file, stat)) = open_file(path)? else { return Ok(None) };
    read_sized(&file, || path.to_owned(), stat.bytes, bytes_max).map(Some)
}

/// As [`read_file`], for a file that a person has named: a link to a regular file is followed.
pub fn read_chosen_file(path: &Path, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let Some((file, stat)) = open_chosen_file(path)? else { return Ok(None) };
    read_sized(&file, || path.to_owned(), stat.bytes, bytes_max).map(Some)
}

/// Opens a file for reading in parts, as [`read_file`] does.
pub fn open_file(path: &Path) -> Result<Option<(File, FileStat)>> {
    open_file_at(path, OFlags::NOFOLLOW)
}

/// As [`open_file`], for a file that a person has named: a link to a regular file is followed.
pub fn open_chosen_file(path: &Path) -> Result<Option<(File, FileStat)>> {
    open_file_at(path, OFlags::empty())
}

fn open_file_at(path: &Path, links: OFlags) -> Result<Option<(File, FileStat)>> {
    open_regular(CWD, path, OFlags::RDONLY | links, || path.to_owned())
}

/// Opens a regular file and reads its metadata; `None` if it does not exist.
fn open_regular(
    dir: impl AsFd,
    name: &Path,
    access: OFlags,
    path: impl Fn() -> PathBuf,
) -> Result<Option<(File, FileStat)>> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let refused = |why: &str| Error::malformed(path(), "file", why);
    let file = match retry_on_intr(|| fs::openat(&dir, name, flags, Mode::empty())) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) if flags.contains(OFlags::NOFOLLOW) => {
            return Err(refused("is a symbolic link, which is never followed"));
        }
        Err(Errno::NXIO) => return Err(refused("is a socket, not a regular file")),
        Err(error) => return Err(Error::io("open", path(), error)),
    };
    let stat = fs::fstat(&file).map_err(|error| Error::io("examine", path(), error))?;
    let stat = file_stat(&stat);
    match stat.is_file {
        true => Ok(Some((file, stat))),
        false => Err(refused("is not a regular file")),
    }
}

/// Reads a file that says what this process will run or trust, such as a configuration; `None` if it does not exist.
/// Only this user and root may be able to change it. With `inside`, a link may not lead out of that directory.
pub fn read_trusted_file(
    path: &Path,
    inside: Option<&Path>,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>> {
    let resolve = |path: &Path| match path.canonicalize() {
        Ok(real) => Ok(Some(real)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { operation: "read", path: path.to_owned(), source }),
    };
    let Some(real) = resolve(path)? else { return Ok(None) };
    if let Some(inside) = inside.map(resolve).transpose()?.flatten()
        && !real.starts_with(inside)
    {
        let detail = format!("is a link to {}, outside of the project", real.display());
        return Err(Error::malformed(path, "file", detail));
    }
    // An error names the file that was asked for, not where a link has led.
    let access = OFlags::RDONLY | OFlags::NOFOLLOW;
    let Some((file, stat)) = open_regular(CWD, &real, access, || path.to_owned())? else {
        return Ok(None);
    };
    refuse_untrusted(path, &stat)?;
    read_sized(&file, || path.to_owned(), stat.bytes, bytes_max).map(Some)
}

/// Refuses a file that another user may change.
fn refuse_untrusted(path: &Path, stat: &FileStat) -> Result<()> {
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    const ROOT: u32 = 0;
    if stat.owner != rustix::process::geteuid().as_raw() && stat.owner != ROOT {
        let detail = format!(
            "belongs to user {}, and what it says is run as you: `chown` it to yourself",
            stat.owner
        );
        return Err(Error::malformed(path, "owner", detail));
    }
    // With a umask of 002, a user's files are writable by the group that has this user alone.
    let is_shared = stat.mode & GROUP_WRITES != 0 && stat.group != stat.owner;
    if stat.mode & OTHERS_WRITE != 0 || is_shared {
        let detail = format!(
            "other users may change it, and what it says is run as you: `chmod go-w {}`",
            shell_word(&path.to_string_lossy())
        );
        return Err(Error::malformed(path, "permissions", detail));
    }
    Ok(())
}

/// Reads an open file of at most `bytes_max` bytes.
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
