//! Reads the end of a segment before a writer appends: the last number, whether the last line is
//! complete, and the next segment, if any.

use std::fs::File;
use std::path::Path;

use super::line::LINE_BYTES_MAX;
use super::lines::{FileLine, LineReader, read_at};
use super::record::{Record, RecordType};
use super::segment::Segment;
use crate::{Error, Result};

/// Bytes read from the end: two of the longest lines.
const TAIL_BYTES: u64 = 2 * LINE_BYTES_MAX as u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentTail {
    /// The number of the last ordered record; 0 if there is none.
    pub(super) seq: u64,
    /// The last byte is not a newline, so the next write must begin with one.
    pub(super) is_torn: bool,
    /// The next segment, and the actor that recorded it.
    pub(super) next: Option<(Segment, String)>,
    /// `seq` and `next` include all records that begin before this offset. A line begins here.
    known: u64,
}

impl SegmentTail {
    /// The tail of an unread segment; numbers up to `seq` are used.
    pub(super) fn starting_at(seq: u64) -> Self {
        Self { seq, ..Self::default() }
    }

    /// The end of the segment at a size of `bytes`. Reads only new bytes, and at most
    /// [`TAIL_BYTES`] of them, unless they hold no ordered record.
    pub(super) fn read_on(&self, file: &File, path: &Path, bytes: u64) -> Result<Self> {
        let known = if self.known <= bytes { self.known } else { 0 };
        let start = known.max(bytes.saturating_sub(TAIL_BYTES));
        let mut content = vec![0; usize::try_from(bytes - start).unwrap_or_default()];
        let read = read_at(file, &mut content, start, path)?;
        content.truncate(read);
        let newline = |at: Option<usize>| at.map(|at| start + at as u64 + 1);
        let mut tail = Self {
            seq: self.seq,
            is_torn: content.last().is_some_and(|byte| *byte != b'\n'),
            next: self.next.clone().filter(|_| known > 0),
            known: newline(content.iter().rposition(is_newline)).unwrap_or(known),
        };
        let lines = match start == known {
            true => &content[..],
            // The first line began before `start`.
            false => content.iter().position(is_newline).map_or(&[][..], |at| &content[at + 1..]),
        };
        match lines.rsplit(is_newline).find_map(parse_ordered) {
            Some(last) => tail.count_record(&last),
            None if start == known => {}
            None => tail.read_all(file, path, known)?,
        }
        Ok(tail)
    }

    /// The tail after our own line of this number, which ends at this offset.
    pub(super) fn advance_to(&mut self, seq: u64, end: u64) {
        self.seq = seq;
        self.is_torn = false;
        self.known = end;
    }

    fn read_all(&mut self, file: &File, path: &Path, from: u64) -> Result<()> {
        let file = file.try_clone().map_err(|e| Error::io("read", path, e))?;
        let mut lines = LineReader::new(file, path, from, 0);
        while let Some(line) = lines.next()? {
            if let FileLine::Whole(line) = line
                && let Some(record) = parse_ordered(line)
            {
                self.count_record(&record);
            }
        }
        Ok(())
    }

    /// Numbers never go back, even if a person has put an older file in place.
    fn count_record(&mut self, record: &Record) {
        self.seq = self.seq.max(record.seq);
        self.next = (record.kind == RecordType::LOG_CONTINUED)
            .then(|| record.data.get("next")?.as_str().and_then(Segment::parse))
            .flatten()
            .map(|next| (next, record.actor.clone()));
    }
}

fn is_newline(byte: &u8) -> bool {
    *byte == b'\n'
}

fn parse_ordered(line: &[u8]) -> Option<Record> {
    Record::parse(line).ok().filter(|record| !record.unordered)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(seq: u64, more: &str) -> String {
        format!(
            r#"{{"timestamp":"2026-11-21T22:50:01.123Z","session_id":"session-20261121-225001","seq":{seq},"type":"task_start","actor":"a","data":{{}}{more}}}"#
        ) + "\n"
    }

    #[test]
    fn the_last_ordered_number_is_found_behind_any_content() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("segment");
        let mut file = File::options().create(true).append(true).read(true).open(&path).unwrap();
        let mut tail = SegmentTail::starting_at(3);
        let mut expect = |text: &str, seq: u64, is_torn: bool| {
            file.write_all(text.as_bytes()).unwrap();
            let bytes = file.metadata().unwrap().len();
            tail = tail.read_on(&file, &path, bytes).unwrap();
            assert_eq!((tail.seq, tail.is_torn), (seq, is_torn));
            // An incremental update must equal a fresh read.
            let fresh = SegmentTail::starting_at(3).read_on(&file, &path, bytes).unwrap();
            assert_eq!((fresh.seq, fresh.is_torn), (seq, is_torn));
        };
        expect("", 3, false);
        expect("garbage\n\0\0", 3, true);
        expect("\n", 3, false);
        expect(&line(4, ""), 4, false);
        let next = line(5, "");
        expect(&next[..40], 4, true);
        expect(&next[40..next.len() - 1], 5, true);
        expect("\n", 5, false);
        expect(&line(9, r#","unordered":true"#).repeat(500), 5, false);
        expect(&"x".repeat(100_000), 5, true);
        expect(&("\n".to_owned() + &line(6, "")), 6, false);
    }
}
