//! A doorbell for directories: the system's events as a hint that something landed.
//!
//! A ring means "look". It may ring twice, late, or for nothing; it may stay silent when events
//! were lost. Whoever listens lists the directory to learn what is there. Directories are watched
//! one by one, never recursively.

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};

#[cfg(target_os = "linux")]
use inotify::Source;
#[cfg(not(target_os = "linux"))]
use portable::Source;

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
        /// It was renamed or linked into place, so it is whole; else somebody may still write.
        whole: bool,
    },
    /// A file was renamed away: somebody has taken a message.
    Left {
        /// The watched directory.
        dir: PathBuf,
        /// The name it had.
        name: String,
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
    source: Source,
    watched: HashSet<PathBuf>,
}

impl Doorbell {
    /// A doorbell that calls `ring` on its own thread. Nothing is watched yet.
    ///
    /// # Errors
    /// The system has no instance left (`fs.inotify.max_user_instances`), for people.
    pub fn new(ring: impl Fn(Ring) + Send + 'static) -> Result<Self, String> {
        Ok(Self { source: Source::new(ring)?, watched: HashSet::new() })
    }

    /// Watches a directory, which must exist.
    ///
    /// # Errors
    /// The directory is gone or the system has no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, dir: &Path) -> Result<(), String> {
        if self.watched.contains(dir) {
            return Ok(());
        }
        self.source.watch(dir)?;
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
            self.source.unwatch(dir);
        }
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
        let (sender, rings) = unbounded();
        let mut doorbell = Doorbell::new(move |ring| sender.send(ring).unwrap()).unwrap();
        check(&rings, |dir| doorbell.watch(dir).unwrap());
    }

    #[test]
    fn the_portable_source_rings_alike() {
        let (sender, rings) = unbounded();
        let mut source = portable::Source::new(move |ring| sender.send(ring).unwrap()).unwrap();
        check(&rings, |dir| source.watch(dir).unwrap());
        source.unwatch(Path::new("/nowhere"));
    }

    fn check(rings: &Receiver<Ring>, watch: impl FnOnce(&Path)) {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in"), home.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        watch(&inside);
        let whole =
            |name: &str, whole| Ring::Landed { dir: inside.clone(), name: name.to_owned(), whole };

        std::fs::write(outside.join("x"), "x").unwrap();
        std::fs::rename(outside.join("x"), inside.join("moved")).unwrap();
        assert_eq!(next(rings, "moved"), whole("moved", true));
        std::fs::hard_link(inside.join("moved"), inside.join("linked")).unwrap();
        assert_eq!(next(rings, "linked"), whole("linked", false));
        std::fs::read(inside.join("moved")).unwrap();
        std::fs::read_dir(&inside).unwrap().count();
        std::fs::write(inside.join("written"), "x").unwrap();
        let ring = rings.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(ring, whole("written", false), "reading has not rung");
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        assert_eq!(next(rings, "renamed"), whole("renamed", true));
        std::fs::rename(inside.join("renamed"), outside.join("taken")).unwrap();
        let left = Ring::Left { dir: inside.clone(), name: "renamed".to_owned() };
        assert!(rings.iter().any(|ring| ring == left));
        std::fs::remove_dir_all(&inside).unwrap();
        let replaced = Ring::Replaced { path: inside.clone() };
        assert!(rings.iter().any(|ring| ring == replaced));
    }

    #[test]
    fn a_doorbell_that_is_dropped_lets_go_of_its_function() {
        let (sender, rings) = unbounded::<Ring>();
        let doorbell = Doorbell::new(move |ring| drop(sender.send(ring))).unwrap();
        drop(doorbell);
        assert_eq!(
            rings.recv_timeout(Duration::from_secs(10)),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut doorbell = Doorbell::new(|_| {}).unwrap();
        assert!(doorbell.watch(Path::new("/nowhere")).is_err());
    }
}
