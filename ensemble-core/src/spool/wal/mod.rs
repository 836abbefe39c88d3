//! The write-ahead log of a queue. At `durability: power`, all processes append their changes to
//! one file, and syncs of that file make them durable. This replaces a sync of a file and a
//! directory for each change. The kernel and the disk merge concurrent syncs of one file.
//!
//! ```text
//! actor           does, in this order                                      a power cut in between leaves
//! a sender        writes tmp/, appends `publish`, commits, renames         nothing, or the message, whole
//! a holder        renames cur/ to done/, appends `settle`, commits         the message held, queued or settled
//! a remover       removes and syncs as usual, appends `gone`, commits      it removed, or a dead letter
//! a rotator       opens the next segment, shuts this one, waits until      records of finished changes,
//!                 no process is inside, syncs the file system, removes it  whose replay does nothing
//! an opener       finds segments of an earlier boot:                       the same
//!                 replays them, syncs the file system, removes them
//! ```
//!
//! While the machine runs, the files are the source of truth: no process reads the log, and a
//! killed process leaves whole files. A process that cannot log (no space, no permission, no
//! working lock, a large message) syncs its file and its directory instead. Other processes need
//! not know. docs/protocol/durability.md has the format.
//!
//! A file system whose sync fails has dropped the data, and may report success for the next sync.
//! After that no segment is removed, and nothing is logged, until the segments were replayed.

mod error;
pub(super) mod record;
mod replay;
mod rotate;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::Result;
use crate::durable::segment::{Segment, SegmentState, parse_segment_name};
use crate::durable::{Dir, Durability, FileLock, Modes};
use crate::env::{self, Clock};
use crate::message::{MessageId, Name};

use super::Options;
pub use error::WalError;
use record::Place;
pub use replay::Replayed;
pub(super) use replay::replay_if_restarted;

/// Directory of the log, below the queue.
pub(super) const WAL: &str = "wal";
/// Lock for making, shutting and removing segments. Appending needs no such lock.
const LOCK: &str = "lock";
/// Largest message that is logged, in bytes. A larger one syncs its own file: that costs no more
/// than a second copy.
pub(super) const LOGGED_BYTES_MAX: usize = 8 * 1024;
/// Size at which the next segment is begun, in bytes.
pub const WAL_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;
/// Age in milliseconds at which a sweep removes a segment, full or not.
const AGE_MIN_MILLIS: u64 = 60_000;

