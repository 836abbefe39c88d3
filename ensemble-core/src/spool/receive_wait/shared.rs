//! One file watcher for all waits of a queue in a process: a user has some 128 of them, and a queue may have thousands
//! of waits.
//!
//! | a wait that sleeps | does |
//! |---|---|
//! | while no other reads the watcher | becomes its reader: passes each event on to the waits that it concerns |
//! | while another wait reads | sleeps until the reader rings |
//! | while a task of a runtime reads | becomes the reader: that runtime may not be driven |
//! | as the reader, until its own mail lands | hands the watcher to another wait that sleeps |
//!
//! No thread is between the kernel and a wait, so a single wait is woken as directly as by its own watcher.
//! An async runtime reads by a task instead (`queue/incoming`).

mod row;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::row::{WaitBell, WaitRow};
use super::lock;
use crate::watch::{
    FsEvent, FsWatcher, Landing, POLL_WITHOUT_EVENTS, may_have_more, sleep_until_any,
};

/// Maximum number of reads that drain the pending events. One look answers all of them.
const DRAINS_MAX: usize = 16;

/// Maximum number of names kept for a wait. It lists the rest.
const LANDED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct SharedWatcher {
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    /// Made with the first wait; `None` if the system has none left.
    watcher: Option<FsWatcher>,
    /// The watcher's descriptor, to be polled without the lock.
    readable: Option<Arc<OwnedFd>>,
    waits: HashMap<u64, WaitRow>,
    by_place: HashMap<PathBuf, Vec<u64>>,
    /// What the last wait waited for, still watched, because the next wait of a loop is for the same.
    idle: Vec<PathBuf>,
    /// Whether the wait that began last could not be watched.
    is_polling: bool,
    reader: Option<u64>,
    /// Waits that sleep on their bells, and can be made the reader.
    sleepers: BTreeSet<u64>,
    /// How many waits are those of tasks.
    #[cfg(feature = "tokio")]
    tasks: usize,
    /// The task that reads while tasks wait.
    #[cfg(feature = "tokio")]
    reading: Option<tokio::task::AbortHandle>,
    last_id: u64,
}

/// A wait's part in a sleep.
enum SleepRole {
    Reader(Arc<OwnedFd>),
    Follower(Arc<WaitBell>),
    /// Nothing can end the sleep early.
    Poller,
    /// An event came before the sleep.
    Rung,
}

/// One wait for something to change in some directories, by the watcher that it shares.
#[derive(Debug)]
pub(crate) struct FileWait {
    watcher: Arc<SharedWatcher>,
    id: u64,
}

impl FileWait {
    /// Starts a wait: what changes from now on ends its next sleep.
    pub(crate) fn begin(watcher: &Arc<SharedWatcher>, places: impl Into<Arc<[PathBuf]>>) -> Self {
        Self { id: watcher.add(places.into()), watcher: Arc::clone(watcher) }
    }

    /// Whether file events end its sleeps. Otherwise it looks five times a second.
    pub(crate) fn is_watched(&self) -> bool {
        self.watcher.lock().waits.get(&self.id).is_some_and(|row| row.is_watched)
    }

    /// The first names that landed in the first of its places since the last call. Of several waits for a place, one
    /// is given them.
    pub(crate) fn take_landed(&self) -> Vec<String> {
        let mut state = self.watcher.lock();
        state.waits.get_mut(&self.id).map(|row| std::mem::take(&mut row.landed)).unwrap_or_default()
    }

    /// Sleeps until an event, at most for `nap`; also ends when `other` becomes readable.
    pub(crate) fn sleep(&self, nap: Duration, other: Option<BorrowedFd<'_>>) {
        self.watcher.sleep(self.id, nap, other);
    }

    /// The sleep of a task: whether something may have changed since the last one. Otherwise the task is woken.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_rung(&self, context: &Context<'_>) -> Poll<()> {
        self.watcher.poll_rung(self.id, context)
    }

    /// Ends the sleep of a task in which nothing changed.
    #[cfg(feature = "tokio")]
    pub(crate) fn end_silence(&self) {
        self.watcher.end_sleep(self.id, true);
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn watcher(&self) -> &Arc<SharedWatcher> {
        &self.watcher
    }
}

