//! One file of a log to which many processes append, and which one sync makes durable for all of
//! them.
//!
//! ```text
//! state   written by             what an appender does
//! made    its maker              nothing: the name may not survive yet
//! open    its maker              takes a shared lock, checks, appends, unlocks
//! shut    its remover            looks for the next segment
//! kept    its remover, after a   logs nothing any more: see `Log`
//!         failed sync
//! ```
//!
//! The state is four letters in the first line. An appender reads it under a shared lock. The
//! remover writes it before it waits for the exclusive lock, so no process appends once that wait
//! is over. Appenders also make their other changes on disk under the shared lock, so these are
//! complete when the wait is over. A record is one `write` to the end of the file. A kill in the
//! middle leaves a partial record, after which other processes continue.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::retry_on_intr;

use super::{Dir, Durability, LockFile, Modes, Moved, stat_file, sync_file, temporary_name};
use crate::{Result, sys};

/// The word before the state.
const MAGIC: &str = "ensemble-wal 1 ";
/// Length of a state's word, in bytes.
const STATE_BYTES: usize = 4;
/// Longest first line, in bytes.
const HEADER_BYTES_MAX: usize = 256;

/// The state of a segment; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Made,
    Open,
    Shut,
    Kept,
}

impl SegmentState {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Made, "made"), (Self::Open, "open"), (Self::Shut, "shut"), (Self::Kept, "kept")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes() == word).map(|(state, _)| *state)
    }
}

/// The rest of the first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Boot id of the machine when the segment was made.
    pub(crate) boot: String,
    /// Salt of the digests of its records.
    pub(crate) salt: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub(crate) made_millis: u64,
}

impl SegmentHeader {
    fn line(&self, state: SegmentState) -> String {
        let Self { boot, salt, made_millis } = self;
        format!("{MAGIC}{} {boot} {salt} {made_millis}\n", state.word())
    }

    /// Parses a first line; also returns where the records begin. The state may be anything,
    /// because it is written without a sync.
    pub(crate) fn parse(content: &[u8]) -> Option<(Self, usize)> {
        let end = content.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n')?;
        let rest = content[..end].strip_prefix(MAGIC.as_bytes())?.get(STATE_BYTES..)?;
        let mut words = std::str::from_utf8(rest).ok()?.strip_prefix(' ')?.split(' ');
        let header = Self {
            boot: words.next()?.to_owned(),
            salt: words.next()?.to_owned(),
            made_millis: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some((header, end + 1))
    }
}

/// An open segment. Threads may share it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) header: SegmentHeader,
    file: File,
    path: std::path::PathBuf,
    /// Number of threads that use the descriptor's shared lock.
    inside: Mutex<u32>,
}

/// File name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number}.wal")
}

/// Number of a segment from its file name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".wal")?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

impl Segment {
    /// Makes a segment to which no process appends yet. Its name survives a power cut once `dir`
    /// was synced.
    pub(crate) fn make(
        dir: &Dir,
        number: u64,
        header: &SegmentHeader,
        modes: Modes,
    ) -> Result<Moved> {
        let tmp = temporary_name("segment");
        let line = header.line(SegmentState::Made);
        dir.write_new(&tmp, line.as_bytes(), modes, Durability::Power)?;
        let moved = dir.move_new(&tmp, dir, &segment_name(number));
        if !matches!(moved, Ok(Moved::Done)) {
            let _ = dir.remove(&tmp);
        }
        moved
    }

    /// Opens a segment; `None` if it does not exist, or its first line is invalid.
    pub(crate) fn open(dir: &Dir, number: u64) -> Result<Option<Self>> {
        let name = segment_name(number);
        let Some(file) = dir.open_at_end(&name)? else { return Ok(None) };
        let mut content = [0; HEADER_BYTES_MAX];
        let read = file
            .read_at(&mut content, 0)
            .map_err(|e| crate::Error::io("read", dir.path().join(&name), e))?;
        let Some((header, _)) = SegmentHeader::parse(&content[..read]) else { return Ok(None) };
        let path = dir.path().join(name);
        Ok(Some(Self { number, header, file, path, inside: Mutex::default() }))
    }

    /// The current state; `None` if it cannot be read.
    pub(crate) fn state(&self) -> Option<SegmentState> {
        let mut word = [0; STATE_BYTES];
        self.file.read_exact_at(&mut word, MAGIC.len() as u64).ok()?;
        SegmentState::parse(&word)
    }

