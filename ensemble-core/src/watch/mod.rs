//! File notification for directories: inotify as a hint that a file landed.
//!
//! An event means "look". It may come twice, late, or without cause, and it may be missing when the
//! kernel lost events. The listener lists the directory to learn its content. Directories are
//! watched one by one, never recursively.
//!
//! The waiting thread reads the descriptor itself. A thread in between would add a second wake-up
//! to every message (docs/performance.md, *Detection*). Reading a directory wakes no listener.

mod error;
mod event;
mod waiter;

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

pub use error::WatchError;
pub use event::{FsEvent, Landing};
pub use waiter::{POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS, Waiter};

/// Bytes of events read at a time: some 250 events.
const READ_BYTES: usize = 16 * 1024;
/// Maximum number of consecutive reads without a relevant event, so that a process that writes
/// endlessly does not hold the caller.
const READS_MAX: usize = 16;
/// The watched events. Reading a directory must not be one, or a listener would wake itself for
/// ever.
const WATCHED: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::CREATE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Reports files that land in the watched directories.
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::watch::{FsEvent, FsWatcher, Landing};
/// # let home = tempfile::tempdir()?;
/// let mut watcher = FsWatcher::new()?;
/// watcher.watch(home.path())?;
/// assert!(watcher.take().is_empty());
/// std::fs::File::create(home.path().join("report.yaml"))?;
/// let events = watcher.wait(Duration::from_secs(10));
/// assert!(matches!(&events[0], FsEvent::Landed { name, how: Landing::Created, .. } if name == "report.yaml"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FsWatcher {
    /// `None` only during drop.
    inotify: Option<OwnedFd>,
    /// Watch descriptors by path.
    watched: HashMap<PathBuf, i32>,
    /// Paths by watch descriptor. Two paths may lead to the same directory.
    places: HashMap<i32, PathBuf>,
}

impl AsFd for FsWatcher {
    /// Can be polled together with other descriptors: readable when [`FsWatcher::take`] has an
    /// event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.inotify {
            Some(inotify) => inotify.as_fd(),
            None => unreachable!("inotify is open until drop"),
        }
    }
}

impl Drop for FsWatcher {
    /// Closing inotify can block for milliseconds, so a short-lived thread does it.
    fn drop(&mut self) {
        let inotify = self.inotify.take();
        // Without a thread, the descriptor is dropped here.
        let _ = std::thread::Builder::new().spawn(move || drop(inotify));
    }
}

impl FsWatcher {
    /// Creates a file watcher without watched directories.
    ///
    /// # Errors
    ///
    /// The system has no instance left (`fs.inotify.max_user_instances`).
    pub fn new() -> Result<Self, WatchError> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| WatchError::system("create a file watcher", error))?;
        let inotify = Some(inotify);
        Ok(Self { inotify, watched: HashMap::new(), places: HashMap::new() })
    }

    /// Watches a directory, or one file, which must exist.
    ///
    /// # Errors
    /// The directory is gone or the system has no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, path: &Path) -> Result<(), WatchError> {
        if self.watched.contains_key(path) { Ok(()) } else { self.add(path, WATCHED) }
    }

    /// As [`FsWatcher::watch`], and also reports growing databases. Each write to any file there
    /// wakes the listener. Use it only for directories that Ensemble alone writes to, and for the
    /// log itself.
    ///
    /// # Errors
    /// As for [`FsWatcher::watch`].
    pub fn watch_logs(&mut self, path: &Path) -> Result<(), WatchError> {
        self.add(path, WATCHED | WatchFlags::MODIFY)
    }

    fn add(&mut self, path: &Path, flags: WatchFlags) -> Result<(), WatchError> {
        let number = inotify::add_watch(self.as_fd(), path, flags)
            .map_err(|error| WatchError::of_path(path, error))?;
        self.watched.insert(path.to_owned(), number);
        self.places.insert(number, path.to_owned());
        Ok(())
    }

    /// Whether a directory is watched.
    #[must_use]
    pub fn is_watched(&self, path: &Path) -> bool {
        self.watched.contains_key(path)
    }

    /// Stops watching a directory.
    pub fn unwatch(&mut self, path: &Path) {
        let Some(number) = self.watched.remove(path) else { return };
        match self.watched.iter().find(|(_, other)| **other == number) {
            // The same directory under another name.
            Some((other, _)) => drop(self.places.insert(number, other.clone())),
            None => {
                self.places.remove(&number);
                // The directory may be gone already, and its watch with it.
                let _ = inotify::remove_watch(self.as_fd(), number);
            }
        }
    }

    /// Returns some of the pending events, without waiting.
    pub fn take(&mut self) -> Vec<FsEvent> {
        let mut events = Vec::new();
        let mut gone = HashSet::new();
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut reader = inotify::Reader::new(self.as_fd(), &mut buffer);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                if reads == READS_MAX || !events.is_empty() {
                    break;
                }
                reads += 1;
            }
            match reader.next() {
                Ok(raw) if raw.events().contains(ReadFlags::IGNORED) => {
                    gone.insert(raw.wd());
                }
                Ok(raw) => {
                    let place = self.places.get(&raw.wd()).map(PathBuf::as_path);
                    events.extend(event::translate(raw.events(), place, raw.file_name()));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    let error = WatchError::system("read file events", error);
                    events.push(FsEvent::Failed { error });
                    break;
                }
            }
        }
        if !gone.is_empty() {
            self.places.retain(|number, _| !gone.contains(number));
            self.watched.retain(|_, number| !gone.contains(number));
        }
        events
    }

    /// Waits for an event, for at most `patience`; returns some of the pending events.
    pub fn wait(&mut self, patience: Duration) -> Vec<FsEvent> {
        let began = Instant::now();
        loop {
            let events = self.take();
            let left = patience.saturating_sub(began.elapsed());
            if !events.is_empty() || left.is_zero() {
                return events;
            }
            if let Err(error) = sleep_until_any(&[self.as_fd()], Some(left)) {
                return vec![FsEvent::Failed { error }];
            }
        }
    }
}

