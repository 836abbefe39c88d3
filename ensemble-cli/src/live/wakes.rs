//! The events that wake the view, in one thread: the terminal, files that change, and a pipe for all else.
//!
//! ```text
//! a key                               the terminal is readable
//! a file has changed                  inotify is readable
//! the terminal has another size       SIGWINCH writes to the pipe
//! amounts that were used have changed another thread writes to the pipe
//! ```

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::watch::FsWatcher;
use ensemble_project::overview::ProjectChanges;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGWINCH;

/// Most directories that are watched: what changes elsewhere is seen at the next regular look.
const PLACES_MAX: usize = 2_000;
/// Most reads of pending events: a process that writes endlessly must not hold the view.
const READS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WakeReason {
    pub(super) by_files: bool,
    pub(super) by_terminal: bool,
}

pub(super) struct ViewWakes {
    files: Option<FsWatcher>,
    watched: BTreeSet<PathBuf>,
    sees_all: bool,
    pipe: UnixStream,
    bell: UnixStream,
}

impl ViewWakes {
    /// Starts to listen. Without inotify, files are seen at regular looks only.
    pub(super) fn new() -> io::Result<Self> {
        let (pipe, bell) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGWINCH, bell.try_clone()?)?;
        Ok(Self {
            files: FsWatcher::new().ok(),
            watched: BTreeSet::new(),
            sees_all: false,
            pipe,
            bell,
        })
    }

    pub(super) fn waker(&self) -> io::Result<ViewWaker> {
        Ok(ViewWaker(self.bell.try_clone()?))
    }

    /// Watches these directories, and no others. Whether one is new: it may have changed before.
    pub(super) fn watch(&mut self, places: Vec<PathBuf>) -> bool {
        let Some(files) = &mut self.files else { return false };
        let count = places.len();
        let wanted: BTreeSet<PathBuf> = places.into_iter().take(PLACES_MAX).collect();
        for gone in self.watched.difference(&wanted) {
            files.unwatch(gone);
        }
        let (mut new, mut unseen) = (0, count.saturating_sub(PLACES_MAX));
        for place in &wanted {
            if files.is_watched(place) {
                continue;
            }
            match files.watch_logs(place) {
                Ok(()) => new += 1,
                // A place may not exist yet. Its parent is watched, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => unseen += 1,
            }
        }
        (self.watched, self.sees_all) = (wanted, unseen == 0);
        new > 0
    }

    /// Called after a failed look: the next one does not rely on events, and reads everything.
    pub(super) fn distrust(&mut self) {
        self.sees_all = false;
    }

    /// Sleeps until something happens, for at most `longest`. Changed files do not wake before `with_files`.
    pub(super) fn wait(&mut self, longest: Duration, with_files: bool) -> io::Result<WakeReason> {
        let stdin = io::stdin();
        let mut polled = vec![
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN),
        ];
        if let Some(files) = self.files.as_ref().filter(|_| with_files) {
            polled.push(PollFd::from_borrowed_fd(files.as_fd(), PollFlags::IN));
        }
        let longest = Timespec::try_from(longest).ok();
        match poll(&mut polled, longest.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => {
                return Ok(WakeReason { by_terminal: true, ..WakeReason::default() });
            }
            Err(error) => return Err(error.into()),
        }
        let is_woken = |at: usize| polled.get(at).is_some_and(|it| !it.revents().is_empty());
        let (key, bell, by_files) = (is_woken(0), is_woken(1), is_woken(2));
        drop(polled);
        if bell {
            let _ = self.pipe.read(&mut [0; 64]);
        }
        Ok(WakeReason { by_files, by_terminal: key || bell })
    }

    pub(super) fn take_changes(&mut self) -> ProjectChanges {
        let Some(files) = self.files.as_mut().filter(|_| self.sees_all) else {
            return ProjectChanges::Anywhere;
        };
        let mut changes = ProjectChanges::none();
        for _ in 0..READS_MAX {
            let events = files.take_events();
            if events.is_empty() {
                return changes;
            }
            events.into_iter().for_each(|event| changes.add(event));
        }
        ProjectChanges::Anywhere
    }
}

pub(super) struct ViewWaker(UnixStream);

impl ViewWaker {
    pub(super) fn wake(&self) {
        // A full pipe wakes as well.
        let _ = (&self.0).write(&[1]);
    }
}
