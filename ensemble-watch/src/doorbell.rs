//! A doorbell for directories: inotify as a hint that something landed.
//!
//! A ring means "look". It may ring twice, late, or for nothing; it may stay silent when events
//! were lost. Whoever listens lists the directory to learn what is there. Directories are watched
//! one by one, never recursively.
//!
//! Whoever waits reads the descriptor itself: a thread in between would cost a second wake-up on the
//! way of every message (docs/performance.md, *Detection*). What is only read does not wake anybody.

mod ring;
mod waiter;

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

pub use ring::{Landing, Ring};
pub use waiter::{POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS, Waiter};

/// How much of what has rung is read at a time, in bytes: some 250 events.
const READ_BYTES: usize = 16 * 1024;
/// How often is read in a row while nothing of it rings: whoever writes without end keeps nobody here.
const READS_MAX: usize = 16;
/// What rings. Reading a directory must not, or a listener would wake itself for ever.
const RINGING: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::CREATE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Says what has landed in the directories that it watches.
///
/// ```
/// use std::time::Duration;
/// use ensemble_watch::doorbell::{Doorbell, Landing, Ring};
/// # let home = tempfile::tempdir()?;
/// let mut doorbell = Doorbell::new()?;
/// doorbell.watch(home.path())?;
/// assert!(doorbell.take().is_empty());
/// std::fs::File::create(home.path().join("report.yaml"))?;
/// let rings = doorbell.wait(Duration::from_secs(10));
/// assert!(matches!(&rings[0], Ring::Landed { name, how: Landing::Created, .. } if name == "report.yaml"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Doorbell {
    /// Missing only while it is dropped.
    inotify: Option<OwnedFd>,
    /// By path, the number of its watch.
    watched: HashMap<PathBuf, i32>,
    /// By the number of a watch, where it is. Two paths may lead to the same place.
    places: HashMap<i32, PathBuf>,
}

impl AsFd for Doorbell {
    /// To be polled, together with others: readable when [`Doorbell::take`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.inotify {
            Some(inotify) => inotify.as_fd(),
            None => unreachable!("it is there until it is dropped"),
        }
    }
}

impl Drop for Doorbell {
    /// The system waits, for milliseconds, until nobody looks at the watches any more. Nobody else has to.
    fn drop(&mut self) {
        let inotify = self.inotify.take();
        // Where no thread can be had, what it was to drop is dropped here.
        let _ = std::thread::Builder::new().spawn(move || drop(inotify));
    }
}

impl Doorbell {
    /// A doorbell that watches nothing yet.
    ///
    /// # Errors
    /// The system has no instance left (`fs.inotify.max_user_instances`), for people.
    pub fn new() -> Result<Self, String> {
        let inotify =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(explain)?;
        let inotify = Some(inotify);
        Ok(Self { inotify, watched: HashMap::new(), places: HashMap::new() })
    }

    /// Watches a directory, or one file, which must exist.
    ///
    /// # Errors
    /// The directory is gone or the system has no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, path: &Path) -> Result<(), String> {
        if self.watched.contains_key(path) { Ok(()) } else { self.add(path, RINGING) }
    }

    /// As [`Doorbell::watch`], and hears databases grow. Each write to any file there wakes whoever listens,
    /// so this is for directories that only we write to, and for the log itself.
    ///
    /// # Errors
    /// As for [`Doorbell::watch`].
    pub fn watch_logs(&mut self, path: &Path) -> Result<(), String> {
        self.add(path, RINGING | WatchFlags::MODIFY)
    }

    fn add(&mut self, path: &Path, flags: WatchFlags) -> Result<(), String> {
        let number = inotify::add_watch(self.as_fd(), path, flags)
            .map_err(|error| format!("{}: {}", path.display(), explain(error)))?;
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
            // The same place under another name.
            Some((other, _)) => drop(self.places.insert(number, other.clone())),
            None => {
                self.places.remove(&number);
                // It may be gone already, and its watch with it.
                let _ = inotify::remove_watch(self.as_fd(), number);
            }
        }
    }

    /// Some of what has rung since the last call, without waiting.
    pub fn take(&mut self) -> Vec<Ring> {
        let mut rings = Vec::new();
        let mut gone = HashSet::new();
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut reader = inotify::Reader::new(self.as_fd(), &mut buffer);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                if reads == READS_MAX || !rings.is_empty() {
                    break;
                }
                reads += 1;
            }
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                    gone.insert(event.wd());
                }
                Ok(event) => {
                    let place = self.places.get(&event.wd()).map(PathBuf::as_path);
                    rings.extend(ring::of(event.events(), place, event.file_name()));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    rings.push(Ring::Failed { why: explain(error) });
                    break;
                }
            }
        }
        if !gone.is_empty() {
            self.places.retain(|number, _| !gone.contains(number));
            self.watched.retain(|_, number| !gone.contains(number));
        }
        rings
    }

    /// Waits until something rings, for at most `patience`; returns some of what has rung.
    pub fn wait(&mut self, patience: Duration) -> Vec<Ring> {
        let began = Instant::now();
        loop {
            let rings = self.take();
            let left = patience.saturating_sub(began.elapsed());
            if !rings.is_empty() || left.is_zero() {
                return rings;
            }
            if let Err(error) = sleep_until_any(&[self.as_fd()], Some(left)) {
                return vec![Ring::Failed { why: explain(error) }];
            }
        }
    }
}

