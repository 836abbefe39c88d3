//! The board of a team on servers: one shared file with the text of `state.yaml`, which all hosts change.
//!
//! ```text
//! flock state.yaml.lock    of this host's copy: the processes of one host queue up here
//!   lock board/lock        among hosts. It spares lost races, and no more; its note is what the log has: `<revision> <digest>`
//!     read                 text, revision and the log record of the last write, in one version
//!     change, validate     as for a file
//!     compare-and-set      text and log record together, upon the revision that was read
//!     record board.written then the note of the lock
//!   unlock
//! ```
//!
//! | a process dies | what remains | who continues |
//! |---|---|---|
//! | before the compare-and-set | the old board | the next holder takes the lock over after [`TAKE_OVER`](super::TAKE_OVER) |
//! | before the record | the new board, whose record the note lacks | the next holder records it |
//! | before the unlock | the new board, recorded | the next holder records it again; readers of the log keep one |
//!
//! A writer that lost its lock in the meantime still loses no write and overwrites none: its compare-and-set fails
//! ([`BoardError::Changed`]). Each host keeps a copy in a directory ([`SharedCopy`]), with its supervisors' locks
//! beside it. The copy is only read, and never written back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::copy::{BOARD, SharedCopy};
use super::journal::{JournalEntry, digest};
use super::leases::BEATS;
use super::shared_lock::{SharedLock, is_missing, put_shared};
use super::{Board, BoardError, BoardOptions, BoardTask, FILE_NAME, NEW_BOARD, TaskStatus, utf8};
use ensemble_core::document::{LockedDocument, SharedFiles};
use ensemble_core::durable::{Dir, FileLock};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result, allow_missing};

const LOCK: &str = "board/lock";
/// The lock of merges among the hosts, for a team whose worktrees go through a git remote.
const MERGE_LOCK: &str = "merge/lock";
const BEAT_BYTES_MAX: usize = 8_192;

#[derive(Debug)]
pub(super) enum HeldBoard<'a> {
    File(LockedDocument),
    Shared(ServerBoard<'a>),
}

#[derive(Debug)]
pub(super) struct ServerBoard<'a> {
    lock: SharedLock<'a>,
    revision: u64,
    // Released after the lock among the hosts.
    _here: FileLock,
}

impl Board {
    /// The board of a team on servers. Without a connection it is this host's copy, which can be read.
    pub fn find_shared(project: &Path, options: BoardOptions) -> Result<Self> {
        let board = Self::kept_by_team(project, options)?;
        let is_there = match board.files() {
            Some(files) => !is_missing(&files.read_file(BOARD)?),
            None => board.path.symlink_metadata().is_ok(),
        };
        if is_there { Ok(board) } else { Err(board.missing().into()) }
    }

    pub fn create_shared(project: &Path, options: BoardOptions) -> Result<Self> {
        let board = Self::kept_by_team(project, options)?;
        let Some(files) = board.files() else { return Err(board.without_connection()) };
        let found = files.read_file(BOARD)?;
        let is_new = is_missing(&found)
            && files.write_file(BOARD, NEW_BOARD.as_bytes(), "", found.revision)?.is_some();
        if !is_new {
            let why = super::BoardObstacle::BoardExists { path: board.place() };
            return Err(BoardError::not_allowed("create a blackboard", why));
        }
        board.pull()?;
        Ok(board)
    }

    fn kept_by_team(project: &Path, options: BoardOptions) -> Result<Self> {
        let copy = options.copy.clone().ok_or_else(|| {
            Error::malformed(project, "copy", "a board on servers needs a copy on this host")
        })?;
        let home = Some(project.to_owned());
        Ok(Self { path: copy.join(FILE_NAME), home, options, parsed: std::sync::Arc::default() })
    }

    pub const fn is_shared(&self) -> bool {
        self.home.is_some()
    }

    pub fn host(&self) -> Option<&str> {
        self.options.host.as_deref().filter(|_| self.is_shared())
    }

