//! Records what was routed already: one line for each version of each drop-box file, appended once
//! its messages are durable in their mailboxes.
//!
//! Because the line is written last, a crash before it only publishes the same messages again under
//! the same ids, which stores nothing new. The ids count the versions of a path, so a file that is
//! rewritten with earlier content is a new version, while one that is deleted and restored
//! unchanged is not. Each file written to `ack/` counts as a new version, because it is an event.
//! Memory holds a digest of each file that is still in a drop box, some 24 bytes each, and the
//! position of each file's line; those of deleted files are dropped after some days.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::index::{PathIndex, entry_at, hash, key};
use crate::durable::{Dir, Durability, FileModes, FileStat, timestamp};
use crate::env::Lease;
use crate::message::{Digest, MessageId, Name, Timestamp};
use crate::proto::calendar::Calendar;
use crate::{Error, Result};

/// The file below `.ensemble/`.
const LEDGER_FILE: &str = "routed.ndjson";
const LEDGER_BYTES_MAX: u64 = LEDGER_READ_MAX as u64;
const LEDGER_READ_MAX: usize = 1 << 30;
/// A ledger with more than this many superseded lines is rewritten at start.
const SUPERSEDED_LINES_MAX: usize = 10_000;
/// How the paths of the files begin that acknowledge a task.
const ACK_PREFIX: &str = "ack/";
/// How many hexadecimal digits of a digest make an id.
const ID_DIGITS: usize = 40;

/// The last version of a path that was routed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The file, below the queue.
    pub path: String,
    /// How many versions of it were routed.
    pub version: u64,
    pub sha256: Digest,
    /// Size, device, inode, modification and change time of the file when it was routed: an
    /// unchanged file needs no second reading.
    pub stamp: RoutedStamp,
    /// For an `ack/` file: what was received for its writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Box<Lease>>,
}

/// Which state of which file was routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoutedStamp(u64, u64, u64, i128, i128);

impl RoutedStamp {
    /// When the file was changed or moved last.
    fn changed(&self) -> Timestamp {
        timestamp(self.4)
    }

    /// Whether nothing was written in between. The change time is left out: it also moves with a link or
    /// a change of permissions.
    fn is_same_writing(&self, other: &Self) -> bool {
        (self.0, self.1, self.2, self.3) == (other.0, other.1, other.2, other.3)
    }
}

impl LedgerEntry {
    /// The entry of the next version, whose content is the same.
    pub fn counted_again(self) -> Self {
        Self { version: self.version + 1, ..self }
    }

    /// Whether another file has taken the place of the one that was routed, and was written after that: it was neither
    /// touched nor restored.
    pub const fn is_new_file(&self, routed: &Self) -> bool {
        let (new, old) = (&self.stamp, &routed.stamp);
        (new.1 != old.1 || new.2 != old.2) && new.3 != old.3 && new.3 >= old.4
    }
}

impl From<&FileStat> for RoutedStamp {
    fn from(stat: &FileStat) -> Self {
        Self(stat.bytes, stat.id.device, stat.id.inode, stat.modified_ns, stat.changed_ns)
    }
}

/// The ledger on disk, and in memory digests of the files that are in the drop boxes.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    path: std::path::PathBuf,
    /// Where the last line of each path begins.
    index: PathIndex,
    /// By the key of their paths: what was listed last, and what was routed since.
    present: HashMap<u32, PresentFile>,
    /// Number of the last listing.
    listing: u32,
    lines: usize,
    /// Length of the file in bytes.
    end: u64,
    /// The file ends within a line: the disk was full.
    torn: bool,
    /// When the lines were last searched for old ones, in the calendar's steady time.
    looked_at: Option<i64>,
}

/// A file that is in a drop box. The same digests stand for the same file in the same state.
#[derive(Debug)]
struct PresentFile {
    path: u64,
    stamp: u64,
    listing: u32,
}

impl PresentFile {
    fn new(path: &str, stamp: &RoutedStamp, listing: u32) -> Self {
        Self { path: hash(path), stamp: hash(stamp), listing }
    }
}

impl Ledger {
    /// Opens the ledger in a state directory (`.ensemble/`) and creates it if needed. Lines that
    /// cannot be read (a torn one after a crash) are passed over: their files are routed again,
    /// under the same ids.
    pub fn open(state: &Path) -> Result<Self> {
        let file = Dir::open(state)?.open_append(LEDGER_FILE, FileModes::default())?;
        let mut ledger = Self {
            file,
            path: state.join(LEDGER_FILE),
            index: PathIndex::default(),
            present: HashMap::new(),
            listing: 0,
            lines: 0,
            end: 0,
            torn: false,
            looked_at: None,
        };
        ledger.read()?;
        if ledger.lines > ledger.index.len() + SUPERSEDED_LINES_MAX {
            ledger.rewrite(&[])?;
        }
        Ok(ledger)
    }

