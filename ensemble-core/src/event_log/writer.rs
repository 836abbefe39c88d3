//! Appends lines to the log; no other module writes it.
//!
//! ```text
//! lock log.lock             at most lock_patience, else go on without: an unordered record
//! catch up                  stat the path: same file, same size -> everything is known
//!                                          same file, grown     -> read its end
//!                                          gone                 -> open the newest segment, or make one
//!                           `log.continued` at the end -> the same with the next segment
//! rotate                    if the segment is full: `log.continued`, then catch up again
//! write(2)                  one line, at the end of the file, with the next number
//! unlock
//! ```
//!
//! A crash at any point leaves whole lines and at most one torn line at the end. The next writer
//! closes the torn line with a newline. A crash may also leave a `log.continued` whose next file is
//! missing; the next writer makes it. The lock, the segment and its numbers all depend on one open
//! directory. A writer therefore abandons a deleted and recreated directory as a whole.

use super::LogError;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::line::{LinePlace, RecordBody};
use super::record::{RecordType, SEQ_MAX};
use super::segment::{self, Segment};
use super::tail::SegmentTail;
use super::{LOCK_FILE_NAME, LOG_ACTOR, LogOptions};
use crate::durable::{Dir, FileId, FileModes, LockFile, make_directory, stat_file, stat_path};
use crate::env::{Clock as _, SystemClock};
use crate::{Error, Result};

/// Patience for the lock after [`LogOptions::lock_patience`] has elapsed once, until the lock is
/// taken again. A stopped holder must not cost every record a second.
const LOCK_PATIENCE_WHILE_STUCK: Duration = Duration::from_millis(5);
/// Maximum retries of an append after the directory vanished.
const VANISHED_TRIES: u32 = 64;
/// Maximum number of segments that a late writer follows at once.
const FOLLOW_MAX: u32 = 1_000_000;

/// Appends to the log at `path`, for one thread at a time.
#[derive(Debug)]
pub(super) struct LogWriter {
    path: PathBuf,
    options: LogOptions,
    place: Option<LogDirectory>,
    current: Option<CurrentSegment>,
    /// The open segment whose file was found missing, and its last number.
    vanished: Option<(Segment, u64)>,
    /// The last check found no log and began its first session.
    has_begun_log: bool,
    lock_is_stuck: bool,
    buffer: String,
}

#[derive(Debug)]
struct LogDirectory {
    dir: Dir,
    lock: LockFile,
}

#[derive(Debug)]
struct CurrentSegment {
    segment: Segment,
    file: File,
    path: PathBuf,
    id: FileId,
    /// The size of the file when its tail was last read or a line last written.
    bytes: u64,
    tail: SegmentTail,
}

impl LogWriter {
    pub(super) fn new(path: &Path, options: LogOptions) -> Self {
        Self {
            path: path.to_owned(),
            options,
            place: None,
            current: None,
            vanished: None,
            has_begun_log: false,
            lock_is_stuck: false,
            buffer: String::new(),
        }
    }

    pub(super) fn segment(&self) -> Option<&Segment> {
        self.current.as_ref().map(|current| &current.segment)
    }

    /// Joins the newest session, or begins the first one.
    pub(super) fn join(&mut self) -> Result<()> {
        self.at_the_end(LOG_ACTOR, |_, _, _| Ok(()))
    }

    /// Appends a record. Returns its number, and whether it is ordered.
    pub(super) fn append(&mut self, body: &RecordBody) -> Result<(u64, bool)> {
        self.at_the_end(LOG_ACTOR, |writer, place, locked| {
            if locked.is_ok() && writer.is_full() {
                let next = writer.current()?.segment.next_part();
                writer.continue_in(&next, LOG_ACTOR)?;
                writer.catch_up(place, LOG_ACTOR)?;
            }
            writer.write(body, locked.is_ok())
        })
    }

    /// Ends the segment and begins a new session, which needs the lock.
    pub(super) fn start_session(&mut self, actor: &str) -> Result<()> {
        self.at_the_end(actor, |writer, place, locked| {
            if writer.has_begun_log {
                return Ok(());
            }
            locked?;
            let last = &writer.current()?.segment;
            let next = Segment::first_of_next_session(Some(last), SystemClock.wall())
                .ok_or_else(|| LogError::UnusableClock { path: writer.path.clone() })?;
            writer.continue_in(&next, actor)?;
            writer.catch_up(place, actor)
        })
    }

