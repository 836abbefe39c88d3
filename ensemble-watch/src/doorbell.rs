//! A doorbell for directories: inotify as a hint that something landed.
//!
//! A ring means "look". It may ring twice, late, or for nothing; it may stay silent when events
//! were lost. Whoever listens lists the directory to learn what is there. Directories are watched
//! one by one, never recursively.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// How much is read at once, in bytes: some thousand events.
const EVENTS_BUFFER_BYTES: usize = 64 * 1024;

/// How a file has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It was renamed into place, so it is whole.
    Renamed,
    /// Its writer has closed it, but may open it again.
    Closed,
    /// It has got its name: linked into place and whole, or just begun.
    Created,
}

/// What a ring says. None of it is the truth; all of it is a reason to look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ring {
    /// A file has landed.
    Landed {
        /// The watched directory.
        dir: PathBuf,
        /// The file's name.
        name: String,
        /// How.
        how: Landing,
    },
    /// A file was renamed away or removed.
    Left {
        /// The watched directory.
        dir: PathBuf,
    },
    /// Events were lost: look at everything.
    Overflow,
    /// A watched directory was removed or renamed.
    Replaced {
        /// The directory, or what was in it.
        path: PathBuf,
    },
    /// Nothing will ring any more.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// Rings a function, on a thread of its own, when something lands in a watched directory.
#[derive(Debug)]
pub struct Doorbell {
    shared: Arc<Shared>,
    watched: HashMap<PathBuf, i32>,
}

/// What the thread that rings knows as well.
#[derive(Debug)]
struct Shared {
    inotify: OwnedFd,
    /// Which directory each watch is of.
    dirs: Mutex<HashMap<i32, PathBuf>>,
    is_over: AtomicBool,
}

impl Shared {
    fn dirs(&self) -> MutexGuard<'_, HashMap<i32, PathBuf>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doorbell {
    /// A doorbell that calls `ring` on its own thread. Nothing is watched yet.
    ///
    /// # Errors
    /// The system has no instance left (`fs.inotify.max_user_instances`), for people.
    pub fn new(mut ring: impl FnMut(Ring) + Send + 'static) -> Result<Self, String> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(explain)?;
        let shared =
            Arc::new(Shared { inotify, dirs: Mutex::default(), is_over: AtomicBool::new(false) });
        let listener = Arc::clone(&shared);
        let started = thread::Builder::new()
            .name("doorbell".to_owned())
            .spawn(move || listen(&listener, &mut ring));
        match started {
            Ok(_) => Ok(Self { shared, watched: HashMap::new() }),
            Err(error) => Err(format!("cannot start the thread that listens: {error}")),
        }
    }

    /// Watches a directory, which must exist.
    ///
    /// # Errors
    /// The directory is gone or the system has no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, dir: &Path) -> Result<(), String> {
        if self.watched.contains_key(dir) {
            return Ok(());
        }
        // Held until the watch has its name: its first event may come at once.
        let mut dirs = self.shared.dirs();
        let watch = inotify::add_watch(&self.shared.inotify, dir, heard()).map_err(explain)?;
        dirs.insert(watch, dir.to_owned());
        drop(dirs);
        self.watched.insert(dir.to_owned(), watch);
        Ok(())
    }

    /// Whether a directory is watched.
    #[must_use]
    pub fn is_watched(&self, dir: &Path) -> bool {
        self.watched.contains_key(dir)
    }

    /// Stops watching a directory.
    pub fn unwatch(&mut self, dir: &Path) {
        let Some(watch) = self.watched.remove(dir) else { return };
        // The system gives the number of a watch that has ended by itself to no other, so this
        // ends no other one.
        if self.shared.dirs().remove(&watch).is_some() {
            let _ = inotify::remove_watch(&self.shared.inotify, watch);
        }
    }
}

impl Drop for Doorbell {
    /// The thread sleeps in `read` and must be woken to end: a watch that is removed tells it so.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let inotify = &self.shared.inotify;
        if let Ok(last) = inotify::add_watch(inotify, "/", WatchFlags::DELETE_SELF) {
            let _ = inotify::remove_watch(inotify, last);
        }
    }
}

/// What is listened to. Not reading: a listener would wake itself for ever.
fn heard() -> WatchFlags {
    WatchFlags::MOVED_TO
        | WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
}

/// Rings until the doorbell is dropped. Nothing but a blocking `read`: every other way of waiting
/// (epoll, a channel to another thread) comes on top of it.
fn listen(shared: &Shared, ring: &mut (impl FnMut(Ring) + Send)) {
    let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BUFFER_BYTES];
    let mut events = inotify::Reader::new(&shared.inotify, &mut buffer);
    loop {
        let event = match events.next() {
            Ok(event) => event,
            Err(Errno::INTR) => continue,
            Err(error) => return ring(Ring::Failed { why: explain(error) }),
        };
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let name = event.file_name().map(|name| name.to_string_lossy());
        if let Some(rung) = rings(shared, event.wd(), event.events(), name.as_deref()) {
            ring(rung);
        }
    }
}

