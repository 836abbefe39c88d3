//! A lock among the hosts of a team: a shared file that names its holder. It spares its holder lost races, and no more.
//!
//! Correctness never depends on it: each change is a compare-and-set. A holder that dies leaves the lock. The next process
//! takes it over once it has itself seen the same revision for [`TAKE_OVER`]. A holder that needs longer renews it every
//! [`RENEW_EVERY`].

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use ensemble_core::document::{SharedFile, SharedFiles};
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::message::MessageId;
use ensemble_core::{Error, Result};

/// How long an observer sees the lock of a dead holder unchanged before it takes the lock over.
pub const TAKE_OVER: Duration = Duration::from_secs(5);
/// Interval at which a holder that needs long writes the lock again.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long a process waits in addition, so that it lives to take a lock over.
const MARGIN: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
const TRIES_MAX: usize = 8;

pub(super) const fn is_missing(file: &SharedFile) -> bool {
    file.content.is_empty()
}

/// Replaces a shared file, no matter what it contains. Of several writers, the last one counts.
pub fn put_shared(files: &dyn SharedFiles, path: &str, content: &[u8]) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let found = files.read_file(path)?;
        if is_missing(&found) && content.is_empty() {
            return Ok(());
        }
        if files.write_file(path, content, "", found.revision)?.is_some() {
            return Ok(());
        }
    }
    let holder = "writers that were quicker".to_owned();
    Err(Error::Locked { path: files.place_of(path).into(), holder, waited: Duration::ZERO })
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct LockHolder {
    /// Random name of this acquisition; absent if no process holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    note: String,
}

impl LockHolder {
    fn parse(content: &[u8]) -> Self {
        serde_json::from_slice(content).unwrap_or_default()
    }

    fn render(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A lock among the hosts of a team, held until this is dropped.
#[derive(Debug)]
pub(super) struct SharedLock<'a> {
    files: &'a dyn SharedFiles,
    path: &'a str,
    revision: u64,
    /// The content of the lock's file. Its note is what the next holder learns.
    mine: LockHolder,
}

impl<'a> SharedLock<'a> {
    /// Waits for the lock: for `patience`, and at least long enough to take it over from a dead holder. `by` names
    /// this process to people.
    pub(super) fn acquire_lock(
        files: &'a dyn SharedFiles,
        path: &'a str,
        by: &str,
        patience: Duration,
        clock: &dyn Clock,
    ) -> Result<Self> {
        let begin = clock.monotonic();
        let patience = patience.max(TAKE_OVER + MARGIN);
        let mut seen: Option<(u64, Monotonic)> = None;
        loop {
            let found = files.read_file(path)?;
            let now = clock.monotonic();
            let since = match seen {
                Some((revision, since)) if revision == found.revision => since,
                _ => seen.insert((found.revision, now)).1,
            };
            let standing = LockHolder::parse(&found.content);
            if standing.holder.is_none() || now.since(since) >= TAKE_OVER {
                let holder = Some(MessageId::generate().to_string());
                let mine = LockHolder { holder, by: by.to_owned(), note: standing.note };
                if let Some(revision) =
                    files.write_file(path, &mine.render(), "", found.revision)?
                {
                    return Ok(Self { files, path, revision, mine });
                }
            } else if now.since(begin) >= patience {
                let (path, waited) = (files.place_of(path).into(), now.since(begin));
                return Err(Error::Locked { path, holder: standing.by, waited });
            }
            files.rest(LOOK_INTERVAL);
        }
    }

    pub(super) fn holder_note(&self) -> &str {
        &self.mine.note
    }

    /// Notes something for the next holder, which learns it once this lock is released.
    pub(super) fn set_note(&mut self, note: String) {
        self.mine.note = note;
    }

    /// Holds the lock while `work` runs, for as long as that takes, and releases it.
    pub(super) fn hold_while<T>(mut self, work: impl FnOnce() -> T) -> T {
        let (end, ended) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                    self.renew();
                }
            });
            // A panic of `work` drops it, too.
            let _end = end;
            work()
        })
    }

    /// Writes the lock again. A lock that was taken over stays with its new holder.
    fn renew(&mut self) {
        // Time that the holder spends on its work is not the medium's delay.
        self.files.rest(Duration::ZERO);
        let written = self.files.write_file(self.path, &self.mine.render(), "", self.revision);
        if let Ok(Some(revision)) = written {
            self.revision = revision;
        }
    }
}

