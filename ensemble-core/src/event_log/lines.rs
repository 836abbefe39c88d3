//! Splits a growing file into lines in bounded memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The longest line that is read, in bytes. Lines by Ensemble are far shorter, lines by another
/// program may be somewhat longer. The reader skips longer lines without storing them.
pub(super) const READ_LINE_BYTES_MAX: usize = 64 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileLine<'a> {
    /// Its bytes, without the newline.
    Whole(&'a [u8]),
    /// It is longer than [`READ_LINE_BYTES_MAX`].
    TooLong,
}

/// A reading position in an open file to which other processes append.
#[derive(Debug)]
pub(super) struct LineReader {
    file: File,
    path: PathBuf,
    /// Bytes read; `unread` is the index of the first line not yet yielded.
    buffer: Vec<u8>,
    unread: usize,
    /// There is no newline between `unread` and this index.
    searched: usize,
    /// File offset of the next read.
    next_chunk: u64,
    /// Bytes already discarded from a line that is too long.
    let_go: u64,
    count: u64,
}

impl LineReader {
    /// Starts at an offset where a line begins, `count` lines into the file.
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

    /// Number of lines before the position, which is the number, from 1, of the last yielded line.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// File offset of the first line that was not yielded.
    pub(super) fn offset(&self) -> u64 {
        self.next_chunk - (self.buffer.len() - self.unread) as u64 - self.let_go
    }

    /// The next line that has its newline; `None` while there is none.
    pub(super) fn next(&mut self) -> Result<Option<FileLine<'_>>> {
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
            true => FileLine::TooLong,
            false => FileLine::Whole(&self.buffer[start..start + length]),
        }))
    }

    /// The bytes after the last newline.
    pub(super) fn rest(&self) -> FileLine<'_> {
        match self.let_go {
            0 => FileLine::Whole(&self.buffer[self.unread..]),
            _ => FileLine::TooLong,
        }
    }

    /// Reads more; false at the end of the file.
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

/// Reads once at an offset; returns fewer bytes only at the end of the file.
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
    fn a_half_line_waits_and_an_overlong_line_is_discarded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut out = File::create(&path).unwrap();
        let mut lines = LineReader::new(File::open(&path).unwrap(), &path, 0, 0);
        assert_eq!(lines.next().unwrap(), None);
        out.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.next().unwrap(), Some(FileLine::Whole(b"one")));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!((lines.offset(), lines.rest()), (4, FileLine::Whole(b"tw")));
        out.write_all(b"o\n\n").unwrap();
        assert_eq!(lines.next().unwrap(), Some(FileLine::Whole(b"two")));
        assert_eq!(lines.next().unwrap(), Some(FileLine::Whole(b"")));
        for _ in 0..50 {
            out.write_all(&vec![b'x'; READ_LINE_BYTES_MAX]).unwrap();
            assert_eq!(lines.next().unwrap(), None);
            assert!(lines.buffer.capacity() < 8 * READ_LINE_BYTES_MAX);
            assert_eq!(lines.offset(), 9);
        }
        out.write_all(b"\nend\n").unwrap();
        assert_eq!(lines.next().unwrap(), Some(FileLine::TooLong));
        assert_eq!(lines.next().unwrap(), Some(FileLine::Whole(b"end")));
        assert_eq!(lines.count(), 5);
        assert_eq!(lines.offset(), out.metadata().unwrap().len());
    }
}
