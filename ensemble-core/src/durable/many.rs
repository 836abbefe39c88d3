//! Syncs of several files at the same time.
//!
//! A sync waits for the disk, and the kernel and the disk merge syncs that wait together. So
//! several threads sync many files in about the time of a few. The threads end before the call
//! returns. Where none can be started, the caller syncs all files itself. It also does so where a
//! sync takes little more time than starting a thread, as on tmpfs. One sync in several groups of
//! files is made alone to measure that.
//!
//! One sync of the whole file system covers all files, too, and often takes less time. But it also
//! writes what other programs have not synced. So it is used only while that is little, and both
//! ways are tried now and then to use the quicker one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{sync_file_and_name, sync_file_system};
use crate::{Result, sys};

type SyncFile = fn(&File, &Path) -> Result<()>;

/// Syncs that wait for the disk at the same time, at most.
const THREADS_MAX: usize = 16;
/// Time of a sync from which threads gain more than they cost.
const SLOW: Duration = Duration::from_micros(200);
/// Groups of files of which one has its first sync measured.
const GROUPS_A_MEASURE: u32 = 8;
/// Files from which one sync of the whole file system is tried.
const WHOLE_MIN: usize = 4;
/// Most bytes that the machine's programs may have left to write. A compiler leaves 100 MiB, which a slow disk writes in
/// a second.
const UNWRITTEN_MAX: u64 = 128 << 20;
/// Groups of files of which each way syncs one to compare them.
const GROUPS_A_TRIAL: u32 = 64;
/// The ways, by which their times are stored.
const BY_FILES: usize = 0;
const BY_FILE_SYSTEM: usize = 1;

/// The syncs of a queue's files.
#[derive(Debug, Default)]
pub(crate) struct SyncMany {
    groups: AtomicU32,
    /// Whether the last measured sync was slow.
    is_slow: AtomicBool,
    /// Groups for which there was a choice.
    choices: AtomicU32,
    /// What a file took at last, in nanoseconds: by syncs of files, and by one of the file system.
    took: [AtomicU64; 2],
}

impl SyncMany {
    /// Syncs all files and their names, where the sync of a file covers its name.
    pub(crate) fn sync_with_names(&self, files: &[(File, PathBuf)]) -> Result<()> {
        let is_many = files.len() >= WHOLE_MIN && self.is_slow.load(Ordering::Relaxed);
        let Some((file, path)) = files.first().filter(|_| is_many) else {
            return self.sync(files, sync_file_and_name);
        };
        let way = self.choose_way(sys::find_unwritten_bytes());
        let began = Instant::now();
        let synced = match way {
            BY_FILE_SYSTEM => sync_file_system(file, path),
            _ => self.sync(files, sync_file_and_name),
        };
        let each = began.elapsed().as_nanos() / files.len() as u128;
        self.took[way].store(u64::try_from(each).unwrap_or(u64::MAX), Ordering::Relaxed);
        synced
    }

    /// How many files are synced, while programs have left so much unwritten.
    fn choose_way(&self, unwritten: Option<u64>) -> usize {
        if unwritten.is_none_or(|bytes| bytes > UNWRITTEN_MAX) {
            return BY_FILES;
        }
        let took = |way: usize| self.took[way].load(Ordering::Relaxed);
        match self.choices.fetch_add(1, Ordering::Relaxed) % GROUPS_A_TRIAL {
            0 => BY_FILES,
            1 => BY_FILE_SYSTEM,
            _ if took(BY_FILE_SYSTEM) < took(BY_FILES) => BY_FILE_SYSTEM,
            _ => BY_FILES,
        }
    }

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

    #[test]
    fn a_file_system_is_synced_where_that_is_quicker_and_others_have_left_little() {
        let many = SyncMany::default();
        let [little, much] = [Some(UNWRITTEN_MAX), Some(UNWRITTEN_MAX + 1)];
        assert_eq!([None, much].map(|left| many.choose_way(left)), [BY_FILES; 2]);
        assert_eq!([little; 2].map(|left| many.choose_way(left)), [BY_FILES, BY_FILE_SYSTEM]);
        for (took, quicker) in [([2, 1], BY_FILE_SYSTEM), ([1, 2], BY_FILES)] {
            many.took.iter().zip(took).for_each(|(way, ns)| way.store(ns, Ordering::Relaxed));
            assert_eq!(many.choose_way(little), quicker);
            assert_eq!(many.choose_way(much), BY_FILES);
        }
    }
}
