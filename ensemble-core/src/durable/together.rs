//! One sync of a directory or a file for all processes that wait for one.
//!
//! ```text
//! new.sync    16 bytes: syncs of new/ begun so far             16 bytes: number of the last completed one
//!
//! After a rename: read `begun`. The caller needs a sync with a greater number.
//! done >= the needed number          -> another process has synced: return
//! the file's lock is free            -> lead: begun + 1; fsync; done = that number; unlock
//! another process holds the lock     -> its sync may have begun before the rename: wait
//! the wait exceeds PATIENCE          -> sync alone, without the lock and the numbers
//! begun is the greatest number       -> a sync has failed: each process syncs alone from now on
//! ```
//!
//! A number that is begun after the caller has read the counter belongs to a sync that starts after
//! the caller's rename. So that sync covers the rename, whichever process runs it. While a sync
//! runs, all later callers wait for the next one, which one of them leads for all. With many
//! senders the disk sees one sync instead of one for each. A single sender does the same `fsync` as
//! without this module.
//!
//! *A crash* of the leader frees the lock. `done` does not include its sync, so another process
//! leads the next one. *A failed sync* is reported once to each open descriptor, and the kernel
//! drops the data. A later successful sync proves nothing about earlier renames, so its number must
//! not count. *A stopped* leader costs each waiting process its patience, each time. *A power cut*
//! leaves arbitrary numbers, which are harmless: they are only compared with each other. Each
//! number is followed by its complement, because a reader may see half of a write. If the two do
//! not match, or cannot be read, the process syncs alone. The file may be removed at any time:
//! processes that have it open continue with each other.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, OFlags};
use rustix::io::retry_on_intr;

use super::{Dir, FileModes};
use crate::{Result, sys};

/// How long to wait for other processes: many times the duration of a sync, and short enough if the
/// leader was stopped.
const PATIENCE: Duration = Duration::from_millis(50);
/// Pause between two checks whether other processes are done: a part of a sync's duration.
const PAUSE: Duration = Duration::from_micros(20);
const COUNTER_BYTES: usize = 16;
const BEGUN: u64 = 0;
const DONE: u64 = COUNTER_BYTES as u64;
/// `begun` after a sync that failed.
const FAILED: u64 = u64::MAX;

/// The group of syncs of one directory or file. Threads may share it.
#[derive(Debug)]
pub(crate) struct SyncTogether {
    name: String,
    /// Opened when it is first needed; `None` if it cannot be opened.
    counters: OnceLock<Option<File>>,
    /// Excludes threads: the file's lock excludes only other processes.
    turn: Mutex<()>,
}

impl SyncTogether {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), counters: OnceLock::new(), turn: Mutex::new(()) }
    }

    /// Makes the names in `dir`, as they are at this call, survive a power cut. `home` is the
    /// directory of the counters.
    pub(crate) fn sync(&self, dir: &Dir, home: &Dir, modes: FileModes) -> Result<()> {
        self.sync_by(home, modes, || dir.sync())
    }

    /// As [`SyncTogether::sync`], with a function that syncs all earlier changes.
    pub(super) fn sync_by(
        &self,
        home: &Dir,
        modes: FileModes,
        sync: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let counters = self.counters.get_or_init(|| open(home, &self.name, modes));
        let Some(counters) = counters else { return sync() };
        // Read this first: syncs that begin from here on cover the caller's change. No number is
        // greater than one that cannot be read.
        let begun = read(counters, BEGUN).unwrap_or(FAILED);
        // A number that was never begun is not one of a sync.
        let was_begun = |number: u64| read(counters, BEGUN).is_some_and(|last| number <= last);
        let is_done = || read(counters, DONE).is_some_and(|done| done > begun && was_begun(done));
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

/// Syncs for all waiting processes, under the lock: numbers only grow. If a counter cannot be
/// written, the other processes just sync, too.
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

fn open(home: &Dir, name: &str, modes: FileModes) -> Option<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = sys::mode(modes.file);
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
    fn after_a_failed_sync_each_process_syncs_alone() {
        let home = tempfile::tempdir().unwrap();
        let home = Dir::open(home.path()).unwrap();
        let (first, second) = (SyncTogether::new("x.sync"), SyncTogether::new("x.sync"));
        let syncs = Cell::new(0);
        let good = || {
            syncs.set(syncs.get() + 1);
            Ok(())
        };
        first.sync_by(&home, FileModes::default(), good).unwrap();
        let counters = open(&home, "x.sync", FileModes::default()).unwrap();
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(1), Some(1)));
        let eio = || Err(crate::Error::io("sync", "x", rustix::io::Errno::IO));
        assert!(first.sync_by(&home, FileModes::default(), eio).is_err());
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(FAILED), Some(1)));
        second.sync_by(&home, FileModes::default(), good).unwrap();
        assert_eq!(syncs.get(), 2);
        assert_eq!((read(&counters, BEGUN), read(&counters, DONE)), (Some(FAILED), Some(1)));
        assert!(write(&counters, BEGUN, 1) && write(&counters, DONE, 9));
        second.sync_by(&home, FileModes::default(), good).unwrap();
        assert_eq!(syncs.get(), 3, "no sync has the number 9");
    }
}
