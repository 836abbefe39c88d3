//! File notification by the crate `notify`, for systems without inotify. A thread of that crate translates the
//! system's events and wakes the listener by a socket. On Linux it exists with the feature `notify`, for its tests.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, ModifyKind, RemoveKind, RenameMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustix::io::Errno;

use super::event::LOG_SUFFIX;
use super::{FsEvent, Landing, WatchError};

/// Whether the system reports that a writer has closed a file. Elsewhere each write is the hint.
const REPORTS_CLOSE: bool = cfg!(target_os = "linux");

/// Reports files that land in the watched directories, with the methods of `FsWatcher`.
#[derive(Debug)]
pub struct PortableWatcher {
    watcher: RecommendedWatcher,
    events: Receiver<FsEvent>,
    ready: UnixStream,
    places: Arc<Mutex<WatchedPaths>>,
}

#[derive(Debug, Default)]
struct WatchedPaths {
    watched: HashSet<PathBuf>,
    /// Those in which databases grow.
    logs: HashSet<PathBuf>,
    /// Real paths, by which some systems report, and the paths by which they are watched.
    by_real: HashMap<PathBuf, PathBuf>,
}

impl AsFd for PortableWatcher {
    /// Can be polled together with other descriptors: readable when [`PortableWatcher::take_events`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl PortableWatcher {
    pub fn new() -> Result<Self, WatchError> {
        let system = |error: std::io::Error| {
            WatchError::system(
                "create a wake-up",
                Errno::from_io_error(&error).unwrap_or(Errno::IO),
            )
        };
        let (ready, signal) = UnixStream::pair().map_err(system)?;
        for end in [&ready, &signal] {
            end.set_nonblocking(true).map_err(system)?;
        }
        let (sender, events) = channel();
        let places = Arc::<Mutex<WatchedPaths>>::default();
        let translator = EventTranslator { sender, signal, places: Arc::clone(&places) };
        let watcher = notify::recommended_watcher(move |event| translator.pass_on(event))
            .map_err(|error| WatchError::system("create a file watcher", number(&error)))?;
        Ok(Self { watcher, events, ready, places })
    }

    /// Watches a directory, or one file, which must exist.
    pub fn watch(&mut self, path: &Path) -> Result<(), WatchError> {
        if self.is_watched(path) {
            return Ok(());
        }
        let real = path.canonicalize().map_err(|error| {
            let number = error.raw_os_error().unwrap_or_else(|| Errno::NOENT.raw_os_error());
            WatchError::of_path(path, Errno::from_raw_os_error(number))
        })?;
        // Before the first event can come.
        {
            let mut places = self.places();
            places.by_real.insert(real, path.to_owned());
            places.watched.insert(path.to_owned());
        }
        self.watcher.watch(path, RecursiveMode::NonRecursive).map_err(|error| {
            self.places().forget(path);
            WatchError::of_path(path, number(&error))
        })
    }

    /// As [`PortableWatcher::watch`], and also reports growing databases.
    pub fn watch_logs(&mut self, path: &Path) -> Result<(), WatchError> {
        self.places().logs.insert(path.to_owned());
        self.watch(path)
    }

    pub fn is_watched(&self, path: &Path) -> bool {
        self.places().watched.contains(path)
    }

    pub fn unwatch(&mut self, path: &Path) {
        if self.is_watched(path) {
            // The directory may be gone already, and its watch with it.
            let _ = self.watcher.unwatch(path);
            self.places().forget(path);
        }
    }

    /// Returns the pending events, without waiting.
    pub fn take_events(&mut self) -> Vec<FsEvent> {
        // Emptied before the channel: an event that comes in between makes the socket readable again.
        while rustix::io::read(&self.ready, &mut [0; 512]).is_ok_and(|bytes| bytes > 0) {}
        let events: Vec<FsEvent> = self.events.try_iter().collect();
        for event in &events {
            if let FsEvent::Replaced { path } = event {
                let _ = self.watcher.unwatch(path);
                self.places().forget(path);
            }
        }
        events
    }

    fn places(&self) -> std::sync::MutexGuard<'_, WatchedPaths> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(error: &notify::Error) -> Errno {
    match &error.kind {
        notify::ErrorKind::Io(error) => {
            error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
        }
        notify::ErrorKind::PathNotFound => Errno::NOENT,
        notify::ErrorKind::MaxFilesWatch => Errno::NOSPC,
        _ => Errno::INVAL,
    }
}

impl WatchedPaths {
    fn forget(&mut self, path: &Path) {
        self.watched.remove(path);
        self.logs.remove(path);
        self.by_real.retain(|_, watched| watched != path);
    }

    /// The path as its listener knows it.
    fn known(&self, path: &Path) -> PathBuf {
        if let Some(known) = self.by_real.get(path) {
            return known.clone();
        }
        match (path.parent().and_then(|parent| self.by_real.get(parent)), path.file_name()) {
            (Some(known), Some(name)) => known.join(name),
            _ => path.to_owned(),
        }
    }

    fn landed(&self, path: &Path, how: Landing) -> Option<FsEvent> {
        let dir = path.parent()?.to_owned();
        match path.file_name()?.to_str() {
            Some(name) => Some(FsEvent::Landed { dir, name: name.to_owned(), how }),
            None => Some(FsEvent::Strange { dir }),
        }
    }

    /// A write into a file that may stay open.
    fn written(&self, path: &Path) -> Option<FsEvent> {
        let is_log = path.as_os_str().as_encoded_bytes().ends_with(LOG_SUFFIX.as_bytes());
        let in_logs =
            [Some(path), path.parent()].into_iter().flatten().any(|p| self.logs.contains(p));
        match (is_log && in_logs, REPORTS_CLOSE) {
            (true, _) => self.landed(path, Landing::Written),
            (false, false) => self.landed(path, Landing::Closed),
            (false, true) => None,
        }
    }

