//! Splits a growing file into lines in bounded memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The longest line that is read, in bytes. Lines of ours are far shorter; one by another program
/// may be somewhat longer, and anything beyond is passed over without being kept.
pub(super) const READ_LINE_BYTES_MAX: usize = 64 * 1024;
/// How much is read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// A line of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Its bytes, without the newline.
    Whole(&'a [u8]),
    /// It is longer than [`READ_LINE_BYTES_MAX`].
    TooLong,
}

/// A reading position in an open file that others append to.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    path: PathBuf,
    /// What was read; `unread` is where the first line not handed out yet begins in it.
    buffer: Vec<u8>,
    unread: usize,
    /// Up to here there is no newline after `unread`.
    searched: usize,
    /// Where in the file the next chunk is read.
    next_chunk: u64,
    /// Bytes of a line that is too long and were let go already.
    let_go: u64,
    /// How many lines were handed out or lie before the start.
    count: u64,
}

impl Lines {
    /// Begins at a byte where a line begins, `count` lines into the file.
    pub(super) fn new(file: File, path: &Path, offset: u64, count: u64) -> Self {
        Self {
            file,
            path: path.to_owned(),
            buffer: Vec::new(),
            unread: 0,
            searched: 0,
            next_chunk: offset,
            let_go: 0,
            count,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many lines lie before the position: the number, from 1, of the line handed out last.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Where in the file the first line that was not handed out begins.
    pub(super) fn offset(&self) -> u64 {
        self.next_chunk - (self.buffer.len() - self.unread) as u64 - self.let_go
    }

    /// The next line that has its newline; `None` while there is none.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>> {
        let length = loop {
            match memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                Some(at) => break self.searched + at - self.unread,
                None => self.searched = self.buffer.len(),
            }
            if self.buffer.len() - self.unread > READ_LINE_BYTES_MAX {
                self.let_go += (self.buffer.len() - self.unread) as u64;
                self.unread = self.buffer.len();
            }
            if !self.read_chunk()? {
                return Ok(None);
            }
        };
        let start = self.unread;
        self.unread += length + 1;
        self.searched = self.unread;
        self.count += 1;
        let is_too_long = std::mem::take(&mut self.let_go) > 0 || length > READ_LINE_BYTES_MAX;
        Ok(Some(match is_too_long {
            true => Line::TooLong,
            false => Line::Whole(&self.buffer[start..start + length]),
        }))
    }

    /// What stands after the last newline.
    pub(super) fn rest(&self) -> Line<'_> {
        match self.let_go {
            0 => Line::Whole(&self.buffer[self.unread..]),
            _ => Line::TooLong,
        }
    }

    /// Whether there was more to read.
    fn read_chunk(&mut self) -> Result<bool> {
        self.buffer.drain(..self.unread);
        self.searched -= self.unread;
        self.unread = 0;
        let end = self.buffer.len();
        self.buffer.resize(end + CHUNK_BYTES, 0);
        let read = read_at(&self.file, &mut self.buffer[end..], self.next_chunk, &self.path);
        let bytes = *read.as_ref().unwrap_or(&0);
        self.buffer.truncate(end + bytes);
        self.next_chunk += bytes as u64;
        read.map(|bytes| bytes > 0)
    }
}

/// Reads once at an offset; fewer bytes than asked for only at the end of the file.
pub(super) fn read_at(file: &File, into: &mut [u8], offset: u64, path: &Path) -> Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path, e)),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn half_lines_wait_and_long_ones_are_let_go() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut out = File::create(&path).unwrap();
        let mut lines = Lines::new(File::open(&path).unwrap(), &path, 0, 0);
        assert_eq!(lines.next().unwrap(), None);
        out.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"one")));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!((lines.offset(), lines.rest()), (4, Line::Whole(b"tw")));
        out.write_all(b"o\n\n").unwrap();
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"two")));
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"")));
        for _ in 0..50 {
            out.write_all(&vec![b'x'; READ_LINE_BYTES_MAX]).unwrap();
            assert_eq!(lines.next().unwrap(), None);
            assert!(lines.buffer.capacity() < 8 * READ_LINE_BYTES_MAX);
            assert_eq!(lines.offset(), 9);
        }
        out.write_all(b"\nend\n").unwrap();
        assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"end")));
        assert_eq!(lines.count(), 5);
        assert_eq!(lines.offset(), out.metadata().unwrap().len());
    }
}
