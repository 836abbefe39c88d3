//! One mailbox: its open directories, its settings, and what this process knows of its backlog.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::emptiness::Emptiness;
use super::opened::KnownBacklog;
use super::settings::Settings;
use super::waiting::WaitingBacklog;
use super::{SpoolOptions, place};
use crate::durable::{
    self, Dir, Durability, FileLock, FileModes, FileStat, SyncReach, SyncTogether, stop_if,
};
use crate::env::{Clock as _, SystemClock};
use crate::message::{MessageId, Name, yaml};
use crate::{Error, Result};

/// The directories of a mailbox, in the order of a message's life.
pub(super) const STATES: [&str; 5] = ["new", "front", "cur", "done", "dead"];
pub(super) const SETTINGS_FILE: &str = "mailbox.yaml";
/// Counts the messages that were refused because the mailbox was full.
pub(super) const OVERFLOW_FILE: &str = "overflow.yaml";
/// Taken exclusively to store a chosen id or into a bounded mailbox, shared to move backwards.
const GATE_FILE: &str = "gate.lock";
/// The longest that one search for an id may take. A client without locks delays what it releases
/// by twice this time, so a message cannot be missed.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(1);
const SEARCHES_MAX: usize = 10;
pub(super) const SETTINGS_BYTES_MAX: usize = 16 * 1024;

/// Refuses a directory that every user may write to without being meant to: the queue, a mailbox, a
/// drop box.
pub(crate) fn refuse_open_to_all(path: &Path, mode: u32, modes: FileModes) -> Result<()> {
    const OTHERS_WRITE: u32 = 0o002;
    if mode & OTHERS_WRITE == 0 || modes.directory & OTHERS_WRITE != 0 {
        return Ok(());
    }
    let detail = "every user may write here and could forge messages: `chmod o-w` it";
    Err(Error::malformed(path, "permissions", detail))
}

pub(super) fn read_settings(home: &Dir) -> Result<Settings> {
    match home.read(SETTINGS_FILE, SETTINGS_BYTES_MAX)? {
        Some(content) => parse_settings(home, &content),
        None => Ok(Settings::default()),
    }
}

pub(super) fn parse_settings(home: &Dir, content: &[u8]) -> Result<Settings> {
    let path = home.path().join(SETTINGS_FILE);
    let settings: Settings = yaml::parse(yaml::decode_text(content, &path)?, &path)?;
    match settings.fault() {
        Some((field, detail)) => Err(Error::malformed(&path, field, detail)),
        None => Ok(settings),
    }
}

#[derive(Debug)]
pub(super) struct OpenMailbox {
    pub(super) name: Name,
    pub(super) home: Dir,
    pub(super) new: Dir,
    pub(super) front: Dir,
    pub(super) cur: Dir,
    pub(super) done: Dir,
    pub(super) dead: Dir,
    pub(super) lease: Dir,
    pub(super) tmp: Dir,
    pub(super) waiting: KnownBacklog,
    /// Whether `lease/` is known to be empty, which it usually is.
    pub(super) extensions: Mutex<Emptiness>,
    pub(super) queue: Dir,
    new_syncs: SyncTogether,
    front_syncs: SyncTogether,
    done_syncs: SyncTogether,
    modes: FileModes,
    sync_reach: OnceLock<SyncReach>,
    /// How many messages this process may publish before it counts again (quotas).
    pub(super) room: AtomicU64,
    settings: Mutex<(Option<FileStat>, Settings)>,
    pub(super) identity: durable::FileId,
    new_path: PathBuf,
}

impl OpenMailbox {
    /// Opens `mailboxes/<name>`; directories that a hand-made mailbox lacks are created.
    pub(super) fn open(
        queue: Dir,
        mailboxes: &Dir,
        name: &Name,
        options: &SpoolOptions,
    ) -> Result<Self> {
        let home = mailboxes.open_child(name.as_str())?;
        let child = |state: &str| home.ensure_child_safe(state, options.modes, options.durability);
        let [new, front, cur, done, dead] = STATES.map(child);
        let (new, lease, tmp) = (new?, child("lease")?, queue.ensure_child("tmp", options.modes)?);
        let (front, cur, done, dead) = (front?, cur?, done?, dead?);
        for dir in [&home, &new, &front, &cur, &done, &dead, &lease, &tmp] {
            refuse_open_to_all(dir.path(), dir.own_stat()?.mode, options.modes)?;
        }
        Ok(Self {
            name: name.clone(),
            identity: new.id()?,
            new_path: new.path().to_owned(),
            front,
            cur,
            done,
            dead,
            new,
            lease,
            tmp,
            home,
            waiting: KnownBacklog::default(),
            extensions: Mutex::default(),
            queue,
            new_syncs: SyncTogether::new("new.sync"),
            front_syncs: SyncTogether::new("front.sync"),
            done_syncs: SyncTogether::new("done.sync"),
            modes: options.modes,
            sync_reach: OnceLock::new(),
            room: AtomicU64::new(0),
            settings: Mutex::new((None, Settings::default())),
        })
    }

    /// Whether the path still leads to the directory that is open. A queue that was moved away,
    /// replaced or mounted over must not be written to unseen.
    pub(super) fn is_current(&self) -> bool {
        matches!(durable::stat_path(&self.new_path), Ok(Some(stat)) if stat.id == self.identity)
    }

