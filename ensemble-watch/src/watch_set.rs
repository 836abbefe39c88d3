//! What the loop sleeps on: the watched directories, each with what it is, processes of agents, and one channel for
//! messages of other threads.
//!
//! ```text
//! directory, or file in one                  place          an event there means
//! mailbox/                                   Mailboxes      a mailbox was added: watch it
//! mailbox/<name>/new, mailbox/<name>/front   Mailbox        mail came or went: notify its agents
//! reports/, tasks/, ack/, configured ones    DropBox        examine the file
//! requests/                                  Requests       look at the request of that name
//! requests/<id>/                             Request        look at that request
//! .ensemble/panes/                           Panes          read the bindings
//! .ensemble/roster/                          Roster         read the roster, look at the agents
//! .ensemble/sessions/                        Sessions       an agent's hook has reported
//! .ensemble/canary/                          Canary         events still arrive
//! state.yaml, PAUSE, CHECKPOINT, ABORT       Board          check the alarms
//! steps.db-wal                               Steps          check the step queues
//! ```
//!
//! A place is entered when its directory is watched, so an event is resolved by one look-up. The last
//! two are files: other files in their directories, such as the watcher's own status, raise no event.
//!
//! ```text
//! another thread sends a message   channel, then an eventfd     -> the loop wakes
//! a file lands                     inotify's own descriptor     -> the loop wakes
//! a process of an agent ends       its pidfd                    -> the loop wakes
//! ```
//!
//! So a file that lands wakes the thread that acts on it, and no other one before.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use ensemble_core::message::Name;
use ensemble_core::watch::{FsEvent, FsWatcher, WatchError, may_have_more, sleep_until_any};
use ensemble_core::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::event_queue::EventQueue;
use crate::processes::WatchedProcesses;
use crate::wakes::{LoopWake, LoopWaker};

/// How many wake-ups one step takes: few enough that it stays short also if each is a file.
const WAKES_A_STEP: usize = 256;
/// Maximum number of consecutive reads of the file watcher, so that a process that writes endlessly does
/// not hold the loop.
const READS_A_STEP: usize = 256;
/// How many events are kept for later steps, so that the system need not drop any of a burst. Further events wait in
/// the kernel, which has its own limit (`fs.inotify.max_queued_events`).
const EVENTS_KEPT_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchedPlace {
    Mailboxes,
    Mailbox(Name),
    DropBox(Arc<str>),
    Requests,
    Request(Name),
    Panes,
    Roster,
    Sessions,
    Canary,
    Board,
    Steps,
}

#[derive(Debug, Default)]
pub(crate) struct WatchSet {
    fs_watcher: Option<FsWatcher>,
    directories: HashMap<PathBuf, WatchedPlace>,
    files: HashMap<PathBuf, WatchedPlace>,
    /// Directories in which only `files` count.
    shared: Vec<PathBuf>,
}

impl WatchSet {
    pub(crate) fn restart(&mut self) -> Result<(), WatchError> {
        *self = Self::default();
        self.fs_watcher = Some(FsWatcher::new()?);
        Ok(())
    }

    /// Raises no more events. Events that were raised before still have their places.
    pub(crate) fn stop(&mut self) {
        self.fs_watcher = None;
    }

    /// Watches a directory, which must exist. Does nothing while nothing can be watched.
    pub(crate) fn watch(&mut self, dir: &Path, place: WatchedPlace) -> Result<(), WatchError> {
        let Some(fs_watcher) = &mut self.fs_watcher else { return Ok(()) };
        fs_watcher.watch(dir)?;
        self.directories.insert(dir.to_owned(), place);
        Ok(())
    }

    /// As [`WatchSet::watch`], also if the path leads to another directory than before.
    pub(crate) fn rewatch(&mut self, dir: &Path, place: WatchedPlace) -> Result<(), WatchError> {
        self.unwatch(dir);
        self.watch(dir, place)
    }

    pub(crate) fn unwatch(&mut self, dir: &Path) {
        self.directories.remove(dir);
        if let Some(fs_watcher) = &mut self.fs_watcher {
            fs_watcher.unwatch(dir);
        }
    }

