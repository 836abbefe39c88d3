//! Locks: flock on files that exist only to be locked.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Dir, FileId, stat_file, stat_path};
use crate::{Error, Result, sys};

/// First wait between two tries for a lock; it doubles up to [`LOCK_RETRY_MAX`].
const LOCK_RETRY_MIN: Duration = Duration::from_micros(200);
/// Longest wait between two tries for a lock.
const LOCK_RETRY_MAX: Duration = Duration::from_millis(20);
/// Longest wait between two tries for a lock that is held for microseconds. With many waiting
/// processes this makes a thousand tries a second, so that none starves.
const SHORT_LOCK_RETRY_MAX: Duration = Duration::from_millis(1);
/// After how long a waiting process tries as often as one that waits for such a lock.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two tries for a lock that is held repeatedly for a part of a millisecond.
/// Each try takes the processor away from the holder.
const RESTING_LOCK_RETRY_MAX: Duration = Duration::from_millis(3);

type TryLock = fn(&File) -> Result<(), std::fs::TryLockError>;

/// An exclusive or shared lock (flock) on a file that exists only to be locked. The file is never
/// renamed and never removed, and child processes do not inherit the lock. The command `flock` of
/// util-linux takes the same lock on the same file.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Waits at most `patience` for the lock.
    pub fn acquire(path: &Path, patience: Duration) -> Result<Self> {
        Self::wait(path, patience, File::try_lock)
    }

    fn wait(path: &Path, patience: Duration, try_lock: TryLock) -> Result<Self> {
        let file = open_lock(path)?;
        wait_for(&file, path, patience, LOCK_RETRY_MAX, try_lock)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Takes the lock if it is free; `None` if another process holds it.
    pub fn try_acquire(path: &Path) -> Result<Option<Self>> {
        let file = open_lock(path)?;
        let is_taken = is_taken(file.try_lock(), path)?;
        Ok(is_taken.then(|| Self { file, path: path.to_owned() }))
    }

    /// Pid of the lock's current holder, from the kernel; `None` if there is no holder, or it is unknown. On Linux, every
    /// process of the machine that takes a lock waits in the meantime: do not ask often.
    pub fn holder(path: &Path) -> Option<u32> {
        sys::lock_holder(&open_to_look(path).ok()?)
    }

    /// As [`Self::holder`]. Others do not wait if the holder is the process that it probably is.
    pub fn holder_near(path: &Path, likely: Option<u32>) -> Option<u32> {
        let file = open_to_look(path).ok()?;
        likely.filter(|pid| sys::holds_lock(*pid, &file)).or_else(|| sys::lock_holder(&file))
    }

    /// Whether a process holds the lock for itself. If not, or without a lock file, `false`. This changes nothing: who
    /// watches the directory is not woken by it.
    pub fn is_held(path: &Path) -> Result<bool> {
        match open_to_look(path) {
            Ok(file) => Ok(!is_taken(file.try_lock_shared(), path)?),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(Error::io("open lock", path, error)),
        }
    }

    /// A holder in words, such as `ensemble (pid 7)`.
    pub fn words_of(holder: Option<u32>) -> String {
        match holder {
            None => "another process".to_owned(),
            Some(pid) => match sys::process_name(pid) {
                Some(command) => format!("{command} (pid {pid})"),
                None => format!("a child of the ended process {pid}"),
            },
        }
    }

    pub fn acquire_shared(path: &Path, patience: Duration) -> Result<Self> {
        Self::wait(path, patience, File::try_lock_shared)
    }

    /// Whether the path by which it was taken still leads to it. If not, another process can take a lock there.
    pub fn is_at_its_path(&self) -> bool {
        match (stat_file(&self.file, &self.path), stat_path(&self.path)) {
            (Ok(held), Ok(Some(found))) => held.id == found.id,
            _ => false,
        }
    }

    /// The lock as the standard input of a program, which reads nothing from it. If this process is
    /// killed in the meantime, the lock stays held until that program has ended, too.
    pub fn as_input(&self) -> Result<Stdio> {
        let file = self.file.try_clone().map_err(|e| Error::io("share lock", &self.path, e))?;
        Ok(Stdio::from(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing would unlock, too, but not if a descriptor leaked into a child.
        let _ = self.file.unlock();
    }
}

/// A lock file that stays open between uses, for a lock that is taken thousands of times a second and held for
/// microseconds. Otherwise as [`FileLock`]; threads that share one do not exclude each other.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

/// A [`LockFile`], locked until this is dropped.
#[derive(Debug)]
pub struct LockFileGuard<'a>(&'a File);

impl LockFile {
    pub fn open(dir: &Dir, name: &str) -> Result<Self> {
        let path = dir.path().join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| fs::openat(dir.as_fd(), name, flags, Mode::from_raw_mode(0o600)))
            .map_err(|e| Error::io("open lock", &path, e))
            .map(|fd| Self { file: File::from(fd), path: path.clone() })
    }

    pub(crate) fn id(&self) -> Result<FileId> {
        stat_file(&self.file, &self.path).map(|stat| stat.id)
    }

    /// Waits at most `patience` for the lock, and leaves the processor to the holder: each sleep is at most 3 ms.
    pub fn lock_resting(&self, patience: Duration) -> Result<LockFileGuard<'_>> {
        wait_for(&self.file, &self.path, patience, RESTING_LOCK_RETRY_MAX, File::try_lock)?;
        Ok(LockFileGuard(&self.file))
    }

    /// Waits at most `patience` for the lock. It first yields the processor, then sleeps, each for
    /// at most [`SHORT_LOCK_RETRY_MAX`] at once: a holder needs only microseconds.
    pub(crate) fn lock(&self, patience: Duration) -> Result<LockFileGuard<'_>> {
        let start = Instant::now();
        // On a busy machine yielding alone may take long.
        while start.elapsed() < patience.min(SHORT_LOCK_RETRY_MAX) {
            if is_taken(self.file.try_lock(), &self.path)? {
                return Ok(LockFileGuard(&self.file));
            }
            std::thread::yield_now();
        }
        wait_for(&self.file, &self.path, patience, SHORT_LOCK_RETRY_MAX, File::try_lock)?;
        Ok(LockFileGuard(&self.file))
    }
}