    pub(super) fn lock_waiting(&self) -> MutexGuard<'_, WaitingBacklog> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings as they are on disk now.
    pub(super) fn settings(&self) -> Result<Settings> {
        let stat = self.home.stat(SETTINGS_FILE)?;
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if stat != known.0 {
            known.1 = read_settings(&self.home)?;
            known.0 = stat;
        }
        Ok(known.1.clone())
    }

    /// See [`Dir::find_sync_reach`], which is asked once.
    pub(super) fn sync_reach(&self) -> SyncReach {
        *self.sync_reach.get_or_init(|| self.tmp.find_sync_reach())
    }

    /// Whether a message is renamed first, and synced once.
    pub(super) fn names_go_with_files(&self) -> bool {
        self.sync_reach() >= SyncReach::Name
    }

    /// Makes the names in one of its directories survive a power cut.
    pub(super) fn sync_names(&self, dir: &Dir) -> Result<()> {
        let shared = [
            (&self.new, &self.new_syncs),
            (&self.front, &self.front_syncs),
            (&self.done, &self.done_syncs),
        ];
        match shared.into_iter().find(|(shared, _)| std::ptr::eq(*shared, dir)) {
            Some((_, syncs)) => syncs.sync(dir, &self.home, self.modes),
            None => dir.sync(),
        }
    }

    /// Replaces a file that describes the mailbox or one of its messages.
    pub(super) fn write_page(
        &self,
        dir: &Dir,
        file: &str,
        page: &impl Serialize,
        durability: Durability,
    ) -> Result<()> {
        dir.replace(file, yaml::render(page).as_bytes(), &self.tmp, self.modes, durability)
    }

    /// Keeps others from storing chosen ids and from moving messages backwards.
    pub(super) fn close_gate(&self, patience: Duration) -> Result<FileLock> {
        FileLock::acquire(&self.home.path().join(GATE_FILE), patience)
    }

    /// Keeps others from storing chosen ids while a message moves backwards.
    pub(super) fn pass_gate_backwards(&self, patience: Duration) -> Result<FileLock> {
        FileLock::acquire_shared(&self.home.path().join(GATE_FILE), patience)
    }

    pub(super) fn count_waiting(&self, limit: u64) -> Result<u64> {
        let mut count = 0;
        let mut tally = |is_message: bool| {
            count += u64::from(is_message);
            stop_if(count >= limit)
        };
        self.front.for_each(|file| tally(place::FrontFile::parse(file).is_some()))?;
        self.new.for_each(|file| tally(place::parse_plain(file).is_some()))?;
        Ok(count.min(limit))
    }

    /// The file that holds `id`, if any, looking along a message's way so that one which moves
    /// forwards in the meantime is not missed.
    ///
    /// A client without locks may move a message backwards in the meantime, and delays it by more than a search takes.
    /// So the message is in `front/` at the end. A search that took too long begins again.
    pub(super) fn locate(&self, id: &MessageId) -> Result<Option<MessageLocation>> {
        for _ in 0..SEARCHES_MAX {
            let start = SystemClock.monotonic();
            let found = self.search(id)?;
            if found.is_some() || SystemClock.monotonic().since(start) < SEARCH_TIME_MAX {
                return Ok(found);
            }
        }
        Err(Error::io("search", self.home.path(), io::ErrorKind::TimedOut))
    }

    fn search(&self, id: &MessageId) -> Result<Option<MessageLocation>> {
        let file = place::plain(id);
        if self.new.stat(&file)?.is_some() {
            return Ok(Some(MessageLocation::New));
        }
        if let Some(front) = self.search_front(id)? {
            return Ok(Some(front));
        }
        if let Some(held) =
            find(&self.cur, |name| place::HeldFile::parse(name).filter(|h| h.id == *id))?
        {
            return Ok(Some(MessageLocation::Cur(held)));
        }
        if self.done.stat(&file)?.is_some() {
            return Ok(Some(MessageLocation::Done));
        }
        if self.dead.stat(&file)?.is_some() {
            return Ok(Some(MessageLocation::Dead));
        }
        self.search_front(id)
    }

    fn search_front(&self, id: &MessageId) -> Result<Option<MessageLocation>> {
        let front =
            find(&self.front, |name| place::FrontFile::parse(name).filter(|f| f.id == *id))?;
        Ok(front.map(MessageLocation::Front))
    }

    pub(super) fn file_at(&self, id: &MessageId, location: &MessageLocation) -> (&Dir, String) {
        match location {
            MessageLocation::New => (&self.new, place::plain(id)),
            MessageLocation::Front(front) => (&self.front, front.file()),
            MessageLocation::Cur(held) => (&self.cur, held.file()),
            MessageLocation::Done => (&self.done, place::plain(id)),
            MessageLocation::Dead => (&self.dead, place::plain(id)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageLocation {
    New,
    Front(place::FrontFile),
    Cur(place::HeldFile),
    Done,
    Dead,
}

impl MessageLocation {
    /// How often a waiting message was delivered; `None` for one that does not wait.
    pub(super) const fn deliveries_of_waiting(&self) -> Option<u64> {
        match self {
            Self::New => Some(0),
            Self::Front(front) => Some(front.epoch),
            Self::Cur(_) | Self::Done | Self::Dead => None,
        }
    }
}

pub(super) fn find<T>(dir: &Dir, mut pick: impl FnMut(&str) -> Option<T>) -> Result<Option<T>> {
    let mut found = None;
    dir.for_each(|name| {
        found = pick(name);
        stop_if(found.is_some())
    })?;
    Ok(found)
}