/// What an event means here.
fn rings(shared: &Shared, watch: i32, events: ReadFlags, name: Option<&str>) -> Option<Ring> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Ring::Overflow);
    }
    let mut dirs = shared.dirs();
    if events.contains(ReadFlags::IGNORED) {
        // By `unwatch`, which has removed it already, or because the directory is gone.
        return dirs.remove(&watch).map(|path| Ring::Replaced { path });
    }
    let dir = dirs.get(&watch)?.clone();
    drop(dirs);
    if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
        return Some(Ring::Replaced { path: dir });
    }
    let name = name?;
    let landed = |how| Some(Ring::Landed { dir: dir.clone(), name: name.to_owned(), how });
    if events.contains(ReadFlags::MOVED_TO) {
        landed(Landing::Renamed)
    } else if events.contains(ReadFlags::CREATE) {
        landed(Landing::Created)
    } else if events.contains(ReadFlags::CLOSE_WRITE) {
        landed(Landing::Closed)
    } else if events.contains(ReadFlags::DELETE | ReadFlags::ISDIR) {
        Some(Ring::Replaced { path: dir.join(name) })
    } else if events.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
        Some(Ring::Left { dir })
    } else {
        None
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
        other => std::io::Error::from(other).to_string(),
    }
}

/// Waits for something to land in some directories: for consumers that want to sleep until there
/// is mail. Falls back to short waits where nothing can ring.
#[derive(Debug)]
pub struct Waiter {
    rings: Receiver<Ring>,
    doorbell: Option<Doorbell>,
}

/// How long a [`Waiter`] sleeps at most when nothing can ring.
pub const POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// How long a [`Waiter`] trusts its doorbell before it lets its owner look anyway.
pub const POLL_WITH_EVENTS: Duration = Duration::from_secs(5);

impl Waiter {
    /// Begins to listen: what lands from now on is not missed. Look once after this call, then
    /// wait, then look again.
    #[must_use]
    pub fn new(dirs: &[PathBuf]) -> Self {
        let (sender, rings) = unbounded();
        let doorbell = Doorbell::new(move |ring| {
            let _ = sender.send(ring);
        })
        .and_then(|mut doorbell| {
            dirs.iter().try_for_each(|dir| doorbell.watch(dir)).map(|()| doorbell)
        })
        .ok();
        Self { rings, doorbell }
    }

    /// Sleeps until something rings, `patience` is over, or it is time to look anyway. Says
    /// nothing about which: look.
    pub fn wait(&self, patience: Duration) {
        let longest = if self.doorbell.is_some() { POLL_WITH_EVENTS } else { POLL_WITHOUT_EVENTS };
        let deadline = Instant::now() + patience.min(longest);
        match self.rings.recv_deadline(deadline) {
            // One look answers all that has rung so far.
            Ok(_) => self.rings.try_iter().for_each(drop),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next ring that is about `name`.
    fn next(rings: &Receiver<Ring>, wanted: &str) -> Ring {
        loop {
            let ring = rings.recv_timeout(Duration::from_secs(10)).unwrap();
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
        let (sender, rings) = unbounded();
        let mut doorbell = Doorbell::new(move |ring| sender.send(ring).unwrap()).unwrap();
        doorbell.watch(&inside).unwrap();
        let landed =
            |name: &str, how| Ring::Landed { dir: inside.clone(), name: name.to_owned(), how };

        std::fs::write(outside.join("x"), "x").unwrap();
        std::fs::rename(outside.join("x"), inside.join("moved")).unwrap();
        assert_eq!(next(&rings, "moved"), landed("moved", Landing::Renamed));
        std::fs::hard_link(inside.join("moved"), inside.join("linked")).unwrap();
        assert_eq!(next(&rings, "linked"), landed("linked", Landing::Created));
        std::fs::read(inside.join("moved")).unwrap();
        std::fs::read_dir(&inside).unwrap().count();
        std::fs::write(inside.join("written"), "x").unwrap();
        let ring = rings.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(ring, landed("written", Landing::Created), "reading has not rung");
        assert_eq!(next(&rings, "written"), landed("written", Landing::Closed));
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        assert_eq!(next(&rings, "renamed"), landed("renamed", Landing::Renamed));
    }

    #[test]
    fn its_thread_ends_with_it_whether_it_watched_or_not() {
        let home = tempfile::tempdir().unwrap();
        for watches in [false, true] {
            let (sender, rings) = unbounded::<Ring>();
            let mut doorbell = Doorbell::new(move |ring| drop(sender.send(ring))).unwrap();
            if watches {
                doorbell.watch(home.path()).unwrap();
            }
            drop(doorbell);
            let over = rings.recv_timeout(Duration::from_secs(10));
            assert_eq!(over, Err(RecvTimeoutError::Disconnected), "the thread has let go of it");
        }
    }

    #[test]
    fn a_directory_that_goes_away_rings_and_can_be_watched_again() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("in");
        let (sender, rings) = unbounded();
        let mut doorbell = Doorbell::new(move |ring| drop(sender.send(ring))).unwrap();
        for round in ["first", "second"] {
            std::fs::create_dir(&dir).unwrap();
            doorbell.watch(&dir).unwrap();
            std::fs::write(dir.join(round), "").unwrap();
            next(&rings, round);
            std::fs::remove_dir_all(&dir).unwrap();
            let replaced = Ring::Replaced { path: dir.clone() };
            while rings.recv_timeout(Duration::from_secs(10)).unwrap() != replaced {}
            doorbell.unwatch(&dir);
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut doorbell = Doorbell::new(|_| {}).unwrap();
        assert!(doorbell.watch(Path::new("/nowhere")).is_err());
    }
}