impl Drop for LockFileGuard<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Opens a lock file without creating it. A pipe in its place is not waited for.
fn open_to_look(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    retry_on_intr(|| fs::open(path, flags, Mode::empty())).map(File::from)
}

fn open_lock(path: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| fs::open(path, flags, Mode::from_raw_mode(0o600)))
        .map(File::from)
        .map_err(|e| Error::io("open lock", path, e))
}

fn wait_for(
    file: &File,
    path: &Path,
    patience: Duration,
    retry_max: Duration,
    try_lock: TryLock,
) -> Result<()> {
    let start = Instant::now();
    let mut pause = LOCK_RETRY_MIN;
    while !is_taken(try_lock(file), path)? {
        let waited = start.elapsed();
        if waited >= patience {
            let holder = FileLock::words_of(sys::lock_holder(file));
            return Err(Error::Locked { path: path.to_owned(), holder, waited });
        }
        // Processes that wait in step would collide at every try, and the last one would starve.
        std::thread::sleep(jittered(pause).min(patience - waited));
        // Those that have just come try more often, and would always be first.
        let retry_max = if waited < LONG_WAIT { retry_max } else { SHORT_LOCK_RETRY_MAX };
        pause = (pause * 2).min(retry_max);
    }
    Ok(())
}

/// Whether a try took the lock; if not, another process holds it.
fn is_taken(tried: Result<(), std::fs::TryLockError>, path: &Path) -> Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(Error::io("lock", path, error)),
    }
}

/// A random time between half of `pause` and all of it.
pub fn jittered(pause: Duration) -> Duration {
    const PARTS: u64 = 1 << 16;
    // The keys are random for each process and differ from call to call.
    let part = RandomState::new().build_hasher().finish() % PARTS;
    let half = pause / 2;
    half + Duration::from_nanos((half.as_nanos() as u64 / PARTS).saturating_mul(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{FsWatcher, or_skip};

    #[test]
    fn waiting_processes_do_not_wait_in_step() {
        let pause = Duration::from_millis(20);
        let waits: Vec<Duration> = (0..50).map(|_| jittered(pause)).collect();
        assert!(waits.iter().all(|wait| (pause / 2..=pause).contains(wait)), "{waits:?}");
        let distinct: std::collections::BTreeSet<&Duration> = waits.iter().collect();
        assert!(distinct.len() > 25, "{waits:?}");
    }

    #[test]
    fn a_look_at_a_lock_wakes_no_watcher() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("watch.lock");
        assert!(!FileLock::is_held(&path).unwrap());
        assert!(!path.exists());
        let _held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        watcher.watch_logs(home.path()).unwrap();
        assert!(FileLock::is_held(&path).unwrap());
        assert!(watcher.take_events().is_empty());
        drop(FileLock::acquire(&path, Duration::ZERO));
        assert!(!watcher.wait(Duration::from_secs(10)).is_empty(), "a try to lock does");
    }

    #[test]
    fn locked_error_names_the_holder() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("document.lock");
        let held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let refused = FileLock::acquire(&path, Duration::from_millis(5)).unwrap_err();
        assert!(
            refused.to_string().contains(&format!("(pid {})", std::process::id())),
            "{refused}"
        );
        let me = Some(std::process::id());
        for likely in [me, None, Some(1)] {
            assert_eq!(FileLock::holder_near(&path, likely), me, "{likely:?}");
        }
        assert_eq!(FileLock::holder(&path), me);
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert_eq!((FileLock::holder(&path), FileLock::holder_near(&path, me)), (None, None));
        assert!(
            !FileLock::is_held(&path).unwrap() && FileLock::try_acquire(&path).unwrap().is_some()
        );
        FileLock::acquire(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn holder_is_found_among_many_changing_locks() {
        let home = tempfile::tempdir().unwrap();
        let path = |n: usize| home.path().join(n.to_string());
        let held: Vec<FileLock> =
            (0..400).map(|n| FileLock::acquire(&path(n), Duration::ZERO).unwrap()).collect();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(
                        (400..480)
                            .map(|n| FileLock::acquire(&path(n), Duration::ZERO))
                            .collect::<Vec<_>>(),
                    );
                }
            });
            let missed = (0..400)
                .cycle()
                .take(1500)
                .filter(|n| FileLock::holder(&path(*n)) != Some(std::process::id()))
                .count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
        drop(held);
    }
}
