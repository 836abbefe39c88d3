//! A doorbell for directories: `notify` as a hint that something landed.
//!
//! A ring means "look". It may ring twice, late, or for nothing; it may stay silent when events
//! were lost. Whoever listens lists the directory to learn what is there. Directories are watched
//! one by one, never recursively.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use notify::event::{AccessKind, AccessMode, ModifyKind, RemoveKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// How the log of an SQLite database ends.
const LOG_SUFFIX: &str = "-wal";

/// How a file has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It was renamed into place, so it is whole.
    Renamed,
    /// Its writer has closed it, but may open it again.
    Closed,
    /// It has got its name: linked into place and whole, or just begun.
    Created,
    /// A database's log (`…-wal`) has grown: whoever writes it keeps it open.
    Written,
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
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
}

impl Doorbell {
    /// A doorbell that calls `ring` on its own thread. Nothing is watched yet.
    ///
    /// # Errors
    /// The system has no instance left (`fs.inotify.max_user_instances`), for people.
    pub fn new(ring: impl Fn(Ring) + Send + 'static) -> Result<Self, String> {
        let handler = move |event: notify::Result<Event>| rings(event).into_iter().for_each(&ring);
        let watcher = notify::recommended_watcher(handler).map_err(|e| explain(&e))?;
        Ok(Self { watcher, watched: HashSet::new() })
    }

    /// Watches a directory, or one file, which must exist.
    ///
    /// # Errors
    /// The directory is gone or the system has no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, dir: &Path) -> Result<(), String> {
        if self.watched.contains(dir) {
            return Ok(());
        }
        self.watcher.watch(dir, RecursiveMode::NonRecursive).map_err(|e| explain(&e))?;
        self.watched.insert(dir.to_owned());
        Ok(())
    }

    /// Whether a directory is watched.
    #[must_use]
    pub fn is_watched(&self, dir: &Path) -> bool {
        self.watched.contains(dir)
    }

    /// Stops watching a directory.
    pub fn unwatch(&mut self, dir: &Path) {
        if self.watched.remove(dir) {
            // It may be gone already, and its watch with it.
            let _ = self.watcher.unwatch(dir);
        }
    }
}

/// What an event of `notify` means here. Reading a directory makes events too (opened, closed
/// without writing); they must not ring, or a listener would wake itself for ever.
fn rings(event: notify::Result<Event>) -> Vec<Ring> {
    let event = match event {
        Ok(event) => event,
        Err(error) => return vec![Ring::Failed { why: explain(&error) }],
    };
    if event.need_rescan() {
        return vec![Ring::Overflow];
    }
    let landed = |path: Option<&PathBuf>, how: Landing| {
        let path = path?;
        let (dir, name) = (path.parent()?.to_owned(), path.file_name()?.to_str()?.to_owned());
        Some(Ring::Landed { dir, name, how })
    };
    let ring = match event.kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
            landed(event.paths.first(), Landing::Renamed)
        }
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
            landed(event.paths.get(1), Landing::Renamed)
        }
        EventKind::Create(_) => landed(event.paths.first(), Landing::Created),
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            landed(event.paths.first(), Landing::Closed)
        }
        // What else is written to in place rings when it is closed.
        EventKind::Modify(ModifyKind::Data(_)) => landed(event.paths.first(), Landing::Written)
            .filter(|ring| matches!(ring, Ring::Landed { name, .. } if name.ends_with(LOG_SUFFIX))),
        EventKind::Modify(ModifyKind::Name(RenameMode::From))
        | EventKind::Remove(RemoveKind::File) => {
            let dir = event.paths.first().and_then(|path| path.parent());
            dir.map(|dir| Ring::Left { dir: dir.to_owned() })
        }
        EventKind::Remove(_) => {
            event.paths.first().map(|path| Ring::Replaced { path: path.clone() })
        }
        _ => None,
    };
    ring.into_iter().collect()
}

fn explain(error: &notify::Error) -> String {
    match &error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "no inotify watch left: raise fs.inotify.max_user_watches with sysctl".to_owned()
        }
        notify::ErrorKind::Io(io) if io.raw_os_error() == Some(24) => {
            "no inotify instance left: raise fs.inotify.max_user_instances with sysctl".to_owned()
        }
        _ => error.to_string(),
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

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The next ring that is about `name`.
    fn next(rings: &Receiver<Ring>, wanted: &str) -> Ring {
        loop {
            let ring = rings.recv_timeout(PATIENCE).unwrap();
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
        let ring = rings.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ring, landed("written", Landing::Created), "reading has not rung");
        assert_eq!(next(&rings, "written"), landed("written", Landing::Closed));
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        assert_eq!(next(&rings, "renamed"), landed("renamed", Landing::Renamed));
    }

    #[test]
    fn a_database_rings_though_nobody_closes_it() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("steps.db-wal");
        let mut open = std::fs::File::create(&log).unwrap();
        for watched in [home.path(), &log] {
            let (sender, rings) = unbounded();
            let mut doorbell = Doorbell::new(move |ring| sender.send(ring).unwrap()).unwrap();
            doorbell.watch(watched).unwrap();
            std::fs::File::create(home.path().join("other")).unwrap().write_all(b"x").unwrap();
            open.write_all(b"frame").unwrap();
            let (dir, name) = (home.path().to_owned(), "steps.db-wal".to_owned());
            let expected = Ring::Landed { dir, name, how: Landing::Written };
            assert_eq!(next(&rings, "steps.db-wal"), expected);
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut doorbell = Doorbell::new(|_| {}).unwrap();
        assert!(doorbell.watch(Path::new("/nowhere")).is_err());
    }
}
