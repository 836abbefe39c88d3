//! Reads the last records of the log, newest first. The cost depends on the number of requested
//! records, not on the length of the log.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::follower::LogPosition;
use super::lines::{FileLine, READ_LINE_BYTES_MAX, read_at};
use super::reader::BadLines;
use super::record::Record;
use super::segment;
use crate::durable::{Dir, stat_file};
use crate::error::allow_missing;
use crate::{Error, Result};

const CHUNK_BYTES: u64 = 64 * 1024;

#[derive(Debug, Default)]
pub struct LastRecords {
    pub records: Vec<Record>,
    /// Number of lines skipped because they are not records.
    pub bad_lines: u64,
}

/// The last `count` matching records, or those before a position if one is given. An empty log
/// yields none.
pub fn last(
    dir: &Path,
    before: Option<&LogPosition>,
    count: usize,
    is_wanted: impl Fn(&Record) -> bool,
) -> Result<LastRecords> {
    let Some(dir) = allow_missing(Dir::open(dir))? else { return Ok(LastRecords::default()) };
    let (mut records, mut bad_lines) = (Vec::new(), BadLines::default());
    let mut segments = segment::list(&dir)?;
    segments.retain(|segment| before.is_none_or(|before| *segment <= before.segment));
    while let Some(segment) = segments.pop().filter(|_| records.len() < count) {
        let name = segment.to_string();
        if !dir.stat(&name)?.is_some_and(|stat| stat.is_file) {
            continue;
        }
        let Some(file) = dir.open_file(&name)? else { continue };
        let path = dir.path().join(name);
        let end = match before.filter(|before| before.segment == segment) {
            Some(before) => before.offset,
            None => stat_file(&file, &path)?.bytes,
        };
        let mut lines = ReverseLines::new(file, path.clone(), end);
        while records.len() < count
            && let Some(line) = lines.next()?
        {
            // The line's number in the file is unknown when reading backwards.
            records.extend(bad_lines.sift(&line, &path, 0).filter(&is_wanted));
        }
    }
    records.reverse();
    Ok(LastRecords { records, bad_lines: bad_lines.count() })
}

/// The lines of a file, last line first, in bounded memory.
#[derive(Debug)]
struct ReverseLines {
    file: File,
    path: PathBuf,
    /// Bytes that were read and not yielded, up to the newline of the line yielded last.
    unread: Vec<u8>,
    /// Offset in the file of the first such byte.
    start: u64,
    /// Part of the line at the end of `unread` was discarded because the line is too long.
    let_go: bool,
    is_done: bool,
    line: Vec<u8>,
}

impl ReverseLines {
    fn new(file: File, path: PathBuf, end: u64) -> Self {
        let (unread, line) = (Vec::new(), Vec::new());
        Self { file, path, unread, start: end, let_go: false, is_done: false, line }
    }

    /// The previous line, without its newline. Bytes after the last newline count as a line.
    fn next(&mut self) -> Result<Option<FileLine<'_>>> {
        // There is no newline between here and the end.
        let mut searched = self.unread.len();
        let start = loop {
            if let Some(at) = self.unread[..searched].iter().rposition(|byte| *byte == b'\n') {
                break at + 1;
            }
            if self.start == 0 {
                if std::mem::replace(&mut self.is_done, true) {
                    return Ok(None);
                }
                break 0;
            }
            if self.unread.len() > READ_LINE_BYTES_MAX {
                self.let_go = true;
                self.unread.clear();
            }
            searched = self.read_chunk()?;
        };
        self.line.clear();
        self.line.extend_from_slice(&self.unread[start..]);
        self.unread.truncate(start.saturating_sub(1));
        let is_too_long = std::mem::take(&mut self.let_go) || self.line.len() > READ_LINE_BYTES_MAX;
        Ok(Some(if is_too_long { FileLine::TooLong } else { FileLine::Whole(&self.line) }))
    }

    /// Reads the bytes before; returns their number.
    fn read_chunk(&mut self) -> Result<usize> {
        let start = self.start.saturating_sub(CHUNK_BYTES);
        let room = usize::try_from(self.start - start).unwrap_or_default();
        let mut chunk = vec![0; room];
        if read_at(&self.file, &mut chunk, start, &self.path)? < room {
            return Err(Error::io("read", &self.path, std::io::ErrorKind::UnexpectedEof));
        }
        chunk.append(&mut self.unread);
        (self.unread, self.start) = (chunk, start);
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{EventLog, Follower, LogOptions, Recorder as _, read_all};
    use super::*;

    /// Ten segments over two sessions.
    fn log(dir: &Path) {
        let options = LogOptions::default().with_segment_bytes_max(1_000);
        for session in 0..2 {
            EventLog::start_session_with(dir, "conductor", options).unwrap();
            let log = EventLog::open_with(dir, options).unwrap();
            for number in 0..25 {
                log.record("test.line", "a", json!({ "session": session, "number": number }));
            }
        }
    }

    #[test]
    fn the_last_records_are_the_last_of_all_for_every_count_and_filter() {
        let home = tempfile::tempdir().unwrap();
        log(home.path());
        let files = std::fs::read_dir(home.path()).unwrap().count();
        assert!(files > 8, "{files}");
        let wanted: [fn(&Record) -> bool; 3] = [
            |_| true,
            |record| record.kind.matches("test.line"),
            |record| record.data.get("number") == Some(&json!(3)),
        ];
        for wanted in wanted {
            let all: Vec<Record> = read_all(home.path()).unwrap().filter(wanted).collect();
            for count in [0, 1, 2, 7, 30, 1_000] {
                let last = last(home.path(), None, count, wanted).unwrap();
                assert_eq!(last.records, all[all.len().saturating_sub(count)..], "{count}");
                assert_eq!(last.bad_lines, 0);
            }
        }
        assert!(last(&home.path().join("nowhere"), None, 9, |_| true).unwrap().records.is_empty());
    }

    #[test]
    fn records_before_a_follower_and_records_it_yields_are_the_whole_log() {
        let home = tempfile::tempdir().unwrap();
        log(home.path());
        let mut follower = Follower::from_end(home.path()).unwrap();
        log(home.path());
        let position = follower.position().unwrap();
        let mut records = last(home.path(), Some(&position), 1_000, |_| true).unwrap().records;
        assert!(records.len() > 50);
        records.extend(follower.poll().unwrap());
        assert_eq!(records, read_all(home.path()).unwrap().collect::<Vec<_>>());
    }

    #[test]
    fn damaged_and_overlong_lines_are_skipped() {
        let home = tempfile::tempdir().unwrap();
        let log = EventLog::open(home.path()).unwrap();
        log.record("test.first", "a", json!({}));
        let path = log.segment_path().unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        let whole = content.lines().last().unwrap();
        let endless = "x".repeat(3 * READ_LINE_BYTES_MAX + 7);
        for (middle, bad) in [("torn", 1), ("\n\n", 0), (endless.as_str(), 1)] {
            // The last line lacks only its newline.
            std::fs::write(&path, format!("{whole}\n{middle}\n{whole}")).unwrap();
            let last = last(home.path(), None, 9, |_| true).unwrap();
            assert_eq!((last.records.len(), last.bad_lines), (2, bad), "{:.9}", middle);
        }
        std::fs::write(&path, &endless).unwrap();
        let last = last(home.path(), None, 9, |_| true).unwrap();
        assert_eq!((last.records.len(), last.bad_lines), (0, 1));
    }
}
