//! File notification for directories, as a hint that a file landed: inotify on Linux, the crate `notify` elsewhere.
//!
//! An event means "look". It may come twice, late, or without cause, and it may be missing when the
//! kernel lost events. The listener lists the directory to learn its content. Directories are
//! watched one by one, never recursively.
//!
//! The waiting thread reads the descriptor itself. A thread in between would add a second wake-up
//! to every message (docs/evidence/measurements.md). Reading a directory wakes no listener.

#[cfg(all(target_os = "linux", feature = "notify"))]
mod chosen;
mod error;
mod event;
#[cfg(target_os = "linux")]
mod inotify;
#[cfg(any(not(target_os = "linux"), feature = "notify"))]
mod portable;
mod waiter;

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

#[cfg(all(target_os = "linux", feature = "notify"))]
pub use chosen::{FsWatcher, choose_notify};
pub use error::WatchError;
pub use event::{FsEvent, Landing};
#[cfg(all(target_os = "linux", not(feature = "notify")))]
pub use inotify::InotifyWatcher as FsWatcher;
#[cfg(all(target_os = "linux", feature = "notify"))]
pub use inotify::InotifyWatcher;
#[cfg(not(target_os = "linux"))]
pub use portable::PortableWatcher as FsWatcher;
#[cfg(all(target_os = "linux", feature = "notify"))]
pub use portable::PortableWatcher;
pub use waiter::{POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS, Waiter};

/// Maximum number of consecutive reads without a relevant event, so that a process that writes
/// endlessly does not hold the caller.
const READS_MAX: usize = 16;

impl FsWatcher {
    /// Waits for an event, for at most `patience`; returns some of the pending events.
    pub fn wait(&mut self, patience: Duration) -> Vec<FsEvent> {
        let began = Instant::now();
        loop {
            let events = self.take_events();
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

/// A read that leaves events behind returns at least as many: those that fit, each with the longest name.
const FULL_READ_EVENTS: usize = 59;

/// Whether events may be left behind these, which were just taken. A wrong `false` leaves the descriptor readable.
pub const fn may_have_more(taken: &[FsEvent]) -> bool {
    taken.len() >= FULL_READ_EVENTS
}

/// Sleeps until one of the descriptors is readable, or `longest` has passed; without a limit for `None`.
/// A signal ends the sleep early. Says of each descriptor whether it is readable.
pub fn sleep_until_any(
    sources: &[BorrowedFd<'_>],
    longest: Option<Duration>,
) -> Result<Vec<bool>, WatchError> {
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
    // A time beyond the clock's range means forever.
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    match poll(&mut polled, longest.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {
            Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect())
        }
        Err(error) => Err(WatchError::system("wait for file events", error)),
    }
}

/// What a test needs, unless the system has none left.
#[cfg(test)]
pub(crate) fn or_skip<T>(made: Result<T, WatchError>) -> Option<T> {
    made.inspect_err(|error| println!("skipped: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

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
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        let mut pending = VecDeque::new();
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
            let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
            let mut pending = VecDeque::new();
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
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        let mut pending = VecDeque::new();
        watcher.watch(home.path()).unwrap();
        let odd = home.path().join(OsStr::from_bytes(b"r\xff.yaml"));
        std::fs::write(&odd, "").unwrap();
        std::fs::remove_file(&odd).unwrap();
        // Created and closed, then removed.
        let strange = FsEvent::Strange { dir: home.path().to_owned() };
        assert_eq!(first(&mut watcher, &mut pending), strange);
        assert_eq!(first(&mut watcher, &mut pending), strange);
        let left = FsEvent::Left { dir: home.path().to_owned() };
        assert_eq!(first(&mut watcher, &mut pending), left);
    }

    #[test]
    fn a_written_file_raises_an_event_only_when_it_is_closed() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let mut open = std::fs::File::create(home.path().join("report.yaml")).unwrap();
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        let mut pending = VecDeque::new();
        watcher.watch(home.path()).unwrap();
        for _ in 0..100 {
            open.write_all(b"line\n").unwrap();
        }
        assert!(watcher.take_events().is_empty());
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
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        watcher.watch_logs(home.path()).unwrap();
        let mut files =
            ["a", "b"].map(|name| std::fs::File::create(home.path().join(name)).unwrap());
        watcher.take_events();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Alternates two files: the kernel merges equal consecutive events.
                while !is_over.load(Ordering::Relaxed) {
                    files.iter_mut().for_each(|file| file.write_all(b"x").unwrap());
                }
            });
            let told = [watcher.wait(Duration::from_millis(200)), watcher.take_events()].concat();
            // Before any assertion: the writer would continue forever.
            is_over.store(true, Ordering::Relaxed);
            // On a busy machine the kernel's queue may be full before it is read.
            let is_overflow = |event: &FsEvent| matches!(event, FsEvent::Overflow);
            assert!(told.iter().all(is_overflow), "{told:?}");
        });
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
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
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        let mut pending = VecDeque::new();
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
                watcher.take_events();
            }
        }
    }

    #[test]
    fn two_names_of_a_directory_raise_events_while_one_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
        let mut pending = VecDeque::new();
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
        assert!(watcher.take_events().iter().all(|event| !format!("{event:?}").contains('y')));
    }

    #[test]
    fn more_events_than_one_read_holds_come_in_order() {
        let home = tempfile::tempdir().unwrap();
        let Some(mut watcher) = or_skip(FsWatcher::new()) else { return };
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
        // All events were consumed, so this call sleeps to the end.
        let (began, patience) = (Instant::now(), Duration::from_millis(50));
        waiter.wait(patience);
        assert!(began.elapsed() >= patience);
    }
}
