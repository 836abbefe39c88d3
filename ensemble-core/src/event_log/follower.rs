//! A resumable reader that follows a growing log from file to file.

use std::ops::{Bound, RangeBounds as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lines::{LineReader, read_at};
use super::mentions::MentionFilter;
use super::reader::BadLines;
use super::record::Record;
use super::segment::{self, Segment};
use crate::Result;
use crate::durable::{Dir, FileId, stat_file, stat_path};

pub const POLL_RECORDS_MAX: usize = 4096;

/// The position of a [`Follower`]; store it to resume there later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogPosition {
    pub segment: Segment,
    /// The offset before which every byte was read.
    pub offset: u64,
    pub lines: u64,
}

/// Yields every record once, in order, as it is written. It follows rotation and new sessions,
/// skips damaged lines, and never yields half a line. It reads a truncated or replaced file from
/// its start.
///
/// ```
/// # use ensemble_core::event_log::{EventLog, Follower, Recorder as _};
/// # let home = tempfile::tempdir()?;
/// # let logs = home.path();
/// let log = EventLog::open(logs)?;
/// let mut escalations = Follower::from_start(logs).only(["escalation", "nudge.*"]);
/// log.record("task_start", "worker-1", serde_json::json!({ "task_id": "task-001" }));
/// log.record("escalation", "watcher", serde_json::json!({ "phase": 1 }));
/// assert_eq!(escalations.poll()?[0].data["phase"], 1);
/// assert_eq!(escalations.poll()?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    patterns: Vec<String>,
    mentions: Option<MentionFilter>,
    /// The position to begin at once the log has a file.
    start: Option<LogPosition>,
    open: Option<OpenSegment>,
    bad_lines: BadLines,
}

#[derive(Debug)]
struct OpenSegment {
    segment: Segment,
    id: FileId,
    lines: LineReader,
    /// A later segment, listed after the end of this one was read. Writers append nothing to this
    /// one any more. The follower reads lines appended between the two looks before it moves on. (A
    /// record written without the lock at that moment can come too late; `read_all` finds it.)
    next: Option<Segment>,
}

impl Follower {
    /// Begins with the oldest record.
    #[must_use]
    pub fn from_start(dir: &Path) -> Self {
        Self {
            path: dir.to_owned(),
            patterns: Vec::new(),
            mentions: None,
            start: None,
            open: None,
            bad_lines: BadLines::default(),
        }
    }

    /// As [`from_start`](Self::from_start), but after the newest record.
    pub fn from_end(dir: &Path) -> Result<Self> {
        let mut follower = Self::from_start(dir);
        if let Some(newest) = last_file(dir)? {
            follower.open(newest)?;
        }
        if let Some(open) = &mut follower.open {
            while open.lines.next()?.is_some() {}
        }
        Ok(follower)
    }

    /// Yields only records with a type that [matches](super::RecordType::matches) one of these.
    #[must_use]
    pub fn only<P: Into<String>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        self.patterns.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Yields only records that may mention one of these names; other lines are not parsed.
    pub(super) fn mentioning(mut self, mentions: MentionFilter) -> Self {
        self.mentions = Some(mentions);
        self
    }

    /// Returns the new records, at most [`POLL_RECORDS_MAX`] of them, or none. Does not wait.
    ///
    /// The log cannot be read. Repeat the call; it skips nothing.
    pub fn poll(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        match self.fill(&mut records) {
            Err(error) if records.is_empty() => Err(error),
            // An error after some records recurs at the next poll.
            _ => Ok(records),
        }
    }

    fn fill(&mut self, records: &mut Vec<Record>) -> Result<()> {
        if self.open.is_none() && !self.open_first()? {
            return Ok(());
        }
        loop {
            self.read_segment(records)?;
            if records.len() >= POLL_RECORDS_MAX || !self.move_on(records)? {
                return Ok(());
            }
        }
    }

    fn read_segment(&mut self, records: &mut Vec<Record>) -> Result<()> {
        let Some(OpenSegment { lines, .. }) = &mut self.open else { return Ok(()) };
        let path = lines.path().to_owned();
        while records.len() < POLL_RECORDS_MAX {
            let number = lines.count() + 1;
            let Some(line) = lines.next()? else { break };
            if self.mentions.as_ref().is_some_and(|mentions| mentions.nothing_in(&line)) {
                continue;
            }
            let record = self.bad_lines.sift(&line, &path, number);
            records.extend(record.filter(|record| is_wanted(&self.patterns, record)));
        }
        Ok(())
    }

    /// At the end of a segment: whether this or another segment may have more.
    fn move_on(&mut self, records: &mut Vec<Record>) -> Result<bool> {
        let Some(OpenSegment { segment, id, lines, next }) = &mut self.open else {
            return Ok(false);
        };
        if let Some(next) = next.clone() {
            let rest = self.give_up_rest();
            self.open(next)?;
            records.extend(rest);
            return Ok(true);
        }
        let stat = stat_path(lines.path())?;
        let is_same = stat.is_some_and(|stat| stat.id == *id);
        if stat.is_some_and(|stat| !is_same || stat.bytes < lines.offset()) {
            let segment = segment.clone();
            self.open(segment)?;
            return Ok(true);
        }
        // Read to the end of this segment again, then continue with the next.
        *next = first_file(&self.path, Bound::Excluded(segment))?;
        Ok(next.is_some())
    }