/// Id of the boot; `-`, which equals no boot, if it is unknown.
pub(super) fn boot(options: &Options) -> String {
    let of_machine = Some(env::boot_id()).filter(|id| !id.is_empty() && !id.contains([' ', '\n']));
    let known = options.boot.clone().or_else(|| of_machine.map(str::to_owned));
    known.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The unknown boot.
const UNKNOWN: &str = "-";

/// The log of an open queue. Threads may share it.
#[derive(Debug)]
pub(super) struct Log {
    is_on: bool,
    modes: Modes,
    bytes_max: u64,
    boot: String,
    clock: Clocked,
    current: Mutex<Option<Arc<Segment>>>,
    /// The directory, opened when it is first needed.
    dir: OnceLock<Option<Dir>>,
}

/// A clock that can be printed.
struct Clocked(Arc<dyn Clock + Send + Sync>);

impl std::fmt::Debug for Clocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// A process that is about to change something and log it. A rotator waits for it.
#[derive(Debug)]
pub(super) struct Inside {
    segment: Arc<Segment>,
}

impl Log {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            // The system decides the owner of a file, and a replayed file would have another owner.
            is_on: options.wal
                && options.durability == Durability::Power
                && options.owners.is_empty(),
            modes: options.modes,
            bytes_max: options.wal_bytes,
            boot: boot(options),
            clock: Clocked(Arc::clone(&options.clock)),
            current: Mutex::default(),
            dir: OnceLock::new(),
        }
    }

    /// Begins a logged change; `None` if it cannot be logged and must be synced instead.
    pub(super) fn enter(&self, queue: &Dir, bytes: usize) -> Option<Inside> {
        if !self.is_on || bytes > LOGGED_BYTES_MAX {
            return None;
        }
        let dir = self
            .dir
            .get_or_init(|| queue.ensure_child_safe(WAL, self.modes, Durability::Power).ok());
        let dir = dir.as_ref()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // The known segment was shut since: find the next one, or make it.
        for _ in 0..2 {
            if let Some(segment) = current.as_ref()
                && segment.enter()
            {
                return Some(Inside { segment: Arc::clone(segment) });
            }
            *current = self.open_one(queue, dir).map(Arc::new);
        }
        None
    }

    /// Starts the next segment if this one is full. Callers have just logged and hold no lock. A
    /// failure here is not the caller's: the segment stays, and the next caller tries again.
    pub(super) fn go_on(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Some(Some(dir)), Some(segment)) = (self.dir.get(), current)
            && self.is_full(&segment)
        {
            let _ = self.rotate(dir);
        }
    }

    /// The open segment, or a new one.
    fn open_one(&self, queue: &Dir, dir: &Dir) -> Option<Segment> {
        let find = || newest_open(dir, &self.boot).ok();
        match find()? {
            Newest::Open(segment) => Some(*segment),
            Newest::Kept => None,
            Newest::None => {
                let _turn = turn(dir, Duration::ZERO).ok()?;
                match find()? {
                    Newest::Open(segment) => Some(*segment),
                    Newest::Kept => None,
                    // The process that made the directory may have been killed before its sync.
                    Newest::None => queue.sync().and_then(|()| self.make_next(dir)).ok(),
                }
            }
        }
    }
}

impl Inside {
    /// Logs that a message is about to be stored; `false` if the log does not accept it.
    pub(super) fn publish(
        &self,
        mailbox: &Name,
        id: &MessageId,
        place: &Place,
        content: &[u8],
    ) -> bool {
        let salt = &self.segment.header.salt;
        self.segment.append(&record::published(salt, mailbox, id, place, content))
    }

    /// Logs that a message was settled; `false` if the log does not accept it.
    pub(super) fn settle(&self, mailbox: &Name, id: &MessageId) -> bool {
        self.segment.append(&record::settled(&self.segment.header.salt, mailbox, id))
    }

    /// Logs that a message was taken out of the queue; `false` if the log does not accept it.
    pub(super) fn gone(&self, mailbox: &Name, id: &MessageId) -> bool {
        self.segment.append(&record::gone(&self.segment.header.salt, mailbox, id))
    }

    /// Makes all records so far survive a power cut, including those of other processes.
    pub(super) fn commit(&self) -> Result<()> {
        self.segment.commit()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.segment.leave();
    }
}

/// The newest segment, as an appender finds it.
enum Newest {
    Open(Box<Segment>),
    /// A sync has failed: nothing is logged.
    Kept,
    None,
}

fn newest_open(dir: &Dir, boot: &str) -> Result<Newest> {
    let mut newest = Newest::None;
    for segment in segments(dir)? {
        match segment.state() {
            Some(SegmentState::Kept) => return Ok(Newest::Kept),
            Some(SegmentState::Open) if segment.header.boot == boot => {
                newest = Newest::Open(Box::new(segment));
            }
            _ => {}
        }
    }
    Ok(newest)
}

/// All segments, oldest first.
fn segments(dir: &Dir) -> Result<Vec<Segment>> {
    let mut numbers: Vec<u64> =
        dir.names()?.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers.sort_unstable();
    let opened = numbers.into_iter().map(|number| Segment::open(dir, number));
    opened.filter_map(Result::transpose).collect()
}

/// Takes the lock for making, shutting and removing segments.
fn turn(dir: &Dir, patience: Duration) -> Result<FileLock> {
    FileLock::acquire(&dir.path().join(LOCK), patience)
}

/// The log's directory; `None` if it does not exist.
fn find_dir(queue: &Dir) -> Result<Option<Dir>> {
    match queue.open_child(WAL) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