    /// Watches a directory in which only these files, and those of [`WatchSet::rewatch_log`], count.
    pub(crate) fn watch_files(
        &mut self,
        dir: &Path,
        names: &[&str],
        place: &WatchedPlace,
    ) -> Result<(), WatchError> {
        self.files.extend(names.iter().map(|name| (dir.join(name), place.clone())));
        self.shared.push(dir.to_owned());
        match &mut self.fs_watcher {
            Some(fs_watcher) if dir.is_dir() => fs_watcher.watch(dir),
            _ => Ok(()),
        }
    }

    /// Watches the log of a database, also if the path leads to another file than before.
    pub(crate) fn rewatch_log(
        &mut self,
        log: &Path,
        place: WatchedPlace,
    ) -> Result<(), WatchError> {
        let Some(fs_watcher) = &mut self.fs_watcher else { return Ok(()) };
        self.files.insert(log.to_owned(), place);
        fs_watcher.unwatch(log);
        fs_watcher.watch_logs(log)
    }

    pub(crate) fn has(&self, dir: &Path) -> bool {
        self.directories.contains_key(dir)
    }

    /// The place of a directory, other than those of single files.
    pub(crate) fn directory(&self, dir: &Path) -> Option<&WatchedPlace> {
        self.directories.get(dir)
    }

    pub(crate) fn place(&self, dir: &Path, file: &str) -> Option<&WatchedPlace> {
        self.directory(dir).or_else(|| self.files.get(&dir.join(file)))
    }

    /// Returns some of the pending events, without waiting; `true` if there may be more.
    pub(crate) fn take_events(&mut self) -> (Vec<FsEvent>, bool) {
        let Some(fs_watcher) = &mut self.fs_watcher else { return (Vec::new(), false) };
        let mut events = fs_watcher.take_events();
        let may_have_more = may_have_more(&events);
        if events.iter().any(|event| matches!(event, FsEvent::Replaced { .. })) {
            self.directories.retain(|dir, _| fs_watcher.is_watched(dir));
        }
        events.retain(|event| !self.is_noise(event));
        (events, may_have_more)
    }

    /// The watcher's own status is beside the board: it would wake itself forever.
    fn is_noise(&self, event: &FsEvent) -> bool {
        match event {
            FsEvent::Landed { dir, name, .. } => {
                self.shared.contains(dir) && !self.files.contains_key(&dir.join(name))
            }
            FsEvent::Left { dir } | FsEvent::Strange { dir } => self.shared.contains(dir),
            _ => false,
        }
    }

    /// Readable when [`WatchSet::take_events`] has an event.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.fs_watcher.as_ref().map(|fs_watcher| fs_watcher.as_fd())
    }
}

#[derive(Debug)]
pub(crate) struct LoopSources {
    pub(crate) watch_set: WatchSet,
    pub(crate) processes: WatchedProcesses,
    receiver: Receiver<LoopWake>,
    signal: Arc<OwnedFd>,
    events: EventQueue,
}

struct ReadySources {
    signal: bool,
    files: bool,
    processes: bool,
}

/// The sources of a loop, and its waker for other threads. No directory or process is watched yet.
pub(crate) fn loop_sources() -> Result<(LoopWaker, LoopSources)> {
    let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| Error::io("make an eventfd for the threads of", "this process", error))?;
    let (sender, receiver) = unbounded();
    let signal = Arc::new(signal);
    let waker = LoopWaker::new(sender, Arc::clone(&signal));
    let (watch_set, processes, events) = Default::default();
    Ok((waker, LoopSources { watch_set, processes, receiver, signal, events }))
}