    /// Reads where the last line of each path begins.
    fn read(&mut self) -> Result<()> {
        let fail = |e| Error::io("read", &self.path, e);
        (self.end, self.lines, self.torn) = (0, 0, false);
        self.index = PathIndex::default();
        let mut reader = BufReader::new(self.file.try_clone().map_err(fail)?);
        reader.rewind().map_err(fail)?;
        let mut text = Vec::new();
        loop {
            text.clear();
            let bytes = reader.read_until(b'\n', &mut text).map_err(fail)? as u64;
            if bytes == 0 {
                return Ok(());
            }
            if self.end + bytes > LEDGER_BYTES_MAX {
                let (what, bytes) = (self.path.display().to_string(), self.end + bytes);
                return Err(Error::TooLarge { what, bytes, limit: LEDGER_BYTES_MAX });
            }
            self.torn = text.last() != Some(&b'\n');
            self.lines += 1;
            if let Ok(entry) = serde_json::from_slice::<LedgerEntry>(&text) {
                self.index.insert(&self.file, &entry.path, self.end);
            }
            self.end += bytes;
        }
    }

    /// Replaces the file by one with the last lines of all paths, but for those that begin at these offsets, which
    /// are sorted.
    fn rewrite(&mut self, gone: &[u32]) -> Result<()> {
        let state = self.path.parent().unwrap_or_else(|| Path::new("."));
        let dir = Dir::open(state)?;
        let (file, index) = (&self.file, &self.index);
        let write = |out: &mut dyn std::io::Write| {
            for at in index.offsets() {
                if gone.binary_search(&at).is_err()
                    && let Some(entry) = entry_at(file, at)
                {
                    out.write_all(&line(&entry))?;
                }
            }
            Ok(())
        };
        dir.replace_with(LEDGER_FILE, write, &dir, FileModes::default(), Durability::Power)?;
        self.file = dir.open_append(LEDGER_FILE, FileModes::default())?;
        self.read()
    }

    /// Forgets files that are gone and were routed longer ago than `keep`, by the queue's calendar. Returns their
    /// number. Reads all lines once a day.
    pub fn sweep(&mut self, calendar: &mut Calendar, keep: Duration) -> Result<usize> {
        let day_ms = 24 * 60 * 60 * 1_000;
        let is_recent = self.looked_at.is_some_and(|at| calendar.steady() - at < day_ms);
        if is_recent && self.lines <= self.index.len() + SUPERSEDED_LINES_MAX {
            return Ok(0);
        }
        let mut gone = Vec::new();
        for at in self.index.offsets() {
            let Some(entry) = entry_at(&self.file, at) else { continue };
            let is_present = self.present.contains_key(&key(&entry.path));
            if !is_present && calendar.age(entry.stamp.changed()) > keep {
                gone.push(at);
            }
        }
        let before = self.index.len();
        if !gone.is_empty() || self.lines > before + SUPERSEDED_LINES_MAX {
            self.rewrite(&gone)?;
        }
        self.looked_at = Some(calendar.steady());
        Ok(before - self.index.len())
    }

    /// The digest of what was last routed of a path, read without opening the ledger for writing:
    /// `None` if there is no ledger, `Some(None)` if nothing of that path was routed.
    pub fn last_routed(state: &Path, path: &str) -> Result<Option<Option<Digest>>> {
        let Some(content) = Dir::open(state)?.read(LEDGER_FILE, LEDGER_READ_MAX)? else {
            return Ok(None);
        };
        let lines = content.rsplit(|byte| *byte == b'\n');
        let mut entries = lines.filter_map(|line| serde_json::from_slice::<LedgerEntry>(line).ok());
        Ok(Some(entries.find(|entry| entry.path == path).map(|entry| entry.sha256)))
    }

    /// The version of a path that was routed last.
    pub fn get(&self, path: &str) -> Option<LedgerEntry> {
        self.index.find(&self.file, path)
    }

    /// Begins a listing of the drop boxes: ask [`Ledger::is_listed_routed`] of each file, then call
    /// [`Ledger::end_listing`].
    pub const fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// As [`Ledger::is_routed`], for a file that is listed and whose digests therefore stay in memory.
    pub fn is_listed_routed(&mut self, path: &str, stat: &FileStat) -> bool {
        let listing = self.listing;
        if let Some(present) = self.present_mut(path) {
            present.listing = listing;
            return present.stamp == hash(&RoutedStamp::from(stat));
        }
        false
    }

    /// Forgets the digests of files that were not listed. Their lines on disk stay.
    pub fn end_listing(&mut self) {
        let listing = self.listing;
        self.present.retain(|_, present| present.listing == listing);
        if self.present.capacity() > 4 * self.present.len() {
            self.present.shrink_to_fit();
        }
    }

