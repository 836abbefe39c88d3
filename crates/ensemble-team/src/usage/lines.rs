//! The new lines of a file that grows, each once.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The longest line that is read, in bytes. A longer one is skipped.
const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// How far a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    inode: u64,
    offset: u64,
}

/// Opens an agent's record. A link or a pipe in its place can neither block this nor redirect it.
pub(super) fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no regular file"))
}

/// Why the new lines of a file cannot be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is another file than before, or shorter: what was read of it does not hold.
    Replaced,
    /// The disk failed, or it is no regular file.
    Failed,
}

impl From<std::io::Error> for Unread {
    fn from(_: std::io::Error) -> Self {
        Self::Failed
    }
}

/// Passes on the complete lines after `position`, and moves it.
pub(super) fn read_new(
    path: &Path,
    position: &mut Position,
    mut line: impl FnMut(&[u8]),
) -> Result<(), Unread> {
    let mut file = open(path)?;
    let meta = file.metadata()?;
    if position.offset == 0 {
        position.inode = meta.ino();
    }
    if meta.ino() != position.inode || meta.len() < position.offset {
        return Err(Unread::Replaced);
    }
    if meta.len() == position.offset {
        return Ok(());
    }
    file.seek(SeekFrom::Start(position.offset))?;
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? as u64;
        if bytes.last() == Some(&b'\n') {
            line(&bytes);
            position.offset += read;
        } else if read == LINE_BYTES_MAX {
            position.offset += read + skip_line(&mut reader)?;
        } else {
            // The program has not finished the line yet.
            return Ok(());
        }
    }
}

/// Skips the rest of a line; how many bytes that was.
fn skip_line(reader: &mut BufReader<File>) -> std::io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let end = memchr::memchr(b'\n', buffer);
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(skipped);
        }
    }
}