impl LoopSources {
    /// Waits until there is a reason to step, for at most `longest` (without a limit for `None`).
    /// Returns what has come by then, messages of other threads first.
    pub(crate) fn next_wakes(&mut self, longest: Option<Duration>) -> Vec<LoopWake> {
        let began = Instant::now();
        loop {
            let left = longest.map(|longest| longest.saturating_sub(began.elapsed()));
            let has_kept = self.has_events() || !self.receiver.is_empty();
            let nap = if has_kept { Some(Duration::ZERO) } else { left };
            let ready = self.sleep(nap);
            let mut wakes = if has_kept || ready.signal { self.received() } else { Vec::new() };
            if ready.files {
                self.read_events();
            }
            if ready.processes {
                wakes.extend(self.processes.take_ended().into_iter().map(LoopWake::Ended));
            }
            let room = WAKES_A_STEP.saturating_sub(wakes.len());
            wakes
                .extend(std::iter::from_fn(|| self.events.pop()).take(room).map(LoopWake::Changed));
            if !wakes.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return wakes;
            }
        }
    }

    pub(crate) const fn has_events(&self) -> bool {
        self.events.len() > 0
    }

    fn read_events(&mut self) {
        for _ in 0..READS_A_STEP {
            if self.events.len() >= EVENTS_KEPT_MAX {
                return;
            }
            let (events, may_have_more) = self.watch_set.take_events();
            events.into_iter().for_each(|event| self.events.push(event));
            if !may_have_more {
                return;
            }
        }
    }

    fn received(&self) -> Vec<LoopWake> {
        // Reset before the channel is emptied: a message that comes in between wakes the loop again.
        match rustix::io::read(&*self.signal, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => tracing::warn!(%error, "cannot read the eventfd of the threads"),
        }
        self.receiver.try_iter().take(WAKES_A_STEP).collect()
    }

    fn sleep(&self, longest: Option<Duration>) -> ReadySources {
        let files = self.watch_set.source();
        let processes_at = 1 + usize::from(files.is_some());
        let own = [self.signal.as_fd()].into_iter().chain(files);
        let sources: Vec<_> = own.chain(self.processes.sources()).collect();
        match sleep_until_any(&sources, longest) {
            Ok(ready) => ReadySources {
                signal: ready[0],
                files: ready[1..processes_at].contains(&true),
                processes: ready[processes_at..].contains(&true),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot wait for events");
                ReadySources { signal: true, files: true, processes: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Where the system has no inotify instance left, these tests are skipped.
    fn restarted(watch_set: &mut WatchSet) -> bool {
        let restarted = watch_set.restart();
        if let Err(error) = &restarted {
            println!("skipped: {error}");
        }
        restarted.is_ok()
    }

    fn next(watch_set: &mut WatchSet) -> FsEvent {
        loop {
            let (events, _) = watch_set.take_events();
            if let Some(event) = events.into_iter().next() {
                return event;
            }
            sleep_until_any(&[watch_set.source().unwrap()], Some(PATIENCE)).unwrap();
        }
    }

    #[test]
    fn an_event_has_the_place_of_its_directory_or_of_its_file() {
        let home = tempfile::tempdir().unwrap();
        let mailbox = WatchedPlace::Mailbox(Name::new("worker-1").unwrap());
        let (new, state) = (home.path().join("new"), home.path().join("state"));
        std::fs::create_dir(&new).unwrap();
        std::fs::create_dir(&state).unwrap();
        let mut watch_set = WatchSet::default();
        assert_eq!(watch_set.watch(&new, mailbox.clone()), Ok(()), "nothing can be watched yet");
        assert_eq!(watch_set.place(&new, "m.yaml"), None);
        if !restarted(&mut watch_set) {
            return;
        }
        watch_set.watch(&new, mailbox.clone()).unwrap();
        watch_set.watch_files(&state, &["PAUSE"], &WatchedPlace::Board).unwrap();
        std::fs::write(state.join("watch.json"), "").unwrap();
        std::fs::write(state.join("PAUSE"), "").unwrap();
        let event = next(&mut watch_set);
        assert!(matches!(&event, FsEvent::Landed { name, .. } if name == "PAUSE"), "{event:?}");
        assert_eq!(watch_set.place(&new, "m.yaml"), Some(&mailbox));
        assert_eq!(watch_set.place(&state, "PAUSE"), Some(&WatchedPlace::Board));
        assert_eq!(watch_set.place(&state, "watch.json"), None);
    }

    #[test]
    fn a_removed_directory_loses_its_place() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("request");
        std::fs::create_dir(&dir).unwrap();
        let mut watch_set = WatchSet::default();
        if !restarted(&mut watch_set) {
            return;
        }
        watch_set.watch(&dir, WatchedPlace::Requests).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        assert!(matches!(next(&mut watch_set), FsEvent::Replaced { .. }));
        assert!(!watch_set.has(&dir));
    }
}
