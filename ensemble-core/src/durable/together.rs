//! One sync of a directory, or of a file, for all who wait for one, in any number of processes.
//!
//! ```text
//! new.sync    16 bytes: how many syncs of new/ were begun      16 bytes: which of them was done last
//!
//! I have renamed.  Read `begun`; I need a sync with a greater number.
//! done >= what I need                -> somebody has synced for me: nothing is left to do
//! nobody holds the file's lock       -> I lead: begun + 1; fsync; done = that number; unlock
//! somebody holds it                  -> a sync runs that may have begun before my rename: wait
//! it takes longer than PATIENCE      -> sync by myself, without the lock and the numbers
//! begun is the greatest number       -> a sync has failed: everybody syncs by themselves from now on
//! ```
//!
//! A number that is begun after I have read the counter belongs to a sync that begins after my
//! rename, so that sync covers it, whoever asks for it. While one runs, all who come meanwhile wait
//! for the next one, which one of them leads for all: with many senders the disk sees a sync where
//! it would have seen one from each. Alone, it is the same `fsync` as without this page.
//!
//! *A crash* of the leader frees the lock; `done` does not name its sync, so somebody else leads
//! another. *A failed sync* is told to each descriptor that was open once, and what it was to write is
//! dropped: a later one that succeeds says nothing of what was renamed before, so its number must not
//! be taken for an answer. *A stopped* leader costs the others their patience, once each time. *A power cut* leaves
//! any numbers, and they are as good as any: they are only compared with each other. Each number is
//! followed by its complement, since a reader may see half of a write; what does not fit together,
//! or cannot be read, means that one syncs by oneself. The file may be removed at any time: whoever
//! has it open goes on with the others who have.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::{Dir, Modes};
use crate::Result;

/// How long to wait for others: many times what a sync takes, and short enough for one whose
/// leader was stopped.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause between two looks whether the others are done: a part of what a sync takes.
const PAUSE: Duration = Duration::from_micros(20);
/// A number and its complement.
const COUNTER_BYTES: usize = 16;
const BEGUN: u64 = 0;
const DONE: u64 = COUNTER_BYTES as u64;
/// `begun` after a sync that failed.
const FAILED: u64 = u64::MAX;

/// Those who sync one directory or file. Threads may share it.
#[derive(Debug)]
pub(crate) struct SyncTogether {
    name: String,
    /// Opened when it is first needed; `None` if it cannot be.
    counters: OnceLock<Option<File>>,
    /// The lock of the file excludes other processes only.
    turn: Mutex<()>,
}

impl SyncTogether {
    /// `name` is that of the file with the counters.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), counters: OnceLock::new(), turn: Mutex::new(()) }
    }

    /// Makes the names in `dir`, as they are at this call, survive a power cut. `home` is where the
    /// counters lie.
    pub(crate) fn sync(&self, dir: &Dir, home: &Dir, modes: Modes) -> Result<()> {
        self.sync_by(home, modes, || dir.sync())
    }

    /// As [`SyncTogether::sync`], with whatever syncs what all of them have changed before.
    pub(super) fn sync_by(
        &self,
        home: &Dir,
        modes: Modes,
        sync: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let counters = self.counters.get_or_init(|| open(home, &self.name, modes));
        let Some(counters) = counters else { return sync() };
        // Before anything else: what is begun from here on covers the caller's change. Nothing is
        // greater than a number that cannot be read.
        let begun = read(counters, BEGUN).unwrap_or(FAILED);
        let is_done = || read(counters, DONE).is_some_and(|done| done > begun);
        let start = Instant::now();
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if is_done() {
                return Ok(());
            }
            match counters.try_lock() {
                Ok(()) => {
                    let synced = if is_done() { Ok(()) } else { lead(counters, &sync) };
                    let _ = counters.unlock();
                    return synced;
                }
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                }
                Err(_) => return sync(),
            }
        }
    }
}

/// Syncs for all who wait, under the lock: numbers only grow. A counter that cannot be written only
/// means that the others do it, too.
fn lead(counters: &File, sync: &impl Fn() -> Result<()>) -> Result<()> {
    let begun = read(counters, BEGUN);
    if begun == Some(FAILED) {
        return sync();
    }
    let number = begun.max(read(counters, DONE)).unwrap_or(0).wrapping_add(1);
    let is_noted = write(counters, BEGUN, number);
    let synced = sync();
    if synced.is_err() {
        write(counters, BEGUN, FAILED);
    } else if is_noted {
        write(counters, DONE, number);
    }
    synced
}

fn open(home: &Dir, name: &str, modes: Modes) -> Option<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(modes.file);
    let file =
        retry_on_intr(|| fs::openat(home.as_fd(), name, flags, mode)).ok().map(File::from)?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn read(counters: &File, at: u64) -> Option<u64> {
    let mut bytes = [0; COUNTER_BYTES];
    counters.read_exact_at(&mut bytes, at).ok()?;
    let (number, complement) = bytes.split_at(COUNTER_BYTES / 2);
    let number = u64::from_le_bytes(number.try_into().ok()?);
    let complement = u64::from_le_bytes(complement.try_into().ok()?);
    (number == !complement).then_some(number)
}

fn write(counters: &File, at: u64, number: u64) -> bool {
    let mut bytes = [0; COUNTER_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    counters.write_all_at(&bytes, at).is_ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn after_a_failed_sync_nobody_takes_anothers_word() {
        let home = tempfile::tempdir().unwrap();
        let home = Dir::open(home.path()).unwrap();
        let (first, second) = (SyncTogether::new("x.sync"), SyncTogether::new("x.sync"));
        let syncs = Cell::new(0);
        let good = || {
            syncs.set(syncs.get() + 1);
            Ok(())
        };
        first.sync_by(&home, Modes::default(), good).unwrap();
        let counters = open(&home, "x.sync", Modes::default()).unwrap();
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(1), Some(1)));
        let eio = || Err(crate::Error::io("sync", "x", rustix::io::Errno::IO));
        assert!(first.sync_by(&home, Modes::default(), eio).is_err());
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(FAILED), Some(1)));
        second.sync_by(&home, Modes::default(), good).unwrap();
        assert_eq!(syncs.get(), 2);
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(FAILED), Some(1)));
    }
}