/// Sleeps until one of some descriptors can be read, or `longest` is over.
pub(crate) fn sleep_until_any(
    sources: &[BorrowedFd<'_>],
    longest: Option<Duration>,
) -> Result<(), Errno> {
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
    // What is longer than the clock can tell is for ever.
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    match poll(&mut polled, longest.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

fn explain(error: Errno) -> String {
    match error {
        Errno::NOSPC => {
            "no inotify watch left: raise fs.inotify.max_user_watches with sysctl".to_owned()
        }
        Errno::MFILE => {
            "no inotify instance left: raise fs.inotify.max_user_instances with sysctl".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The next ring, one by one.
    fn first(doorbell: &mut Doorbell, told: &mut VecDeque<Ring>) -> Ring {
        if told.is_empty() {
            told.extend(doorbell.wait(PATIENCE));
        }
        told.pop_front().unwrap()
    }

    /// The next ring that is about `name`.
    fn next(doorbell: &mut Doorbell, told: &mut VecDeque<Ring>, wanted: &str) -> Ring {
        loop {
            let ring = first(doorbell, told);
            match &ring {
                Ring::Landed { name, .. } if name == wanted => return ring,
                _ => {}
            }
        }
    }

    #[test]
    fn it_rings_for_every_way_to_land_and_not_for_reading() {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in"), home.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
        doorbell.watch(&inside).unwrap();
        let landed =
            |name: &str, how| Ring::Landed { dir: inside.clone(), name: name.to_owned(), how };

        std::fs::write(outside.join("x"), "x").unwrap();
        std::fs::rename(outside.join("x"), inside.join("moved")).unwrap();
        assert_eq!(next(&mut doorbell, &mut told, "moved"), landed("moved", Landing::Renamed));
        std::fs::hard_link(inside.join("moved"), inside.join("linked")).unwrap();
        assert_eq!(next(&mut doorbell, &mut told, "linked"), landed("linked", Landing::Created));
        std::fs::read(inside.join("moved")).unwrap();
        std::fs::read_dir(&inside).unwrap().count();
        std::fs::write(inside.join("written"), "x").unwrap();
        let ring = first(&mut doorbell, &mut told);
        assert_eq!(ring, landed("written", Landing::Created), "reading has not rung");
        assert_eq!(next(&mut doorbell, &mut told, "written"), landed("written", Landing::Closed));
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        assert_eq!(next(&mut doorbell, &mut told, "renamed"), landed("renamed", Landing::Renamed));
    }

    #[test]
    fn a_database_rings_though_nobody_closes_it() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("steps.db-wal");
        let mut open = std::fs::File::create(&log).unwrap();
        for watched in [home.path(), &log] {
            let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
            doorbell.watch(watched).unwrap();
            doorbell.watch_logs(watched).unwrap();
            std::fs::File::create(home.path().join("other")).unwrap().write_all(b"x").unwrap();
            open.write_all(b"frame").unwrap();
            let (dir, name) = (home.path().to_owned(), "steps.db-wal".to_owned());
            let expected = Ring::Landed { dir, name, how: Landing::Written };
            assert_eq!(next(&mut doorbell, &mut told, "steps.db-wal"), expected);
        }
    }

    #[test]
    fn a_name_that_is_no_text_rings_for_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
        doorbell.watch(home.path()).unwrap();
        let odd = home.path().join(OsStr::from_bytes(b"r\xff.yaml"));
        std::fs::write(&odd, "").unwrap();
        std::fs::remove_file(&odd).unwrap();
        let left = Ring::Left { dir: home.path().to_owned() };
        assert_eq!(first(&mut doorbell, &mut told), left);
    }

    #[test]
    fn a_file_that_is_written_to_rings_when_it_is_closed_and_not_before() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let mut open = std::fs::File::create(home.path().join("report.yaml")).unwrap();
        let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
        doorbell.watch(home.path()).unwrap();
        for _ in 0..100 {
            open.write_all(b"line\n").unwrap();
        }
        assert!(doorbell.take().is_empty());
        drop(open);
        let (dir, name) = (home.path().to_owned(), "report.yaml".to_owned());
        let closed = Ring::Landed { dir, name, how: Landing::Closed };
        assert_eq!(first(&mut doorbell, &mut told), closed);
    }

    #[test]
    fn whoever_writes_without_end_keeps_nobody_from_coming_back() {
        use std::io::Write as _;
        use std::sync::atomic::{AtomicBool, Ordering};
        let home = tempfile::tempdir().unwrap();
        let mut doorbell = Doorbell::new().unwrap();
        doorbell.watch_logs(home.path()).unwrap();
        let mut files =
            ["a", "b"].map(|name| std::fs::File::create(home.path().join(name)).unwrap());
        doorbell.take();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Two files in turns: the system puts like events that follow each other into one.
                while !is_over.load(Ordering::Relaxed) {
                    files.iter_mut().for_each(|file| file.write_all(b"x").unwrap());
                }
            });
            assert!(doorbell.wait(Duration::from_millis(200)).is_empty());
            assert!(doorbell.take().is_empty());
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut doorbell = Doorbell::new().unwrap();
        assert!(doorbell.watch(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn what_is_gone_is_not_watched_any_more_and_may_come_again() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
        for _ in 0..2 {
            std::fs::create_dir(&inside).unwrap();
            doorbell.watch(&inside).unwrap();
            std::fs::write(inside.join("x"), "").unwrap();
            assert!(matches!(next(&mut doorbell, &mut told, "x"), Ring::Landed { .. }));
            std::fs::remove_file(inside.join("x")).unwrap();
            std::fs::remove_dir(&inside).unwrap();
            while first(&mut doorbell, &mut told) != (Ring::Replaced { path: inside.clone() }) {}
            // The system's word that the watch has ended comes with it or after it.
            while doorbell.is_watched(&inside) {
                doorbell.take();
            }
        }
    }

    #[test]
    fn two_names_of_a_place_ring_as_long_as_one_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let (mut doorbell, mut told) = (Doorbell::new().unwrap(), VecDeque::new());
        let same = home.path().join("../").join(home.path().file_name().unwrap());
        doorbell.watch(home.path()).unwrap();
        doorbell.watch(&same).unwrap();
        doorbell.unwatch(&same);
        std::fs::write(home.path().join("x"), "").unwrap();
        let dir = home.path().to_owned();
        let landed = Ring::Landed { dir, name: "x".to_owned(), how: Landing::Created };
        assert_eq!(next(&mut doorbell, &mut told, "x"), landed);
        doorbell.unwatch(home.path());
        std::fs::write(home.path().join("y"), "").unwrap();
        assert!(doorbell.take().iter().all(|ring| !format!("{ring:?}").contains('y')));
    }

    #[test]
    fn more_than_one_reading_holds_comes_in_order() {
        let home = tempfile::tempdir().unwrap();
        let mut doorbell = Doorbell::new().unwrap();
        doorbell.watch(home.path()).unwrap();
        let all: Vec<String> = (0..2_000).map(|number| format!("{number:064}")).collect();
        for name in &all {
            std::fs::File::create(home.path().join(name)).unwrap();
        }
        let mut created = Vec::new();
        while created.len() < all.len() {
            for ring in doorbell.wait(PATIENCE) {
                if let Ring::Landed { name, how: Landing::Created, .. } = ring {
                    created.push(name);
                }
            }
        }
        assert_eq!(created, all);
    }

    #[test]
    fn a_waiter_sleeps_until_something_lands() {
        let home = tempfile::tempdir().unwrap();
        let waiter = Waiter::new(&[home.path().to_owned()]);
        std::fs::write(home.path().join("x"), "").unwrap();
        let began = Instant::now();
        waiter.wait(PATIENCE);
        assert!(began.elapsed() < POLL_WITH_EVENTS);
        // All of it was heard, so this sleeps to its end.
        let (began, patience) = (Instant::now(), Duration::from_millis(50));
        waiter.wait(patience);
        assert!(began.elapsed() >= patience);
    }
}
