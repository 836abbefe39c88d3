//! The new lines of a file that grows, each once.
//!
//! The file is another program's, so it may be of any size: a sparse file of terabytes costs its writer nothing. A caller
//! that others wait for reads a part at a time, as its [`ReadingLimit`] says.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use ensemble_core::durable::open_file;

/// The longest line that is read, in bytes. A longer one is skipped.
const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The largest file that is read, in bytes: many times what an agent writes in a month.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// How much may be read before the caller has to do other things, in all files together.
#[derive(Debug)]
pub struct ReadingLimit {
    left: u64,
    is_reached: bool,
}

impl ReadingLimit {
    /// At most about this much: the line at the limit is read whole.
    pub const fn of(bytes: u64) -> Self {
        Self { left: bytes, is_reached: false }
    }

    pub const fn none() -> Self {
        Self::of(u64::MAX)
    }

    /// Whether something is left for the next round.
    pub const fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Counts what was read. Returns whether there is room for more, and remembers if not.
    const fn spend(&mut self, bytes: u64) -> bool {
        self.left = self.left.saturating_sub(bytes);
        self.is_reached |= self.left == 0;
        self.left > 0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilePosition {
    inode: u64,
    offset: u64,
    /// In a line that is too long to be read.
    is_skipping: bool,
}

#[derive(Debug)]
pub(super) enum UnreadReason {
    /// It is another file than before, or shorter: what was read of it does not hold.
    Replaced,
    /// The disk failed, it is not a regular file, or it is too large.
    Failed,
}

impl From<std::io::Error> for UnreadReason {
    fn from(_: std::io::Error) -> Self {
        Self::Failed
    }
}

/// Passes on the complete lines after `position`, and moves it, until the end or `limit` is reached.
pub(super) fn read_new(
    path: &Path,
    position: &mut FilePosition,
    limit: &mut ReadingLimit,
    mut line: impl FnMut(&[u8]),
) -> Result<(), UnreadReason> {
    let Ok(Some((mut file, stat))) = open_file(path) else { return Err(UnreadReason::Failed) };
    if position.offset == 0 {
        position.inode = stat.id.inode;
    }
    if stat.id.inode != position.inode || stat.bytes < position.offset {
        return Err(UnreadReason::Replaced);
    }
    if stat.bytes > FILE_BYTES_MAX {
        return Err(UnreadReason::Failed);
    }
    if stat.bytes == position.offset || !limit.spend(0) {
        return Ok(());
    }
    file.seek(SeekFrom::Start(position.offset))?;
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    loop {
        let before = position.offset;
        if position.is_skipping {
            skip_line(&mut reader, position, limit.left)?;
        } else {
            bytes.clear();
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? as u64;
            position.is_skipping = read == LINE_BYTES_MAX && bytes.last() != Some(&b'\n');
            if bytes.last() == Some(&b'\n') {
                line(&bytes);
            } else if !position.is_skipping {
                // The program has not finished the line yet.
                return Ok(());
            }
            position.offset += read;
        }
        if position.offset == before || !limit.spend(position.offset - before) {
            return Ok(());
        }
    }
}

/// Skips the rest of a line, at most about `bytes_max` of it.
fn skip_line(
    reader: &mut BufReader<File>,
    position: &mut FilePosition,
    bytes_max: u64,
) -> std::io::Result<()> {
    let end = position.offset.saturating_add(bytes_max);
    while position.is_skipping && position.offset < end {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let newline = memchr::memchr(b'\n', buffer);
        let used = newline.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        position.offset += used as u64;
        position.is_skipping = newline.is_none();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// The lines that each round passes on.
    fn rounds(path: &Path, bytes: u64, position: &mut FilePosition) -> Vec<Vec<String>> {
        let mut rounds = Vec::new();
        loop {
            let (mut limit, mut lines) = (ReadingLimit::of(bytes), Vec::new());
            let take = |line: &[u8]| lines.push(String::from_utf8_lossy(line).trim().to_owned());
            read_new(path, position, &mut limit, take).unwrap();
            rounds.push(lines);
            if !limit.is_reached() {
                return rounds;
            }
        }
    }

    #[test]
    fn a_round_reads_a_part_and_the_next_one_continues() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        std::fs::write(&path, "one\ntwo\nthree\nfo").unwrap();
        let mut position = FilePosition::default();
        let read = rounds(&path, 5, &mut position);
        assert_eq!(read, [vec!["one", "two"], vec!["three"], vec![]]);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"ur\n").unwrap();
        assert_eq!(rounds(&path, 5, &mut position).concat(), ["four"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_parts() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        file.seek(SeekFrom::Start(2 * LINE_BYTES_MAX)).unwrap();
        file.write_all(b"\ntwo\n").unwrap();
        let read = rounds(&path, LINE_BYTES_MAX / 4, &mut FilePosition::default());
        assert!(read.len() >= 4, "{} rounds", read.len());
        assert_eq!(read.concat(), ["one", "two"]);
    }

    #[test]
    fn a_file_of_terabytes_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        File::create(&path).unwrap().set_len(4 << 40).unwrap();
        let read =
            read_new(&path, &mut FilePosition::default(), &mut ReadingLimit::none(), |_| panic!());
        assert!(matches!(read, Err(UnreadReason::Failed)));
    }
}