/// Sleeps until one of the descriptors is readable, or `longest` is over; without a limit for `None`.
/// A signal ends the sleep early.
///
/// # Errors
/// The system cannot poll one of the descriptors.
pub fn sleep_until_any(
    sources: &[BorrowedFd<'_>],
    longest: Option<Duration>,
) -> Result<(), WatchError> {
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
    // A time beyond the clock's range means for ever.
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    match poll(&mut polled, longest.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(WatchError::system("wait for file events", error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The next event, one by one.
    fn first(watcher: &mut FsWatcher, pending: &mut VecDeque<FsEvent>) -> FsEvent {
        if pending.is_empty() {
            pending.extend(watcher.wait(PATIENCE));
        }
        pending.pop_front().unwrap()
    }

    /// The next event about `name`.
    fn next(watcher: &mut FsWatcher, pending: &mut VecDeque<FsEvent>, wanted: &str) -> FsEvent {
        loop {
            let event = first(watcher, pending);
            match &event {
                FsEvent::Landed { name, .. } if name == wanted => return event,
                _ => {}
            }
        }
    }

    #[test]
    fn every_way_to_land_raises_an_event_and_reading_raises_none() {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in"), home.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
        watcher.watch(&inside).unwrap();
        let landed =
            |name: &str, how| FsEvent::Landed { dir: inside.clone(), name: name.to_owned(), how };

        std::fs::write(outside.join("x"), "x").unwrap();
        std::fs::rename(outside.join("x"), inside.join("moved")).unwrap();
        assert_eq!(next(&mut watcher, &mut pending, "moved"), landed("moved", Landing::Renamed));
        std::fs::hard_link(inside.join("moved"), inside.join("linked")).unwrap();
        assert_eq!(next(&mut watcher, &mut pending, "linked"), landed("linked", Landing::Created));
        std::fs::read(inside.join("moved")).unwrap();
        std::fs::read_dir(&inside).unwrap().count();
        std::fs::write(inside.join("written"), "x").unwrap();
        let event = first(&mut watcher, &mut pending);
        assert_eq!(event, landed("written", Landing::Created), "reading raised no event");
        assert_eq!(next(&mut watcher, &mut pending, "written"), landed("written", Landing::Closed));
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        assert_eq!(
            next(&mut watcher, &mut pending, "renamed"),
            landed("renamed", Landing::Renamed)
        );
    }

    #[test]
    fn a_growing_database_raises_events_while_it_stays_open() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("steps.db-wal");
        let mut open = std::fs::File::create(&log).unwrap();
        for watched in [home.path(), &log] {
            let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
            watcher.watch(watched).unwrap();
            watcher.watch_logs(watched).unwrap();
            std::fs::File::create(home.path().join("other")).unwrap().write_all(b"x").unwrap();
            open.write_all(b"frame").unwrap();
            let (dir, name) = (home.path().to_owned(), "steps.db-wal".to_owned());
            let expected = FsEvent::Landed { dir, name, how: Landing::Written };
            assert_eq!(next(&mut watcher, &mut pending, "steps.db-wal"), expected);
        }
    }

    #[test]
    fn a_name_that_is_not_utf8_raises_an_event_for_no_other_name() {
        let home = tempfile::tempdir().unwrap();
        let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
        watcher.watch(home.path()).unwrap();
        let odd = home.path().join(OsStr::from_bytes(b"r\xff.yaml"));
        std::fs::write(&odd, "").unwrap();
        std::fs::remove_file(&odd).unwrap();
        let left = FsEvent::Left { dir: home.path().to_owned() };
        assert_eq!(first(&mut watcher, &mut pending), left);
    }

    #[test]
    fn a_written_file_raises_an_event_only_when_it_is_closed() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let mut open = std::fs::File::create(home.path().join("report.yaml")).unwrap();
        let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
        watcher.watch(home.path()).unwrap();
        for _ in 0..100 {
            open.write_all(b"line\n").unwrap();
        }
        assert!(watcher.take().is_empty());
        drop(open);
        let (dir, name) = (home.path().to_owned(), "report.yaml".to_owned());
        let closed = FsEvent::Landed { dir, name, how: Landing::Closed };
        assert_eq!(first(&mut watcher, &mut pending), closed);
    }

    #[test]
    fn an_endless_writer_does_not_hold_the_caller() {
        use std::io::Write as _;
        use std::sync::atomic::{AtomicBool, Ordering};
        let home = tempfile::tempdir().unwrap();
        let mut watcher = FsWatcher::new().unwrap();
        watcher.watch_logs(home.path()).unwrap();
        let mut files =
            ["a", "b"].map(|name| std::fs::File::create(home.path().join(name)).unwrap());
        watcher.take();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Alternates two files: the kernel merges equal consecutive events.
                while !is_over.load(Ordering::Relaxed) {
                    files.iter_mut().for_each(|file| file.write_all(b"x").unwrap());
                }
            });
            let told = [watcher.wait(Duration::from_millis(200)), watcher.take()].concat();
            // Before any assertion: the writer would go on for ever.
            is_over.store(true, Ordering::Relaxed);
            // On a busy machine the kernel's queue may be full before it is read.
            let is_overflow = |event: &FsEvent| matches!(event, FsEvent::Overflow);
            assert!(told.iter().all(is_overflow), "{told:?}");
        });
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut watcher = FsWatcher::new().unwrap();
        let path = Path::new("/nowhere");
        let missing = WatchError::of_path(path, Errno::NOENT);
        assert_eq!(watcher.watch(path), Err(missing.clone()));
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        let error = crate::Error::from(missing.clone());
        assert_eq!(error.area(), Some(&missing));
        let exhausted = WatchError::of_path(path, Errno::NOSPC);
        assert_eq!(exhausted, WatchError::WatchesExhausted { path: path.to_owned() });
        assert_eq!(WatchError::system("poll", Errno::MFILE), WatchError::InstancesExhausted);
    }

    #[test]
    fn a_removed_directory_is_no_longer_watched_and_can_be_watched_again() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
        for _ in 0..2 {
            std::fs::create_dir(&inside).unwrap();
            watcher.watch(&inside).unwrap();
            std::fs::write(inside.join("x"), "").unwrap();
            assert!(matches!(next(&mut watcher, &mut pending, "x"), FsEvent::Landed { .. }));
            std::fs::remove_file(inside.join("x")).unwrap();
            std::fs::remove_dir(&inside).unwrap();
            while first(&mut watcher, &mut pending) != (FsEvent::Replaced { path: inside.clone() })
            {
            }
            // The kernel's notice that the watch has ended comes with the event or after it.
            while watcher.is_watched(&inside) {
                watcher.take();
            }
        }
    }

    #[test]
    fn two_names_of_a_directory_raise_events_while_one_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let (mut watcher, mut pending) = (FsWatcher::new().unwrap(), VecDeque::new());
        let same = home.path().join("../").join(home.path().file_name().unwrap());
        watcher.watch(home.path()).unwrap();
        watcher.watch(&same).unwrap();
        watcher.unwatch(&same);
        std::fs::write(home.path().join("x"), "").unwrap();
        let dir = home.path().to_owned();
        let landed = FsEvent::Landed { dir, name: "x".to_owned(), how: Landing::Created };
        assert_eq!(next(&mut watcher, &mut pending, "x"), landed);
        watcher.unwatch(home.path());
        std::fs::write(home.path().join("y"), "").unwrap();
        assert!(watcher.take().iter().all(|event| !format!("{event:?}").contains('y')));
    }

    #[test]
    fn more_events_than_one_read_holds_come_in_order() {
        let home = tempfile::tempdir().unwrap();
        let mut watcher = FsWatcher::new().unwrap();
        watcher.watch(home.path()).unwrap();
        let all: Vec<String> = (0..2_000).map(|number| format!("{number:064}")).collect();
        for name in &all {
            std::fs::File::create(home.path().join(name)).unwrap();
        }
        let mut created = Vec::new();
        while created.len() < all.len() {
            for event in watcher.wait(PATIENCE) {
                if let FsEvent::Landed { name, how: Landing::Created, .. } = event {
                    created.push(name);
                }
            }
        }
        assert_eq!(created, all);
    }

    #[test]
    fn a_waiter_sleeps_until_a_file_lands() {
        let home = tempfile::tempdir().unwrap();
        let waiter = Waiter::new(&[home.path().to_owned()]);
        std::fs::write(home.path().join("x"), "").unwrap();
        let began = Instant::now();
        waiter.wait(PATIENCE);
        assert!(began.elapsed() < POLL_WITH_EVENTS);
        // All events were consumed, so this call sleeps to its end.
        let (began, patience) = (Instant::now(), Duration::from_millis(50));
        waiter.wait(patience);
        assert!(began.elapsed() >= patience);
    }
}
