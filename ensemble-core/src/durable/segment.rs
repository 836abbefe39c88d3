//! One file of a log that many processes append to, and that one sync makes safe for all of them.
//!
//! ```text
//! state   who has written it     what an appender does
//! made    who is making it       nothing: its name may not survive yet
//! open    the same               takes a share of the lock, looks, appends, lets go
//! shut    who takes it away      looks for the next one
//! kept    the same, after its    nothing is logged any more: see `Log`
//!         sync has failed
//! ```
//!
//! The state is four letters in the first line. It is read behind a share of the file's lock and
//! written before the whole of it is waited for, so that nobody appends once that wait is over. What
//! appenders change on the disk besides they change behind their share, too: then it is there when
//! the wait is over. A record is one `write` to the end of the file; a kill inside leaves a part of one,
//! after which others go on.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs;
use rustix::io::retry_on_intr;

use super::{Dir, Durability, LockFile, Modes, Moved, stat_file, sync_file, temporary_name};
use crate::Result;

/// The word before the state.
const MAGIC: &str = "ensemble-wal 1 ";
/// How long a state's word is, in bytes.
const STATE_BYTES: usize = 4;
/// The longest first line, in bytes.
const HEADER_BYTES_MAX: usize = 256;

/// Who may do what with a segment.
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
    /// Under which start of the machine it was made.
    pub(crate) boot: String,
    /// Makes its records' digests its own.
    pub(crate) salt: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub(crate) made_millis: u64,
}

impl SegmentHeader {
    fn line(&self, state: SegmentState) -> String {
        let Self { boot, salt, made_millis } = self;
        format!("{MAGIC}{} {boot} {salt} {made_millis}\n", state.word())
    }

    /// Reads a first line; where the records begin is told as well. The state may be anything: it is
    /// written without a sync.
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
    /// Threads that hold the share of the lock, which is the descriptor's.
    inside: Mutex<u32>,
}

/// The name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number}.wal")
}

/// Reads the name of a segment.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".wal")?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

impl Segment {
    /// Makes a segment that nobody appends to yet. Its name survives once `dir` was synced.
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

    /// Opens a segment; `None` if there is none, or its first line cannot be read.
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

    /// What may be done with it now; `None` if that cannot be read.
    pub(crate) fn state(&self) -> Option<SegmentState> {
        let mut word = [0; STATE_BYTES];
        self.file.read_exact_at(&mut word, MAGIC.len() as u64).ok()?;
        SegmentState::parse(&word)
    }

    /// Says what may be done with it from now on. Needs no sync: after a power cut it does not count.
    pub(crate) fn set_state(&self, state: SegmentState, dir: &Dir) -> Result<()> {
        let file = dir.open_in_place(&segment_name(self.number))?;
        let Some(file) = file else { return Ok(()) };
        file.write_all_at(state.word().as_bytes(), MAGIC.len() as u64)
            .map_err(|e| crate::Error::io("write", &self.path, e))
    }

    /// Takes a share of it if it is open; to be given back by [`Segment::leave`].
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

    /// Gives a share back.
    pub(crate) fn leave(&self) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        *inside -= 1;
        if *inside == 0 {
            let _ = self.file.unlock();
        }
    }

    /// Appends a record in one piece; `false` if the disk does not take it. What it took of it is no
    /// record.
    pub(crate) fn append(&self, record: &[u8]) -> bool {
        retry_on_intr(|| rustix::io::write(&self.file, record)) == Ok(record.len())
    }

    /// Makes what was appended before this call survive a power cut. Everybody asks for it themselves:
    /// the kernel puts together what many ask of one file, and tells each whether it failed.
    pub(crate) fn commit(&self) -> Result<()> {
        sync_file(&self.file, &self.path)
    }

    /// How large it is, in bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        stat_file(&self.file, &self.path).map(|stat| stat.bytes)
    }

    /// Waits until nobody is inside. To be asked once it is not open any more.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] names who is inside for longer than `patience`.
    pub(crate) fn wait_until_left(&self, dir: &Dir, patience: Duration) -> Result<()> {
        // By a descriptor of its own: this process's other threads may be inside by this one.
        let whole = LockFile::open(dir, &segment_name(self.number))?;
        whole.lock(patience).map(drop)
    }

    /// Takes it away for good.
    pub(crate) fn remove(&self, dir: &Dir) -> Result<()> {
        dir.remove(&segment_name(self.number))?;
        dir.sync()
    }
}

impl Dir {
    /// Makes everything in this file system survive a power cut.
    pub(crate) fn sync_file_system(&self) -> Result<()> {
        retry_on_intr(|| fs::syncfs(&self.fd))
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
    fn a_first_line_reads_back() {
        let line = header().line(SegmentState::Shut);
        assert_eq!(SegmentHeader::parse(line.as_bytes()), Some((header(), line.len())));
        let torn = line.replace("shut", "o\0en");
        assert_eq!(SegmentHeader::parse(torn.as_bytes()), Some((header(), line.len())));
        for bad in ["", "ensemble-wal 1 open - 01 7", "ensemble-wal 2 open - 01 7\n", "\n"] {
            assert_eq!(SegmentHeader::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn nobody_enters_what_is_not_open_and_who_is_inside_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        assert_eq!(Segment::make(&dir, 3, &header(), Modes::default()).unwrap(), Moved::Done);
        assert_eq!(Segment::make(&dir, 3, &header(), Modes::default()).unwrap(), Moved::Exists);
        let [one, other] = [(); 2].map(|()| Segment::open(&dir, 3).unwrap().unwrap());
        assert!(!one.enter(), "its name may not survive");
        one.set_state(SegmentState::Open, &dir).unwrap();
        assert!(one.enter() && one.enter() && other.enter());
        assert!(one.append(b"\n%x") && one.commit().is_ok());
        other.set_state(SegmentState::Shut, &dir).unwrap();
        assert!(!one.enter(), "not even who is inside");
        one.leave();
        other.leave();
        let left = other.wait_until_left(&dir, Duration::from_millis(20));
        assert!(matches!(left, Err(crate::Error::Locked { .. })), "one is inside once more");
        one.leave();
        other.wait_until_left(&dir, Duration::from_millis(20)).unwrap();
        other.remove(&dir).unwrap();
        assert!(dir.names().unwrap().is_empty());
        assert!(!one.enter());
    }
}
