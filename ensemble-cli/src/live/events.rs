//! The last events of the log, read as it grows.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ensemble_app::failure::Outcome;
use ensemble_core::event_log::{self, Follower, Record, types};

/// How much of the end of the log is read at first, in bytes.
const FIRST_BYTES_MAX: u64 = 64 * 1024;
/// Most events that are kept: more than the largest terminal has lines.
const KEPT_MAX: usize = 200;
/// Types of records that say nothing to a person.
const DULL_TYPES: [&str; 6] = [
    types::RECEIPT_NOTIFIED,
    types::RECEIPT_SUBMITTED,
    types::MESSAGE_EXTENDED,
    types::FILE_ROUTED,
    types::QUEUE_SWEPT,
    types::LEASE_KEPT,
];

/// The last events, oldest first.
pub(super) struct LastEvents {
    logs: PathBuf,
    follower: Option<Follower>,
    kept: VecDeque<Record>,
}

impl LastEvents {
    pub(super) fn of(logs: &Path) -> Self {
        Self { logs: logs.to_owned(), follower: None, kept: VecDeque::new() }
    }

    /// Reads what is new.
    pub(super) fn update(&mut self) -> Outcome {
        let Some(follower) = &mut self.follower else { return self.begin() };
        let new = follower.poll()?;
        self.keep(new);
        Ok(())
    }

    fn begin(&mut self) -> Outcome {
        let mut follower = Follower::from_end(&self.logs)?;
        let mut before = event_log::recent(&self.logs, FIRST_BYTES_MAX)?;
        // What was written between the two is in both.
        let new = follower.poll()?;
        before.retain(|record| !new.contains(record));
        self.keep(before);
        self.keep(new);
        self.follower = Some(follower);
        Ok(())
    }

    fn keep(&mut self, new: Vec<Record>) {
        self.kept.extend(new.into_iter().filter(|it| !DULL_TYPES.contains(&it.kind.as_str())));
        self.kept.drain(..self.kept.len().saturating_sub(KEPT_MAX));
    }

    /// The last so many.
    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = &Record> {
        self.kept.iter().skip(self.kept.len().saturating_sub(count))
    }
}