impl Drop for FileWait {
    fn drop(&mut self) {
        self.watcher.remove(self.id);
    }
}

/// The watchers of the queues that this process has open, by their roots.
static QUEUE_WATCHERS: Mutex<BTreeMap<PathBuf, Weak<SharedWatcher>>> = Mutex::new(BTreeMap::new());

impl SharedWatcher {
    /// The watcher that all who have this queue open share.
    pub(crate) fn of_queue(root: &Path) -> Arc<Self> {
        let mut watchers = lock(&QUEUE_WATCHERS);
        if let Some(watcher) = watchers.get(root).and_then(Weak::upgrade) {
            return watcher;
        }
        watchers.retain(|_, watcher| watcher.strong_count() > 0);
        let watcher = Arc::<Self>::default();
        watchers.insert(root.to_owned(), Arc::downgrade(&watcher));
        watcher
    }

    /// Whether the wait that began last looks five times a second, because it could not be watched.
    pub(crate) fn is_polling(&self) -> bool {
        self.lock().is_polling
    }

    /// Adds a wait: what lands from now on ends its next sleep.
    fn add(&self, places: Arc<[PathBuf]>) -> u64 {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        let row = WaitRow { places, ..WaitRow::default() };
        state.waits.insert(id, row);
        state.watch(id, false);
        id
    }

    /// Removes a wait, and stops watching what no other one waits for.
    fn remove(&self, id: u64) {
        let mut state = self.lock();
        state.unwatch(id);
        let _row = state.waits.remove(&id);
        #[cfg(feature = "tokio")]
        if _row.is_some_and(|row| row.is_task) {
            state.tasks -= 1;
            let is_last = state.tasks == 0;
            if let Some(task) = state.reading.take_if(|_| is_last) {
                drop(state);
                task.abort();
            }
        }
    }

    /// Stops watching what no wait is for: other directories may have these names now.
    pub(crate) fn forget_idle(&self) {
        self.lock().end_idleness(&[]);
    }

    /// Sleeps until an event, at most for `nap`; also ends when `other` becomes readable.
    fn sleep(&self, id: u64, nap: Duration, other: Option<BorrowedFd<'_>>) {
        let ends = Instant::now().checked_add(nap);
        let left = || ends.map_or(nap, |ends| ends.saturating_duration_since(Instant::now()));
        let mut is_silent = true;
        loop {
            match self.begin_sleep(id) {
                SleepRole::Rung => {
                    is_silent = false;
                    break;
                }
                SleepRole::Poller => {
                    sleep_beside(None, left().min(POLL_WITHOUT_EVENTS), other);
                    break;
                }
                SleepRole::Reader(readable) => {
                    sleep_beside(Some(readable.as_fd()), left(), other);
                    self.end_reading(id);
                }
                SleepRole::Follower(bell) => {
                    sleep_beside(Some(bell.reader.as_fd()), left(), other);
                    self.end_following(id, &bell);
                }
            }
            let is_over = left().is_zero() || other.is_some_and(is_readable);
            if is_over && !self.lock().waits.get(&id).is_some_and(|row| row.is_rung) {
                break;
            }
        }
        self.end_sleep(id, is_silent);
    }

    /// Ends a sleep. Silence may also mean that the directories were replaced.
    fn end_sleep(&self, id: u64, is_silent: bool) {
        let mut state = self.lock();
        if is_silent || state.waits.get(&id).is_some_and(|row| row.is_replaced) {
            state.drain();
            state.watch(id, true);
        }
        state.appoint_reader();
    }

    /// Whether an event came since the last sleep of a task; otherwise the task is woken by the next one.
    #[cfg(feature = "tokio")]
    fn poll_rung(&self, id: u64, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(row) = state.waits.get_mut(&id) else { return Poll::Ready(()) };
        if std::mem::take(&mut row.is_rung) {
            row.waker = None;
            return Poll::Ready(());
        }
        row.waker = Some(context.waker().clone());
        if !std::mem::replace(&mut row.is_task, true) {
            state.tasks += 1;
        }
        Poll::Pending
    }