    /// Sets the state. Needs no sync: after a power cut the state does not count.
    pub(crate) fn set_state(&self, state: SegmentState, dir: &Dir) -> Result<()> {
        let file = dir.open_in_place(&segment_name(self.number))?;
        let Some(file) = file else { return Ok(()) };
        file.write_all_at(state.word().as_bytes(), MAGIC.len() as u64)
            .map_err(|e| crate::Error::io("write", &self.path, e))
    }

    /// Takes a shared lock if the segment is open; [`Segment::leave`] releases it.
    pub(crate) fn enter(&self) -> bool {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if *inside == 0 && self.file.try_lock_shared().is_err() {
            return false;
        }
        if self.state() == Some(SegmentState::Open) {
            *inside += 1;
            return true;
        }
        if *inside == 0 {
            let _ = self.file.unlock();
        }
        false
    }

    /// Releases the shared lock.
    pub(crate) fn leave(&self) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        *inside -= 1;
        if *inside == 0 {
            let _ = self.file.unlock();
        }
    }

    /// Appends a record in one write; `false` if the disk does not accept it whole. A part of it is
    /// not a record.
    pub(crate) fn append(&self, record: &[u8]) -> bool {
        retry_on_intr(|| rustix::io::write(&self.file, record)) == Ok(record.len())
    }

    /// Makes all records that were appended before this call survive a power cut. Every process
    /// asks for itself: the kernel merges many requests for one file, and reports a failure to
    /// each.
    pub(crate) fn commit(&self) -> Result<()> {
        sync_file(&self.file, &self.path)
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        stat_file(&self.file, &self.path).map(|stat| stat.bytes)
    }

    /// Waits until no process is inside. The segment must not be open any more.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] names the process that is inside for longer than `patience`.
    pub(crate) fn wait_until_left(&self, dir: &Dir, patience: Duration) -> Result<()> {
        // Use another descriptor: this process's other threads may be inside through this one.
        let whole = LockFile::open(dir, &segment_name(self.number))?;
        whole.lock(patience).map(drop)
    }

    /// Removes the segment.
    pub(crate) fn remove(&self, dir: &Dir) -> Result<()> {
        dir.remove(&segment_name(self.number))?;
        dir.sync()
    }
}

impl Dir {
    /// Makes everything in this file system survive a power cut.
    pub(crate) fn sync_file_system(&self) -> Result<()> {
        retry_on_intr(|| sys::sync_file_system(&self.fd))
            .map_err(|e| crate::Error::io("sync the file system of", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let salt = "0123456789abcdef".to_owned();
        SegmentHeader { boot: "-".to_owned(), salt, made_millis: 7 }
    }

    #[test]
    fn first_line_round_trips() {
        let line = header().line(SegmentState::Shut);
        assert_eq!(SegmentHeader::parse(line.as_bytes()), Some((header(), line.len())));
        let torn = line.replace("shut", "o\0en");
        assert_eq!(SegmentHeader::parse(torn.as_bytes()), Some((header(), line.len())));
        for bad in ["", "ensemble-wal 1 open - 01 7", "ensemble-wal 2 open - 01 7\n", "\n"] {
            assert_eq!(SegmentHeader::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn only_open_segments_are_entered_and_the_wait_covers_all_inside() {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        assert_eq!(Segment::make(&dir, 3, &header(), Modes::default()).unwrap(), Moved::Done);
        assert_eq!(Segment::make(&dir, 3, &header(), Modes::default()).unwrap(), Moved::Exists);
        let [one, other] = [(); 2].map(|()| Segment::open(&dir, 3).unwrap().unwrap());
        assert!(!one.enter(), "the name may not survive");
        one.set_state(SegmentState::Open, &dir).unwrap();
        assert!(one.enter() && one.enter() && other.enter());
        assert!(one.append(b"\n%x") && one.commit().is_ok());
        other.set_state(SegmentState::Shut, &dir).unwrap();
        assert!(!one.enter(), "not even a process that is inside");
        one.leave();
        other.leave();
        let left = other.wait_until_left(&dir, Duration::from_millis(20));
        assert!(matches!(left, Err(crate::Error::Locked { .. })), "one use is still inside");
        one.leave();
        other.wait_until_left(&dir, Duration::from_millis(20)).unwrap();
        other.remove(&dir).unwrap();
        assert!(dir.names().unwrap().is_empty());
        assert!(!one.enter());
    }
}
