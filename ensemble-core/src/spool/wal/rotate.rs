//! Starts the next segment, and removes segments that are no longer needed.
//!
//! | a rotator is killed after | leaves | handled by |
//! |---|---|---|
//! | the next segment was made | an unopened segment, whose name may not survive | it is ignored; the next new one is opened |
//! | it was opened | two open segments | the newest is appended to; the next rotation removes the older one |
//! | the old one was shut | a shut segment | the next rotation removes it |
//! | the file system was synced | the same | the same: its replay does nothing |

use super::WalError;
use std::time::Duration;

use super::{Log, find_dir, segments, turn};
use crate::Result;
use crate::durable::segment::{Segment, SegmentHeader, SegmentState, parse_segment_name};
use crate::durable::{Dir, Moved};
use crate::message::MessageId;
use crate::spool::Spool;
use crate::spool::mailbox::Mailbox;

/// How long a rotator waits for processes inside a segment, which need about the time of a sync.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

impl Log {
    pub(super) fn is_full(&self, segment: &Segment) -> bool {
        segment.bytes().is_ok_and(|bytes| bytes >= self.bytes_max)
    }

    /// Makes the next segment and opens it. The lock must be held.
    pub(super) fn make_next(&self, dir: &Dir) -> Result<Segment> {
        let newest = dir.names()?.iter().filter_map(|name| parse_segment_name(name)).max();
        let number = newest.unwrap_or(0) + 1;
        let made_millis = u64::try_from(self.clock.0.wall().unix_millis()).unwrap_or(0);
        let salt = uuid::Uuid::now_v7().simple().to_string();
        let header = SegmentHeader { boot: self.boot.clone(), salt, made_millis };
        let in_the_way = || WalError::Interfered { path: dir.path().to_owned() };
        match Segment::make(dir, number, &header, self.modes)? {
            Moved::Done => {}
            Moved::Exists | Moved::Gone => return Err(in_the_way().into()),
        }
        dir.sync()?;
        let segment = Segment::open(dir, number)?.ok_or_else(in_the_way)?;
        segment.set_state(SegmentState::Open, dir)?;
        Ok(segment)
    }

    /// Rotates to a new segment, unless another process does so already.
    pub(super) fn rotate(&self, dir: &Dir) -> Result<()> {
        let Ok(_turn) = turn(dir, Duration::ZERO) else { return Ok(()) };
        let old = segments(dir)?;
        let newest = old.iter().rev().find(|s| s.state() == Some(SegmentState::Open));
        if newest.is_some_and(|newest| !self.is_full(newest)) {
            return Ok(());
        }
        self.make_next(dir)?;
        take_away(dir, &old, &self.boot)
    }
}

/// Removes segments, once all their changes are on disk. The lock must be held.
fn take_away(dir: &Dir, old: &[Segment], boot: &str) -> Result<()> {
    let is_kept = |segment: &Segment| segment.state() == Some(SegmentState::Kept);
    if old.iter().any(|segment| segment.header.boot != boot || is_kept(segment)) {
        return Err(WalError::NeedsReplay { path: dir.path().to_owned() }.into());
    }
    old.iter().try_for_each(|segment| segment.set_state(SegmentState::Shut, dir))?;
    // Remove the oldest first: it may log messages that younger segments have finished.
    let mut stuck = Ok(());
    let left = old.iter().take_while(|segment| {
        stuck = segment.wait_until_left(dir, LEAVE_PATIENCE);
        stuck.is_ok()
    });
    let left: Vec<&Segment> = left.collect();
    if let Err(error) = dir.sync_file_system() {
        for segment in segments(dir)? {
            segment.set_state(SegmentState::Kept, dir)?;
        }
        return Err(error);
    }
    left.iter().try_for_each(|segment| segment.remove(dir))?;
    stuck?;
    remove_strays(dir)
}

/// Removes segments of killed processes. The lock must be held, so that no other process makes one.
pub(super) fn remove_strays(dir: &Dir) -> Result<()> {
    let is_known = |name: &String| name == super::LOCK || parse_segment_name(name).is_some();
    dir.names()?.iter().filter(|name| !is_known(name)).try_for_each(|name| dir.remove(name))
}

/// # Empty the write-ahead log
impl Spool {
    /// Logs, if there is a log, that a message was taken out of the queue: it must not reappear.
    pub(in crate::spool) fn log_gone(&self, mailbox: &Mailbox, id: &MessageId) -> Result<()> {
        let Some(dir) = find_dir(&mailbox.queue)?.filter(|_| self.is_power()) else {
            return Ok(());
        };
        if segments(&dir)?.is_empty() {
            return Ok(());
        }
        match mailbox.log.enter(&mailbox.queue, 0) {
            Some(inside) if inside.gone(&mailbox.name, id) => {
                inside.commit()?;
                drop(inside);
                mailbox.log.go_on();
                Ok(())
            }
            _ => self.checkpoint(),
        }
    }

    /// Makes all logged changes durable without the log, and empties the log. Call it before moving
    /// message files out of the queue, or before archiving or copying the queue. Does nothing
    /// without a log.
    ///
    /// ```
    /// # use ensemble_core::spool::{Options, Spool};
    /// # let home = tempfile::tempdir()?;
    /// let spool = Spool::create(&home.path().join("queue"), Options::default())?;
    /// spool.checkpoint()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The disk failed, or a suspended process is in the middle of a change. The log stays, and
    /// nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        let Some(dir) = find_dir(&self.queue_dir()?)? else { return Ok(()) };
        let _turn = turn(&dir, self.options.lock_patience)?;
        let old = segments(&dir)?;
        if old.is_empty() {
            return Ok(());
        }
        take_away(&dir, &old, &super::boot(&self.options))
    }

    /// As [`Spool::checkpoint`], if the log is older than a minute: by then the kernel has written
    /// most of the data. Idle processes call it, so that senders need not.
    pub(in crate::spool) fn checkpoint_if_old(&self) -> Result<()> {
        let Some(dir) = find_dir(&self.queue_dir()?)? else { return Ok(()) };
        let oldest = segments(&dir)?.first().map(|segment| segment.header.made_millis);
        match oldest.map(|made| self.wall_millis().saturating_sub(made)) {
            Some(age) if age >= super::AGE_MIN_MILLIS => self.checkpoint(),
            _ => Ok(()),
        }
    }
}