    /// Makes the caller the reader, unless there is one: it polls the descriptor, and calls
    /// [`SharedWatcher::read`] when it is readable.
    #[cfg(feature = "tokio")]
    pub(crate) fn begin_reading(&self) -> Option<(u64, Arc<OwnedFd>)> {
        let mut state = self.lock();
        let readable = state.readable.clone().filter(|_| state.reader.is_none())?;
        state.last_id += 1;
        state.reader = Some(state.last_id);
        Some((state.last_id, readable))
    }

    /// Passes pending events on. Returns whether those were all, or `None` if the caller is no longer the reader.
    #[cfg(feature = "tokio")]
    pub(crate) fn read(&self, reader: u64) -> Option<bool> {
        let mut state = self.lock();
        let is_drained = state.drain();
        (state.reader == Some(reader)).then_some(is_drained)
    }

    /// The task of this reader, which ends with the last wait of a task.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_task(&self, reader: u64, task: tokio::task::AbortHandle) {
        let mut state = self.lock();
        if state.reader == Some(reader) {
            state.reading = Some(task);
        }
    }

    /// Gives the watcher to another wait.
    #[cfg(feature = "tokio")]
    pub(crate) fn resign(&self, reader: u64) {
        let mut state = self.lock();
        if state.reader == Some(reader) {
            state.reader = None;
            state.appoint_reader();
        }
    }

    fn begin_sleep(&self, id: u64) -> SleepRole {
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_read_by_task = state.is_read_by_task();
        let Some(row) = state.waits.get_mut(&id) else { return SleepRole::Poller };
        if std::mem::take(&mut row.is_rung) {
            return SleepRole::Rung;
        }
        let Some(readable) = state.readable.as_ref().filter(|_| row.is_watched) else {
            return SleepRole::Poller;
        };
        if state.reader.is_none() || is_read_by_task {
            let readable = Arc::clone(readable);
            state.reader = Some(id);
            // A task whose runtime is not driven never reads.
            #[cfg(feature = "tokio")]
            if let Some(task) = std::mem::take(&mut state.reading) {
                drop(guard);
                task.abort();
            }
            return SleepRole::Reader(readable);
        }
        let Some(bell) = row.bell() else { return SleepRole::Poller };
        row.sleeps = true;
        state.sleepers.insert(id);
        SleepRole::Follower(bell)
    }

    fn end_reading(&self, id: u64) {
        let mut state = self.lock();
        state.drain();
        if state.reader == Some(id) {
            state.reader = None;
        }
    }

    fn end_following(&self, id: u64, bell: &WaitBell) {
        let mut state = self.lock();
        state.sleepers.remove(&id);
        if let Some(row) = state.waits.get_mut(&id) {
            row.sleeps = false;
        }
        if is_readable(bell.reader.as_fd()) {
            // Rings are few: one read takes them all.
            let _ = (&bell.reader).read(&mut [0; 64]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        lock(&self.state)
    }
}

impl WatchState {
    #[cfg(feature = "tokio")]
    const fn is_read_by_task(&self) -> bool {
        self.reading.is_some()
    }

    #[cfg(not(feature = "tokio"))]
    const fn is_read_by_task(&self) -> bool {
        false
    }

    /// Watches the directories of a wait. `again` forgets the ones that had these names before.
    fn watch(&mut self, id: u64, again: bool) {
        let Some(places) = self.waits.get(&id).map(|row| row.places.clone()) else { return };
        self.end_idleness(&places);
        self.open_watcher();
        let mut is_watched = self.watcher.is_some();
        for place in places.iter() {
            if let Some(watcher) = &mut self.watcher {
                if again {
                    watcher.unwatch(place);
                }
                is_watched &= watcher.watch(place).is_ok();
            }
            if again {
                // Events between the two calls are lost.
                self.ring_place(place, false);
            }
            let waits = self.by_place.entry(place.clone()).or_default();
            if !waits.contains(&id) {
                waits.push(id);
            }
        }
        self.is_polling = !is_watched;
        if let Some(row) = self.waits.get_mut(&id) {
            (row.is_watched, row.is_replaced, row.is_rung) = (is_watched, false, false);
            row.landed.clear();
        }
    }

    fn unwatch(&mut self, id: u64) {
        let Some(places) = self.waits.get(&id).map(|row| row.places.clone()) else { return };
        if self.waits.len() == 1 {
            self.by_place.clear();
            self.idle = places.to_vec();
            return;
        }
        // Events that are pending for others must not be lost with the watch.
        self.drain();
        for place in places.iter() {
            let Some(waits) = self.by_place.get_mut(place) else { continue };
            waits.retain(|other| *other != id);
            if waits.is_empty() {
                self.by_place.remove(place);
                if let Some(watcher) = &mut self.watcher {
                    watcher.unwatch(place);
                }
            }
        }
    }

    /// Stops watching what no wait was for, but for these places. No wait is for their events until now.
    fn end_idleness(&mut self, still: &[PathBuf]) {
        if !self.idle.is_empty() {
            self.drain();
            for place in std::mem::take(&mut self.idle).iter().filter(|it| !still.contains(it)) {
                self.watcher.iter_mut().for_each(|watcher| watcher.unwatch(place));
            }
        }
    }

    fn open_watcher(&mut self) {
        if self.watcher.is_some() {
            return;
        }
        let Ok(watcher) = FsWatcher::new() else { return };
        let Ok(readable) = watcher.as_fd().try_clone_to_owned() else { return };
        (self.watcher, self.readable) = (Some(watcher), Some(Arc::new(readable)));
    }

    /// Passes pending events on. Returns whether those were all.
    fn drain(&mut self) -> bool {
        for _ in 0..DRAINS_MAX {
            let events = self.watcher.as_mut().map(FsWatcher::take_events).unwrap_or_default();
            events.iter().for_each(|event| self.pass_on(event));
            if !may_have_more(&events) {
                return true;
            }
        }
        false
    }

    fn pass_on(&mut self, event: &FsEvent) {
        match event {
            FsEvent::Landed { dir, how: Landing::Closed, .. } => self.ring_place(dir, false),
            FsEvent::Landed { dir, name, .. } => {
                self.ring_place(dir, false);
                let first = self.by_place.get(dir).and_then(|waits| waits.first());
                if let Some(row) = first.and_then(|id| self.waits.get_mut(id))
                    && row.places.first() == Some(dir)
                    && row.landed.len() < LANDED_MAX
                {
                    row.landed.push(name.clone());
                }
            }
            FsEvent::Left { dir } | FsEvent::Strange { dir } => self.ring_place(dir, false),
            FsEvent::Replaced { path } if self.idle.contains(path) => {
                self.watcher.iter_mut().for_each(|watcher| watcher.unwatch(path));
            }
            FsEvent::Replaced { path } => self.ring_place(path, true),
            FsEvent::Overflow => self.waits.values_mut().for_each(WaitRow::ring),
            FsEvent::Failed { .. } => {
                (self.watcher, self.readable, self.reader) = (None, None, None);
                self.is_polling = true;
                for row in self.waits.values_mut() {
                    (row.is_watched, row.is_replaced) = (false, true);
                    row.ring();
                }
            }
        }
    }

    fn ring_place(&mut self, place: &Path, is_replaced: bool) {
        for id in self.by_place.get(place).into_iter().flatten() {
            if let Some(row) = self.waits.get_mut(id) {
                row.is_replaced |= is_replaced;
                row.ring();
            }
        }
    }

    /// Wakes a wait that sleeps, if none reads: it becomes the reader. Tasks find out which of them does.
    fn appoint_reader(&mut self) {
        if self.reader.is_some() {
            return;
        }
        match self.sleepers.first().and_then(|id| self.waits.get_mut(id)) {
            Some(row) => row.wake(),
            None => {
                self.waits.values_mut().filter_map(|row| row.waker.take()).for_each(Waker::wake)
            }
        }
    }
}

/// Sleeps until one of the descriptors is readable. A poll that fails is answered by a look, as an event is.
fn sleep_beside(own: Option<BorrowedFd<'_>>, nap: Duration, other: Option<BorrowedFd<'_>>) {
    let sources: Vec<BorrowedFd<'_>> = own.into_iter().chain(other).collect();
    if sleep_until_any(&sources, Some(nap)).is_err() {
        std::thread::sleep(nap.min(POLL_WITHOUT_EVENTS));
    }
}

fn is_readable(source: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(source, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