    /// Runs an action with the end of the log open and known. The action runs under the lock, or
    /// without it and with the reason why.
    fn at_the_end<T>(
        &mut self,
        actor: &str,
        mut action: impl FnMut(&mut Self, &LogDirectory, Result<()>) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..VANISHED_TRIES {
            let place = match self.place.take() {
                Some(place) => place,
                None => LogDirectory::open(&self.path)?,
            };
            let (lock, locked) = match place.lock.lock(self.lock_patience()) {
                Ok(guard) => (Some(guard), Ok(())),
                Err(error @ Error::Locked { .. }) => (None, Err(error)),
                Err(error) => return Err(error),
            };
            self.lock_is_stuck = lock.is_none();
            let result = self.catch_up(&place, actor).and_then(|()| action(self, &place, locked));
            drop(lock);
            match result {
                // The directory was opened, locked and found missing: open the path again.
                Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {}
                other => {
                    self.place = Some(place);
                    return other;
                }
            }
        }
        Err(self.not_found())
    }

    fn lock_patience(&self) -> Duration {
        let patience = self.options.lock_patience;
        if self.lock_is_stuck { patience.min(LOCK_PATIENCE_WHILE_STUCK) } else { patience }
    }

    /// Opens the segment in which the log continues and reads its tail.
    fn catch_up(&mut self, place: &LogDirectory, actor: &str) -> Result<()> {
        self.has_begun_log = false;
        for _ in 0..FOLLOW_MAX {
            if !self.check_current()? {
                if let Some(gone) = &self.current {
                    self.vanished = Some((gone.segment.clone(), gone.tail.seq));
                }
                self.open_newest(place, actor)?;
            }
            let current = self.current()?;
            match &current.tail.next {
                // A next segment that is not later would lead in circles.
                Some((next, actor)) if *next > current.segment => {
                    let (next, actor) = (next.clone(), actor.clone());
                    let seq = if next.is_first() { 0 } else { current.tail.seq };
                    self.open(place, next, seq, &actor)?;
                }
                _ => return Ok(()),
            }
        }
        Err(LogError::TooManySegments { path: self.path.clone() }.into())
    }

    /// Whether the path still leads to the open segment; if so, `tail` is up to date after this
    /// call.
    fn check_current(&mut self) -> Result<bool> {
        let Some(current) = &mut self.current else { return Ok(false) };
        let Some(stat) = stat_path(&current.path)?.filter(|stat| stat.id == current.id) else {
            return Ok(false);
        };
        if stat.bytes != current.bytes {
            current.tail = current.tail.read_on(&current.file, &current.path, stat.bytes)?;
            current.bytes = stat.bytes;
        }
        Ok(true)
    }

    /// Opens the newest segment with content. Without one, opens the newest, or the one that
    /// vanished, or the first of the log.
    fn open_newest(&mut self, place: &LogDirectory, actor: &str) -> Result<()> {
        // Another file may be at the path by now, or none.
        place.check(&self.path)?;
        let mut newest = None;
        for segment in segment::list(&place.dir)?.into_iter().rev() {
            match place.dir.stat(&segment.to_string())? {
                Some(stat) if stat.is_file && stat.bytes > 0 => {
                    newest = Some(segment);
                    break;
                }
                Some(stat) if stat.is_file && newest.is_none() => newest = Some(segment),
                _ => {}
            }
        }
        match newest.or_else(|| self.vanished.as_ref().map(|(gone, _)| gone.clone())) {
            Some(segment) => self.open(place, segment, 0, actor),
            None => {
                let first = Segment::first_of_next_session(None, SystemClock.wall())
                    .ok_or_else(|| LogError::UnusableClock { path: self.path.clone() })?;
                self.open(place, first, 0, actor)?;
                self.has_begun_log = true;
                Ok(())
            }
        }
    }

    /// Opens a segment in which numbers up to `seq` are used. An empty segment begins with a record
    /// that names the reason for it.
    fn open(
        &mut self,
        place: &LogDirectory,
        segment: Segment,
        seq: u64,
        actor: &str,
    ) -> Result<()> {
        let is_same = |gone: &Segment| gone.session_stamp() == segment.session_stamp();
        let lost =
            self.vanished.as_ref().filter(|(gone, _)| is_same(gone)).map_or(0, |gone| gone.1);
        let name = segment.to_string();
        let path = self.path.join(&name);
        let file = place.dir.open_append(&name, FileModes::default())?;
        let stat = stat_file(&file, &path)?;
        let tail = SegmentTail::starting_at(seq.max(lost)).read_on(&file, &path, stat.bytes)?;
        // This distinguishes a log whose older files were moved away from one that begins here.
        let before = self.current.as_ref().map(|before| before.segment.clone());
        let started = match before.filter(|before| *before < segment) {
            Some(before) => json!({ "after": before.to_string() }),
            None => json!({}),
        };
        let greeting = match (lost, segment.is_first()) {
            _ if stat.bytes > 0 => None,
            (1.., _) => Some(RecordBody::new(RecordType::LOG_RECREATED, LOG_ACTOR, json!({}))),
            (0, true) => Some(RecordBody::new(RecordType::SESSION_START, actor, started)),
            (0, false) => None,
        };
        self.current =
            Some(CurrentSegment { segment, file, path, id: stat.id, bytes: stat.bytes, tail });
        match greeting {
            Some(body) => self.write(&body, true).map(drop),
            None => Ok(()),
        }
    }