    fn left(&self, path: &Path, is_directory: bool) -> Option<FsEvent> {
        if self.watched.contains(path) || is_directory {
            return Some(FsEvent::Replaced { path: path.to_owned() });
        }
        Some(FsEvent::Left { dir: path.parent()?.to_owned() })
    }

    fn translate(&self, kind: EventKind, path: &Path) -> Option<FsEvent> {
        let path = &self.known(path);
        match kind {
            EventKind::Create(_) => self.landed(path, Landing::Created),
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                self.landed(path, Landing::Closed)
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) => self.left(path, false),
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                self.landed(path, Landing::Renamed)
            }
            // The system does not say which end of the rename it is.
            EventKind::Modify(ModifyKind::Name(_)) if path.exists() => {
                self.landed(path, Landing::Renamed)
            }
            EventKind::Modify(ModifyKind::Name(_)) => self.left(path, false),
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => self.written(path),
            EventKind::Remove(kind) => self.left(path, kind == RemoveKind::Folder),
            _ => None,
        }
    }
}

/// Translates events on the thread of `notify`.
struct EventTranslator {
    sender: Sender<FsEvent>,
    signal: UnixStream,
    places: Arc<Mutex<WatchedPaths>>,
}

impl EventTranslator {
    fn pass_on(&self, event: notify::Result<notify::Event>) {
        let events = match event {
            Ok(event) if event.need_rescan() => vec![FsEvent::Overflow],
            // Reported as both ends, after each end by itself.
            Ok(event) if event.kind == EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
                Vec::new()
            }
            Ok(event) => {
                let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
                event.paths.iter().filter_map(|path| places.translate(event.kind, path)).collect()
            }
            // The listener looks at everything, which is right after any error.
            Err(_) => vec![FsEvent::Overflow],
        };
        for event in events {
            if self.sender.send(event).is_ok() {
                // It only fails while it is readable already.
                let _ = rustix::io::write(&self.signal, &[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::watch::{or_skip, sleep_until_any};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(watcher: &mut PortableWatcher, wanted: &FsEvent) -> Vec<FsEvent> {
        let mut seen = Vec::new();
        while !seen.contains(wanted) {
            sleep_until_any(&[watcher.as_fd()], Some(PATIENCE)).unwrap();
            let events = watcher.take_events();
            assert!(!events.is_empty(), "no {wanted:?} after {seen:?}");
            seen.extend(events);
        }
        seen
    }

    #[test]
    fn every_way_to_land_raises_an_event_and_reading_raises_none() {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in"), home.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let Some(mut watcher) = or_skip(PortableWatcher::new()) else { return };
        watcher.watch(&inside).unwrap();
        let landed =
            |name: &str, how| FsEvent::Landed { dir: inside.clone(), name: name.to_owned(), how };
        std::fs::write(outside.join("x"), "x").unwrap();
        std::fs::rename(outside.join("x"), inside.join("moved")).unwrap();
        until(&mut watcher, &landed("moved", Landing::Renamed));
        std::fs::read(inside.join("moved")).unwrap();
        std::fs::read_dir(&inside).unwrap().count();
        std::fs::write(inside.join("written"), "x").unwrap();
        let seen = until(&mut watcher, &landed("written", Landing::Closed));
        assert_eq!(seen[0], landed("written", Landing::Created), "reading raised an event");
        std::fs::rename(inside.join("moved"), inside.join("renamed")).unwrap();
        until(&mut watcher, &landed("renamed", Landing::Renamed));
        std::fs::remove_file(inside.join("renamed")).unwrap();
        until(&mut watcher, &FsEvent::Left { dir: inside.clone() });
    }

    #[test]
    fn a_growing_database_raises_events_while_it_stays_open() {
        use std::io::Write as _;
        let home = tempfile::tempdir().unwrap();
        let mut open = std::fs::File::create(home.path().join("steps.db-wal")).unwrap();
        let Some(mut watcher) = or_skip(PortableWatcher::new()) else { return };
        watcher.watch_logs(home.path()).unwrap();
        open.write_all(b"frame").unwrap();
        let (dir, name) = (home.path().to_owned(), "steps.db-wal".to_owned());
        until(&mut watcher, &FsEvent::Landed { dir, name, how: Landing::Written });
    }

    #[test]
    fn a_removed_directory_is_no_longer_watched_and_can_be_watched_again() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        let Some(mut watcher) = or_skip(PortableWatcher::new()) else { return };
        for _ in 0..2 {
            std::fs::create_dir(&inside).unwrap();
            watcher.watch(&inside).unwrap();
            std::fs::remove_dir(&inside).unwrap();
            until(&mut watcher, &FsEvent::Replaced { path: inside.clone() });
            assert!(!watcher.is_watched(&inside));
        }
    }

    #[test]
    fn a_directory_is_known_by_the_path_by_which_it_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let (real, link) = (home.path().join("real"), home.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let Some(mut watcher) = or_skip(PortableWatcher::new()) else { return };
        watcher.watch(&link).unwrap();
        std::fs::write(real.join("x"), "").unwrap();
        let closed = FsEvent::Landed { dir: link, name: "x".to_owned(), how: Landing::Closed };
        until(&mut watcher, &closed);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let Some(mut watcher) = or_skip(PortableWatcher::new()) else { return };
        let missing = watcher.watch(Path::new("/nowhere")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        assert!(watcher.take_events().is_empty());
    }
}