impl Drop for SharedLock<'_> {
    fn drop(&mut self) {
        let free =
            LockHolder { note: std::mem::take(&mut self.mine.note), ..LockHolder::default() };
        // A lock that stays is taken over; one that was taken over is no longer this one.
        let _ = self.files.write_file(self.path, &free.render(), "", self.revision);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use ensemble_core::message::Timestamp;

    use super::*;

    /// Files in memory, whose time passes at each rest. Another host may take the lock over and over in the meantime.
    #[derive(Debug, Default)]
    struct Memory {
        files: Mutex<BTreeMap<String, SharedFile>>,
        passed: Mutex<Duration>,
        is_busy: bool,
    }

    impl Clock for Memory {
        fn monotonic(&self) -> Monotonic {
            Monotonic::from_duration(*self.passed.lock().unwrap())
        }
        fn wall(&self) -> Timestamp {
            Timestamp::from_unix_millis(0)
        }
    }

    impl SharedFiles for Memory {
        fn place_of(&self, path: &str) -> String {
            path.to_owned()
        }
        fn read_file(&self, path: &str) -> Result<SharedFile> {
            Ok(self.files.lock().unwrap().get(path).cloned().unwrap_or_default())
        }
        fn list_files(&self, _directory: &str) -> Result<Vec<(String, SharedFile)>> {
            Ok(Vec::new())
        }
        fn write_file(
            &self,
            path: &str,
            content: &[u8],
            note: &str,
            expected: u64,
        ) -> Result<Option<u64>> {
            let mut files = self.files.lock().unwrap();
            let file = files.entry(path.to_owned()).or_default();
            if file.revision != expected {
                return Ok(None);
            }
            (file.content, file.note) = (content.to_vec(), note.to_owned());
            file.revision += 1;
            Ok(Some(file.revision))
        }
        fn may_have_changed(&self) -> bool {
            true
        }
        fn rest(&self, duration: Duration) {
            *self.passed.lock().unwrap() += duration;
            if self.is_busy {
                put_shared(self, PATH, BUSY).unwrap();
            }
        }
    }

    const PATH: &str = "board/lock";
    const BUSY: &[u8] = br#"{"holder":"b","by":"host far, process 7","note":""}"#;

    fn take<'a>(files: &'a Memory, by: &str) -> Result<SharedLock<'a>> {
        SharedLock::acquire_lock(files, PATH, by, Duration::ZERO, files)
    }

    fn holder(files: &Memory) -> LockHolder {
        LockHolder::parse(&files.read_file(PATH).unwrap().content)
    }

    #[test]
    fn a_released_lock_tells_the_next_holder_what_was_noted() {
        let files = Memory::default();
        let mut first = take(&files, "one").unwrap();
        assert_eq!(first.holder_note(), "");
        first.set_note("7".to_owned());
        drop(first);
        assert_eq!(take(&files, "two").unwrap().holder_note(), "7");
    }

    #[test]
    fn a_lock_that_changes_hands_is_waited_for_and_its_holder_is_named() {
        let files = Memory { is_busy: true, ..Memory::default() };
        put_shared(&files, PATH, BUSY).unwrap();
        let error = take(&files, "me").map(drop).unwrap_err();
        assert_eq!(files.monotonic(), Monotonic::ZERO + TAKE_OVER + MARGIN);
        assert!(error.is_transient() && error.to_string().contains("host far"), "{error}");
    }

    #[test]
    fn a_lock_is_renewed_while_its_holder_works_and_free_afterwards() {
        let files = Memory::default();
        let revision = || files.read_file(PATH).unwrap().revision;
        take(&files, "one").unwrap().hold_while(|| {
            let begin = revision();
            while revision() == begin {
                thread::yield_now();
            }
            assert_eq!(holder(&files).by, "one");
        });
        assert_eq!(holder(&files).holder, None);
    }

    #[test]
    fn a_lock_whose_holder_is_dead_is_taken_over() {
        let files = Memory::default();
        let dead = take(&files, "one").unwrap();
        let before = files.monotonic();
        let next = take(&files, "two").unwrap();
        assert!(files.monotonic().since(before) >= TAKE_OVER);
        // The dead one wakes up, and releases a lock that it has lost.
        drop(dead);
        assert_eq!(holder(&files).by, "two");
        drop(next);
    }
}
