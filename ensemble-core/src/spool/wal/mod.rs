//! The write-ahead log of a queue: at `durability: power`, what everybody does to messages is made safe
//! by a sync of one file that they all append to, instead of a file and a directory for each. What many ask of
//! one file at a time the kernel and the disk put together.
//!
//! ```text
//! who             does, in this order                                      a power cut in between leaves
//! a sender        writes tmp/, appends `publish`, commits, renames         nothing, or the message, whole
//! a holder        renames cur/ to done/, appends `settle`, commits         it held, waiting or settled
//! who drops       removes and syncs as ever, appends `gone`, commits       it dropped, or a dead letter
//! who rotates     opens the next segment, shuts this one, waits until      records of what is on disk, which
//!                 nobody is inside, syncs the file system, removes it      do nothing once more
//! who opens       finds segments of an earlier start of the machine:       the same
//!                 replays them, syncs the file system, removes them
//! ```
//!
//! Files are the truth while the machine runs: nobody reads the log then, and a process that is killed
//! leaves files that are whole. So whoever cannot log (no room, no right, a lock that does not
//! lock, a large message) syncs its file and its directory instead, and nobody else needs to know. docs/protocol/durability.md has the format.
//!
//! A file system that fails to sync has dropped what it was to write, and may say of the next sync that
//! all is well. After that no segment is removed, and nothing is logged, until they were replayed.

pub(super) mod record;
mod replay;
mod rotate;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::Result;
use crate::durable::segment::{Segment, SegmentState, parse_segment_name};
use crate::durable::{Dir, Durability, FileLock, Modes};
use crate::env::Clock;
use crate::message::{MessageId, Name};

use super::Options;
use record::Place;
pub use replay::Replayed;
pub(super) use replay::replay_if_restarted;

/// The directory below the queue.
pub(super) const WAL: &str = "wal";
/// Held by whoever makes, shuts or removes segments. Appending needs no lock of its own.
const LOCK: &str = "lock";
/// The largest message that is logged, in bytes. A larger one would be written twice for little: its
/// own sync costs no more than its second copy.
pub(super) const LOGGED_BYTES_MAX: usize = 8 * 1024;
/// How large a segment grows before the next one is begun, in bytes.
pub const WAL_BYTES_DEFAULT: u64 = 16 * 1024 * 1024;
/// How old a segment is, in milliseconds, before whoever sweeps removes it, full or not.
const AGE_MIN_MILLIS: u64 = 60_000;

/// Which start of the machine this is; `-`, which is never the same, if that cannot be told.
pub(super) fn boot(options: &Options) -> String {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let of_machine = || {
        let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(read.trim().to_owned()).filter(|id| !id.is_empty() && !id.contains([' ', '\n']))
    };
    let known = options.boot.clone().or_else(|| BOOT.get_or_init(of_machine).clone());
    known.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// A start of the machine that cannot be told from others.
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
    /// The directory, once it was needed.
    dir: OnceLock<Option<Dir>>,
}

/// A clock that can be printed.
struct Clocked(Arc<dyn Clock + Send + Sync>);

impl std::fmt::Debug for Clocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Somebody who is about to change something and to say so in the log. Whoever rotates waits for them.
#[derive(Debug)]
pub(super) struct Inside {
    segment: Arc<Segment>,
}

impl Log {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            // Whose a file is is told by the system, and a replayed one would be somebody else's.
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

    /// Begins something that is to be logged; `None` if it cannot be, and has to be synced instead.
    pub(super) fn enter(&self, queue: &Dir, bytes: usize) -> Option<Inside> {
        if !self.is_on || bytes > LOGGED_BYTES_MAX {
            return None;
        }
        let dir = self
            .dir
            .get_or_init(|| queue.ensure_child_safe(WAL, self.modes, Durability::Power).ok());
        let dir = dir.as_ref()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // The one that is known was shut since: then there is another one, or one is to be made.
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

    /// Goes on to the next segment if this one is full: for who has just logged, and holds nothing that others
    /// wait for. What fails then is not theirs: the segment stays, and the next one tries again.
    pub(super) fn go_on(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Some(Some(dir)), Some(segment)) = (self.dir.get(), current)
            && self.is_full(&segment)
        {
            let _ = self.rotate(dir);
        }
    }

    /// The segment that is open, or a new one.
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
                    // Who made the directory may have been killed before it could sync.
                    Newest::None => queue.sync().and_then(|()| self.make_next(dir)).ok(),
                }
            }
        }
    }
}

impl Inside {
    /// Says that a message is about to be stored; `false` if the log does not take it.
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

    /// Says that a message was settled; `false` if the log does not take it.
    pub(super) fn settle(&self, mailbox: &Name, id: &MessageId) -> bool {
        self.segment.append(&record::settled(&self.segment.header.salt, mailbox, id))
    }

    /// Says that a message was taken out of the queue; `false` if the log does not take it.
    pub(super) fn gone(&self, mailbox: &Name, id: &MessageId) -> bool {
        self.segment.append(&record::gone(&self.segment.header.salt, mailbox, id))
    }

    /// Makes what was said survive a power cut, with what others have said meanwhile.
    pub(super) fn commit(&self) -> Result<()> {
        self.segment.commit()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.segment.leave();
    }
}

/// What appenders find.
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

/// The right to make, shut and remove segments.
fn turn(dir: &Dir, patience: Duration) -> Result<FileLock> {
    FileLock::acquire(&dir.path().join(LOCK), patience)
}

/// The log's directory; `None` if there never was one.
fn find_dir(queue: &Dir) -> Result<Option<Dir>> {
    match queue.open_child(WAL) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