    fn open_first(&mut self) -> Result<bool> {
        let from = self.start.as_ref().map_or(Bound::Unbounded, |s| Bound::Included(&s.segment));
        match first_file(&self.path, from)? {
            None => Ok(false),
            Some(segment) => self.open(segment).map(|()| true),
        }
    }

    fn open(&mut self, segment: Segment) -> Result<()> {
        let path = self.path.join(segment.to_string());
        let Some(file) = Dir::open(&self.path)?.open_file(&segment.to_string())? else {
            // The file was deleted since the listing.
            self.open = None;
            self.start = Some(LogPosition { segment, offset: 0, lines: 0 });
            return Ok(());
        };
        let id = stat_file(&file, &path)?.id;
        let (mut offset, mut count) = (0, 0);
        if let Some(start) = self.start.take().filter(|start| start.segment == segment) {
            let mut before = [0];
            let at = start.offset.saturating_sub(1);
            // If no line ends there, the file was replaced.
            if read_at(&file, &mut before, at, &path)? == 1 && before == *b"\n" {
                (offset, count) = (start.offset, start.lines);
            }
        }
        let lines = LineReader::new(file, &path, offset, count);
        self.open = Some(OpenSegment { segment, id, lines, next: None });
        Ok(())
    }

    /// Parses the last line if only its newline is missing; otherwise the line is bad.
    pub(super) fn give_up_rest(&mut self) -> Option<Record> {
        let lines = &self.open.as_ref()?.lines;
        let record = self.bad_lines.sift(&lines.rest(), lines.path(), lines.count() + 1)?;
        is_wanted(&self.patterns, &record).then_some(record)
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Follower {
    /// Resumes where another follower of this log stopped. If that file is gone, starts with the
    /// next one.
    #[must_use]
    pub fn resume(dir: &Path, position: LogPosition) -> Self {
        Self { start: Some(position), ..Self::from_start(dir) }
    }

    /// The position to [resume](Follower::resume) at: after the last record yielded or filtered
    /// out. `None` while the log is empty.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        match &self.open {
            Some(open) => Some(LogPosition {
                segment: open.segment.clone(),
                offset: open.lines.offset(),
                lines: open.lines.count(),
            }),
            None => self.start.clone(),
        }
    }

    #[must_use]
    pub fn bad_lines(&self) -> &BadLines {
        &self.bad_lines
    }
}

fn is_wanted(patterns: &[String], record: &Record) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| record.kind.matches(pattern))
}

/// The first segment from here on; none if there is no log.
fn first_file(path: &Path, from: Bound<&Segment>) -> Result<Option<Segment>> {
    let Some((dir, segments)) = list(path)? else { return Ok(None) };
    let mut later =
        segments.into_iter().filter(|segment| (from, Bound::Unbounded).contains(segment));
    Ok(later.find(|segment| is_file(&dir, segment)))
}

/// The newest segment; none if there is no log.
fn last_file(path: &Path) -> Result<Option<Segment>> {
    let Some((dir, segments)) = list(path)? else { return Ok(None) };
    Ok(segments.into_iter().rfind(|segment| is_file(&dir, segment)))
}

fn list(path: &Path) -> Result<Option<(Dir, Vec<Segment>)>> {
    if stat_path(path)?.is_none() {
        return Ok(None);
    }
    let dir = Dir::open(path)?;
    let segments = segment::list(&dir)?;
    Ok(Some((dir, segments)))
}

fn is_file(dir: &Dir, segment: &Segment) -> bool {
    dir.stat(&segment.to_string()).is_ok_and(|stat| stat.is_some_and(|stat| stat.is_file))
}

#[cfg(test)]
mod tests {
    use super::super::{EventLog, Recorder as _};
    use super::*;

    #[test]
    fn records_appended_between_two_polls_are_read_before_the_next_segment() {
        let home = tempfile::tempdir().unwrap();
        let log = EventLog::open(home.path()).unwrap();
        let mut follower = Follower::from_start(home.path());
        let mut records = follower.poll().unwrap();
        // The follower is at the end of the segment, about to look for a later one.
        log.record("test.late", "test", serde_json::json!({}));
        EventLog::start_session(home.path(), "conductor").unwrap();
        assert!(follower.move_on(&mut records).unwrap());
        records.extend(follower.poll().unwrap());
        let kinds: Vec<&str> = records.iter().map(|record| record.kind.as_str()).collect();
        assert_eq!(kinds, ["session_start", "test.late", "log.continued", "session_start"]);
    }

    #[test]
    fn a_follower_starts_at_the_end_or_after_a_segment_that_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let old = EventLog::open(home.path()).unwrap().segment_path().unwrap();
        let mut follower = Follower::from_start(home.path());
        follower.poll().unwrap();
        let position = follower.position().unwrap();
        let log = EventLog::start_session(home.path(), "conductor").unwrap();
        std::fs::remove_file(old).unwrap();
        let mut at_the_end = Follower::from_end(home.path()).unwrap();
        log.record("test.line", "test", serde_json::json!({}));
        assert_eq!(at_the_end.poll().unwrap().len(), 1);
        let mut resumed = Follower::resume(home.path(), position);
        assert_eq!(resumed.poll().unwrap().len(), 2);
        assert_eq!(resumed.position(), at_the_end.position());
    }
}