    pub fn other_host<'t>(&self, task: &'t BoardTask) -> Option<&'t str> {
        let there = task.host.as_deref().filter(|_| task.worktree.is_some())?;
        (there != self.host()?).then_some(there)
    }

    /// Whether a task is to be reviewed, repaired or merged in a worktree that another host has.
    pub fn is_kept_elsewhere(&self, task: &BoardTask) -> bool {
        let keeps = matches!(
            task.status,
            TaskStatus::ReadyForReview | TaskStatus::Approved | TaskStatus::IntegrationFailed
        );
        keeps && self.other_host(task).is_some()
    }

    pub fn place(&self) -> PathBuf {
        self.files().map_or_else(|| self.path.clone(), |files| files.place_of(BOARD).into())
    }

    /// The shared files of a board on servers, if they can be reached.
    pub(super) fn files(&self) -> Option<&dyn SharedFiles> {
        self.home.as_ref()?;
        self.options.shared.as_deref()
    }

    pub(super) fn copy(&self) -> Option<SharedCopy<'_>> {
        let files = self.files()?;
        Some(SharedCopy::new(self.path.parent()?.to_owned(), files))
    }

    pub(super) fn missing(&self) -> BoardError {
        BoardError::Missing { path: self.place() }
    }

    fn without_connection(&self) -> Error {
        Error::Server {
            operation: "change the blackboard",
            server: "the team's servers".to_owned(),
            detail: format!("{} is only a copy", self.path.display()),
            unreachable: true,
        }
    }

    /// Makes this host's copy new. A board in a directory has none.
    pub fn pull(&self) -> Result<()> {
        self.copy().map_or(Ok(()), |copy| copy.pull())
    }

    /// Whether a board on servers, or what stops the team, may have changed since the last call.
    pub fn may_have_changed(&self) -> bool {
        self.files().is_some_and(|files| files.may_have_changed())
    }

    pub(super) fn read_shared(&self, copy: &SharedCopy<'_>) -> Result<String> {
        let found = copy.pull_board()?;
        if is_missing(&found) {
            return Err(self.missing().into());
        }
        utf8(&found.content, &self.place())
    }

    pub(super) fn hold(&self) -> Result<(HeldBoard<'_>, String)> {
        let Some(files) = self.files() else {
            if self.is_shared() {
                return Err(self.without_connection());
            }
            let Some(document) = allow_missing(self.lock_document())? else {
                return Err(self.missing().into());
            };
            let source = utf8(&document.read()?.ok_or_else(|| self.missing())?, &self.path)?;
            return Ok((HeldBoard::File(document), source));
        };
        let patience = self.options.patience;
        super::copy::ensure(self.beside())?;
        let here = FileLock::acquire(&self.path.with_extension("yaml.lock"), patience)?;
        let mut lock = self.take_shared(files, LOCK, patience)?;
        let found = files.read_file(BOARD)?;
        if is_missing(&found) {
            return Err(self.missing().into());
        }
        let (revision, note) = (found.revision, found.note);
        let source = utf8(&found.content, &self.place())?;
        self.recover_shared(&note, &source, &mut lock);
        Ok((HeldBoard::Shared(ServerBoard { lock, revision, _here: here }), source))
    }

    fn take_shared<'a>(
        &self,
        files: &'a dyn SharedFiles,
        path: &'a str,
        patience: Duration,
    ) -> Result<SharedLock<'a>> {
        let host = self.options.host.as_deref().unwrap_or("of another");
        let by = format!("{}, process {} on host {host}", self.options.actor, std::process::id());
        SharedLock::acquire_lock(files, path, &by, patience, &*self.options.clock)
    }

    /// Runs a merge while no other host merges. The lock spares hosts lost races, and no more: a merge moves its branch by
    /// compare-and-set. Without servers there is no other host.
    pub(crate) fn merge_alone<T>(
        &self,
        patience: Duration,
        merge: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.files() {
            Some(files) => self.take_shared(files, MERGE_LOCK, patience)?.hold_while(merge),
            None => merge(),
        }
    }

    /// Notes that the caller waited for something other than the servers, so that its time limit is renewed.
    pub(crate) fn waited(&self) {
        if let Some(files) = self.files() {
            files.rest(Duration::ZERO);
        }
    }

    /// Records what a dead writer could not, and notices edits by other programs, as the table of [`super::journal`] says.
    /// The log record is in the board's version, and the lock's note says which digest was recorded.
    fn recover_shared(&self, note: &str, source: &str, lock: &mut SharedLock<'_>) {
        let now = digest(source);
        let known = lock.holder_note().split_once(' ');
        let (revision, before) = known.map_or((0, ""), |(revision, sha256)| {
            (revision.parse::<u64>().unwrap_or_default(), sha256)
        });
        if before == now {
            return;
        }
        let BoardOptions { recorder, actor, .. } = &self.options;
        let last = serde_json::from_str(note).ok();
        let revision = match last.filter(|last: &JournalEntry| last.sha256 == now) {
            Some(last) => {
                last.record(&**recorder);
                last.revision
            }
            None => {
                // The first writer finds a board that was just created.
                if !before.is_empty() {
                    let data = json!({ "revision": revision, "sha256": now, "before": before });
                    recorder.record(types::BOARD_EDITED, actor, data);
                }
                revision
            }
        };
        lock.set_note(format!("{revision} {now}"));
    }

    /// Changes a file of beats, on the servers, too. `change` works in the board's directory.
    pub(super) fn with_beat<T>(
        &self,
        name: &str,
        change: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let directory = self.beside();
        let Some((files, copy)) = self.files().zip(self.copy()) else {
            return if self.is_shared() {
                Err(self.without_connection())
            } else {
                change(directory)
            };
        };
        let path = format!("{BEATS}/{name}");
        let _lock = copy.lock()?;
        copy.put_beat(name, &files.read_file(&path)?)?;
        let made = change(directory)?;
        let content = Dir::open(&directory.join(BEATS))?.read(name, BEAT_BYTES_MAX)?;
        put_shared(files, &path, &content.unwrap_or_default())?;
        Ok(made)
    }
}

impl ServerBoard<'_> {
    pub(super) fn write(
        &mut self,
        board: &Board,
        last: &JournalEntry,
        content: &str,
    ) -> Result<()> {
        let Some((files, copy)) = board.files().zip(board.copy()) else {
            return Err(board.without_connection());
        };
        let note = serde_json::to_string(last).unwrap_or_default();
        let Some(revision) = files.write_file(BOARD, content.as_bytes(), &note, self.revision)?
        else {
            return Err(BoardError::Changed { path: board.place() }.into());
        };
        self.revision = revision;
        last.record(&*board.options.recorder);
        self.lock.set_note(format!("{} {}", last.revision, digest(content)));
        // The watcher makes the copy new where this fails.
        let _ = copy.pull_board();
        Ok(())
    }
}