    fn current(&self) -> Result<&CurrentSegment> {
        self.current.as_ref().ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> Error {
        Error::io("append to", &self.path, io::ErrorKind::NotFound)
    }

    fn is_full(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.bytes >= self.options.segment_bytes_max)
    }

    /// Records that the log continues in `next`. Requires the lock: it is the last ordered record.
    fn continue_in(&mut self, next: &Segment, actor: &str) -> Result<()> {
        let data = json!({ "next": next.to_string() });
        self.write(&RecordBody::new(RecordType::LOG_CONTINUED, actor, data), true)?;
        if let Some(current) = &mut self.current {
            current.tail.next = Some((next.clone(), actor.to_owned()));
        }
        Ok(())
    }

    fn write(&mut self, body: &RecordBody, is_locked: bool) -> Result<(u64, bool)> {
        let Some(current) = &mut self.current else { return Err(self.not_found()) };
        let seq = (current.tail.seq + u64::from(is_locked)).min(SEQ_MAX);
        let buffer = &mut self.buffer;
        buffer.clear();
        if current.tail.is_torn {
            buffer.push('\n');
        }
        let session = current.segment.session_stamp();
        let timestamp = SystemClock.wall();
        body.write(buffer, &LinePlace { timestamp, session, seq, ordered: is_locked });
        write_once(&current.file, buffer.as_bytes())
            .map_err(|e| Error::io("append to", &current.path, e))?;
        // Without the lock the line's position is unknown, so the next write reads the end again.
        // It does so after a failure, too.
        if is_locked {
            current.bytes += buffer.len() as u64;
            current.tail.advance_to(seq, current.bytes);
        }
        Ok((seq, is_locked))
    }
}

/// Makes one write(2). An incomplete line stays torn: a second write could land behind another
/// process's line.
fn write_once(mut file: &File, line: &[u8]) -> io::Result<()> {
    loop {
        match file.write(line) {
            Ok(bytes) if bytes == line.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::StorageFull.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether a directory vanished between two checks. If it existed at `mkdir` and was gone at the
/// check, the error is "already exists".
fn has_vanished(error: &Error) -> bool {
    matches!(error.io_kind(), Some(io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists))
}

impl LogDirectory {
    /// Opens the log's directory and its lock, and makes both if needed.
    fn open(path: &Path) -> Result<Self> {
        let mut tries = VANISHED_TRIES;
        loop {
            match Self::try_open(path) {
                Err(error) if tries > 0 && has_vanished(&error) => tries -= 1,
                other => return other,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Self> {
        make_directory(path)?;
        let dir = Dir::open(path)?;
        let lock = LockFile::open(&dir, LOCK_FILE_NAME)?;
        Ok(Self { dir, lock })
    }

    /// Checks that the path still leads to this directory and to the open lock.
    fn check(&self, path: &Path) -> Result<()> {
        let is_here =
            stat_path(path)?.is_some_and(|stat| self.dir.id().is_ok_and(|id| id == stat.id));
        let lock = self.dir.stat(LOCK_FILE_NAME)?.map(|stat| stat.id);
        if is_here && lock == Some(self.lock.id()?) {
            return Ok(());
        }
        Err(Error::io("find", path, io::ErrorKind::NotFound))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_directory_that_comes_and_goes_is_still_opened() {
        let home = tempfile::tempdir().unwrap();
        let (path, away) = (home.path().join("logs"), home.path().join("away"));
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = std::fs::rename(&path, &away);
                    let _ = std::fs::remove_dir_all(&away);
                }
            });
            let opened = (0..5_000).try_for_each(|_| LogDirectory::open(&path).map(drop));
            is_done.store(true, Ordering::Relaxed);
            opened.unwrap();
        });
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("logs");
        std::fs::write(&path, b"mine").unwrap();
        let error = LogDirectory::open(&path).unwrap_err();
        assert_eq!(error.io_kind(), Some(io::ErrorKind::AlreadyExists), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
