//! Syncs of several files at the same time.
//!
//! A sync waits for the disk, and the kernel and the disk merge syncs that wait together. So
//! several threads sync many files in about the time of a few. The threads end before the call
//! returns. Where none can be started, the caller syncs all files itself. Where a sync takes less
//! time than starting a thread, as in tmpfs, it does so as well.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::sync_file;
use crate::Result;

/// Syncs that wait for the disk at the same time, at most.
const THREADS_MAX: usize = 16;
/// Time of a sync from which threads gain more than they cost.
const SLOW: Duration = Duration::from_micros(100);

/// The syncs of a queue's files.
#[derive(Debug)]
pub(crate) struct SyncMany {
    /// Whether the last sync was slow.
    is_slow: AtomicBool,
}

impl Default for SyncMany {
    fn default() -> Self {
        Self { is_slow: AtomicBool::new(true) }
    }
}

impl SyncMany {
    /// Makes the contents of all files survive a power cut.
    ///
    /// # Errors
    /// A sync failed: each file may or may not survive.
    pub(crate) fn sync(&self, files: &[(File, PathBuf)]) -> Result<()> {
        let mut rest = files;
        while let Some((file, left)) = rest.split_first() {
            if self.is_slow.load(Ordering::Relaxed) && !left.is_empty() {
                return self.sync_at_once(rest);
            }
            self.sync_one(file)?;
            rest = left;
        }
        Ok(())
    }

    fn sync_one(&self, (file, path): &(File, PathBuf)) -> Result<()> {
        let began = Instant::now();
        sync_file(file, path)?;
        self.is_slow.store(began.elapsed() >= SLOW, Ordering::Relaxed);
        Ok(())
    }

    fn sync_at_once(&self, files: &[(File, PathBuf)]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let sync_rest = || -> Result<()> {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.sync_one(file)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let others = 1..files.len().min(THREADS_MAX);
            let started: Vec<_> = others
                .map_while(|_| thread::Builder::new().spawn_scoped(scope, sync_rest).ok())
                .collect();
            let own = sync_rest();
            started.into_iter().fold(own, |result, other| match other.join() {
                Ok(synced) => result.and(synced),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn file() -> (File, PathBuf) {
        (tempfile::tempfile().unwrap(), PathBuf::from("a file"))
    }

    #[test]
    fn any_file_that_cannot_be_synced_is_reported() {
        // A pipe refuses every sync.
        let pipe = || (File::from(OwnedFd::from(std::io::pipe().unwrap().1)), "a pipe".into());
        for (count, is_slow) in
            [(0, true), (1, true), (2, true), (40, true), (2, false), (40, false)]
        {
            let many = SyncMany { is_slow: AtomicBool::new(is_slow) };
            let mut files: Vec<_> = (0..count).map(|_| file()).collect();
            many.sync(&files).unwrap();
            files.insert(count / 2, pipe());
            many.is_slow.store(is_slow, Ordering::Relaxed);
            let error = many.sync(&files).unwrap_err();
            assert!(error.to_string().contains("a pipe"), "{error}");
        }
    }
}
