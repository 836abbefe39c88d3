//! Syncs of several files at the same time.
//!
//! A sync waits for the disk, and the kernel and the disk merge syncs that wait together. So
//! several threads sync many files in about the time of a few. The threads end before the call
//! returns. Where none can be started, the caller syncs all files itself. It also does so where a
//! sync takes little more time than starting a thread, as on tmpfs. One sync in several groups of
//! files is made alone to measure that.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

type SyncFile = fn(&File, &Path) -> Result<()>;

/// Syncs that wait for the disk at the same time, at most.
const THREADS_MAX: usize = 16;
/// Time of a sync from which threads gain more than they cost.
const SLOW: Duration = Duration::from_micros(200);
/// Groups of files of which one has its first sync measured.
const GROUPS_A_MEASURE: u32 = 8;

/// The syncs of a queue's files.
#[derive(Debug, Default)]
pub(crate) struct SyncMany {
    groups: AtomicU32,
    /// Whether the last measured sync was slow.
    is_slow: AtomicBool,
}

impl SyncMany {
    pub(crate) fn sync(&self, files: &[(File, PathBuf)], sync_file: SyncFile) -> Result<()> {
        let Some(((file, path), rest)) = files.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return files.iter().try_for_each(|(file, path)| sync_file(file, path));
        };
        let group = self.groups.fetch_add(1, Ordering::Relaxed);
        let mut left = files;
        if group.is_multiple_of(GROUPS_A_MEASURE) {
            let began = Instant::now();
            sync_file(file, path)?;
            self.is_slow.store(began.elapsed() >= SLOW, Ordering::Relaxed);
            left = rest;
        }
        match self.is_slow.load(Ordering::Relaxed) {
            true => sync_at_once(left, sync_file),
            false => left.iter().try_for_each(|(file, path)| sync_file(file, path)),
        }
    }
}

fn sync_at_once(files: &[(File, PathBuf)], sync_file: SyncFile) -> Result<()> {
    let next = AtomicUsize::new(0);
    let sync_rest = || -> Result<()> {
        while let Some((file, path)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync_file(file, path)?;
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

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::durable::sync_file;

    fn file() -> (File, PathBuf) {
        (tempfile::tempfile().unwrap(), PathBuf::from("a file"))
    }

    #[test]
    fn any_file_that_cannot_be_synced_is_reported() {
        // A pipe refuses every sync.
        let pipe = || (File::from(OwnedFd::from(std::io::pipe().unwrap().1)), "a pipe".into());
        for count in [0, 1, 2, 40] {
            let many = SyncMany::default();
            let mut files: Vec<_> = (0..count).map(|_| file()).collect();
            many.sync(&files, sync_file).unwrap();
            files.insert(count / 2, pipe());
            // Measured; one after the other; at the same time.
            for (group, is_slow) in [(0, false), (1, false), (1, true)] {
                many.groups.store(group, Ordering::Relaxed);
                many.is_slow.store(is_slow, Ordering::Relaxed);
                let error = many.sync(&files, sync_file).unwrap_err();
                assert!(error.to_string().contains("a pipe"), "{error}");
            }
        }
    }
}