    /// The digests of a path, from its line on disk if need be.
    fn present_mut(&mut self, path: &str) -> Option<&mut PresentFile> {
        let (key, listing) = (key(path), self.listing);
        if self.present.get(&key).is_none_or(|present| present.path != hash(path)) {
            let entry = self.index.find(&self.file, path)?;
            self.present.insert(key, PresentFile::new(path, &entry.stamp, listing));
        }
        self.present.get_mut(&key)
    }

    pub fn is_routed(&self, path: &str, stat: &FileStat) -> bool {
        let stamp = RoutedStamp::from(stat);
        match self.present.get(&key(path)).filter(|present| present.path == hash(path)) {
            Some(present) => present.stamp == hash(&stamp),
            None => self.get(path).is_some_and(|entry| entry.stamp == stamp),
        }
    }

    /// The entry for the next version of a path; `None` if this content was the last one routed.
    ///
    /// An `ack/` file says that something happened, so each one that lands is its own version.
    /// It may be another file, or the same one written again, with any content.
    pub fn next_version(&self, path: &str, stat: &FileStat, content: &[u8]) -> Option<LedgerEntry> {
        let sha256 = Digest::of(content);
        let last = self.get(path);
        let is_event = path.starts_with(ACK_PREFIX);
        let is_same = |entry: &LedgerEntry| {
            entry.sha256 == sha256
                && (!is_event || entry.stamp.is_same_writing(&RoutedStamp::from(stat)))
        };
        if last.as_ref().is_some_and(is_same) {
            return None;
        }
        let version = last.map_or(0, |entry| entry.version) + 1;
        Some(LedgerEntry {
            path: path.to_owned(),
            version,
            sha256,
            stamp: stat.into(),
            lease: None,
        })
    }

    /// Whether a routed file was written again, with the content of then. The entry to append says so.
    pub fn put_again(&self, path: &str, stat: &FileStat) -> Option<LedgerEntry> {
        let stamp = RoutedStamp::from(stat);
        let last = self.get(path).filter(|last| !last.stamp.is_same_writing(&stamp))?;
        Some(LedgerEntry { stamp, ..last })
    }

    /// Notes that a file was touched but not changed, so that it is not read again.
    pub fn refresh(&mut self, path: &str, stat: &FileStat) {
        if let Some(present) = self.present_mut(path) {
            present.stamp = hash(&RoutedStamp::from(stat));
        }
    }

    /// Writes down that these versions were routed.
    ///
    /// # Errors
    /// The disk failed; they will be routed again, under the same ids.
    pub fn append(&mut self, routed: Vec<LedgerEntry>) -> Result<()> {
        if routed.is_empty() {
            return Ok(());
        }
        let mut text: Vec<u8> = if self.torn { vec![b'\n'] } else { Vec::new() };
        let mut begins = Vec::with_capacity(routed.len());
        for entry in &routed {
            begins.push(self.end + text.len() as u64);
            text.extend(line(entry));
        }
        if let Err(e) = self.file.write_all(&text) {
            self.torn = true;
            self.end = self.file.metadata().map_or(self.end, |data| data.len());
            return Err(Error::io("append to", &self.path, e));
        }
        self.torn = false;
        self.end += text.len() as u64;
        self.lines += routed.len();
        for (entry, at) in routed.into_iter().zip(begins) {
            self.index.insert(&self.file, &entry.path, at);
            let present = PresentFile::new(&entry.path, &entry.stamp, self.listing);
            self.present.insert(key(&entry.path), present);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Ledger {
    /// Lets it take no line any more, as a full disk does.
    pub(crate) fn fill_disk(&mut self) {
        self.file = std::fs::OpenOptions::new().read(true).open(&self.path).unwrap();
    }
}

impl LedgerEntry {
    /// The id of the message for one recipient: the same file, version and content give the same.
    pub fn message_id(&self, recipient: &Name) -> MessageId {
        self.id_for(recipient.as_str())
    }

    /// The id of this version of the file itself.
    pub fn version_id(&self) -> MessageId {
        self.id_for("")
    }

    fn id_for(&self, recipient: &str) -> MessageId {
        let version = self.version.to_le_bytes();
        let sha256 = self.sha256.to_string();
        let digest = Digest::of_parts(&[
            self.path.as_bytes(),
            &version,
            sha256.as_bytes(),
            recipient.as_bytes(),
        ]);
        let id = format!("r-{}", digest.short(ID_DIGITS));
        MessageId::new(id).unwrap_or_else(|_| MessageId::generate())
    }
}

fn line(entry: &LedgerEntry) -> Vec<u8> {
    let mut line = serde_json::to_vec(entry).unwrap_or_default();
    line.push(b'\n');
    line
}
