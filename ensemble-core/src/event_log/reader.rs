//! Reads the log, whole or as it grows, and tolerates any content.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::follower::Follower;
use super::lines::FileLine;
use super::mentions::MentionFilter;
use super::record::Record;
use crate::message::describe_json_fault;
use crate::{Error, Result};

const BAD_LINES_KEPT: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {detail}", path.display())]
pub struct BadLine {
    pub path: PathBuf,
    pub line: u64,
    pub detail: String,
}

/// The skipped lines: all counted, the latest hundred kept.
#[derive(Clone, Debug, Default)]
pub struct BadLines {
    count: u64,
    latest: VecDeque<BadLine>,
}

impl BadLines {
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = &BadLine> {
        self.latest.iter()
    }

    pub(super) fn add(&mut self, path: &Path, line: u64, detail: impl Into<String>) {
        self.count += 1;
        if self.latest.len() == BAD_LINES_KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(BadLine { path: path.to_owned(), line, detail: detail.into() });
    }

    /// Parses the record in a line. An empty line, left by closing a torn one, yields nothing and
    /// is not bad.
    pub(super) fn sift(&mut self, line: &FileLine<'_>, path: &Path, number: u64) -> Option<Record> {
        let text = match line {
            FileLine::Whole([]) => return None,
            FileLine::Whole(text) => text,
            FileLine::TooLong => {
                self.add(path, number, "the line is too long for a record");
                return None;
            }
        };
        match Record::parse(text) {
            Ok(record) => Some(record),
            Err(error) => {
                let fault = describe_json_fault(&error);
                // The place has the line already.
                self.add(path, number, fault.strip_prefix("line 1, ").unwrap_or(&fault));
                None
            }
        }
    }
}

/// All records of a log in order, over all its segments and sessions; see [`read_all`].
#[derive(Debug)]
pub struct LogRecords {
    follower: Follower,
    batch: VecDeque<Record>,
    is_done: bool,
    failure: Option<Error>,
}

/// Reads all records present now, in bounded memory. It skips lines that are not records and counts
/// them. A directory that does not exist is an empty log.
///
/// The log cannot be read. If reading fails later, the iterator ends and [`LogRecords::failure`] returns the error.
pub fn read_all(dir: &Path) -> Result<LogRecords> {
    read(Follower::from_start(dir))
}

/// As [`read_all`], for records that may mention a name.
pub(super) fn read_mentioning(dir: &Path, mentions: MentionFilter) -> Result<LogRecords> {
    read(Follower::from_start(dir).mentioning(mentions))
}

fn read(mut follower: Follower) -> Result<LogRecords> {
    let batch = follower.poll()?.into();
    Ok(LogRecords { follower, batch, is_done: false, failure: None })
}

impl LogRecords {
    pub fn bad_lines(&self) -> &BadLines {
        self.follower.bad_lines()
    }

    /// The error that ended reading early, if any.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    pub fn into_failure(self) -> Option<Error> {
        self.failure
    }

    fn refill(&mut self) {
        match self.follower.poll() {
            Ok(batch) if !batch.is_empty() => self.batch = batch.into(),
            Ok(_) => {
                self.is_done = true;
                // This reader does not wait for the rest of the last line.
                self.batch.extend(self.follower.give_up_rest());
            }
            Err(error) => {
                self.is_done = true;
                self.failure = Some(error);
            }
        }
    }
}

impl Iterator for LogRecords {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.batch.is_empty() && !self.is_done {
            self.refill();
        }
        self.batch.pop_front()
    }
}
