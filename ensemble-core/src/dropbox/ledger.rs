//! What was routed already: one line for each version of each drop-box file, appended once its
//! messages are safe in their mailboxes.
//!
//! The line is written last, so a crash before it leads to the same messages being published again
//! under the same ids, which stores nothing. The ids count the versions of a path. So a
//! file that is rewritten with earlier content is a new version, while one that is deleted and
//! restored as it was is not. Of an `ack/` file every one that lands is a version: it is an event.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable::{Dir, Durability, FileStat, Modes};
use crate::env::Lease;
use crate::message::{Digest, MessageId, Name};
use crate::{Error, Result};

/// The file below `.ensemble/`.
const LEDGER_FILE: &str = "routed.ndjson";
/// The largest ledger that is read, in bytes.
const LEDGER_BYTES_MAX: usize = 1 << 30;
/// A ledger with more than this many superseded lines is rewritten at start.
const SUPERSEDED_LINES_MAX: usize = 10_000;
/// How the paths of the files begin that acknowledge a task.
const ACK_PREFIX: &str = "ack/";
/// How many hexadecimal digits of a digest make an id.
const ID_DIGITS: usize = 40;

/// The last version of a path that was routed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// The file, below the queue.
    pub path: String,
    /// How many versions of it were routed.
    pub version: u64,
    /// Digest of the last one.
    pub sha256: Digest,
    /// Size, device, inode, modification and change time of the file when it was routed: an
    /// unchanged file needs no second reading.
    pub stamp: Stamp,
    /// For an `ack/` file: what was received for its writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<AckedLease>,
}

/// Which state of which file was routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp(u64, u64, u64, i128, i128);

impl Stamp {
    /// Whether nothing was written in between. The change time is left out: it also moves with a link or
    /// a change of permissions.
    fn is_same_writing(&self, other: &Self) -> bool {
        (self.0, self.1, self.2, self.3) == (other.0, other.1, other.2, other.3)
    }
}

impl From<&FileStat> for Stamp {
    fn from(stat: &FileStat) -> Self {
        Self(stat.bytes, stat.id.device, stat.id.inode, stat.modified_ns, stat.changed_ns)
    }
}

/// A lease that an `ack/` file led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckedLease {
    mailbox: Name,
    id: MessageId,
    holder: Name,
    epoch: u64,
}

impl From<&Lease> for AckedLease {
    fn from(lease: &Lease) -> Self {
        Self {
            mailbox: lease.mailbox.clone(),
            id: lease.id.clone(),
            holder: lease.holder.clone(),
            epoch: lease.epoch,
        }
    }
}

impl From<&AckedLease> for Lease {
    fn from(lease: &AckedLease) -> Self {
        Self {
            mailbox: lease.mailbox.clone(),
            id: lease.id.clone(),
            holder: lease.holder.clone(),
            epoch: lease.epoch,
        }
    }
}

/// The ledger, in memory and on disk.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    path: std::path::PathBuf,
    entries: HashMap<String, Entry>,
    /// The file ends within a line: the disk was full.
    torn: bool,
}

impl Ledger {
    /// Reads the ledger in a state directory (`.ensemble/`) and creates it if needed. Lines that
    /// cannot be read (a torn one after a crash) are passed over: their files are routed again,
    /// under the same ids.
    ///
    /// # Errors
    /// The directory or the file cannot be read or written.
    pub fn open(state: &Path) -> Result<Self> {
        let dir = Dir::open(state)?;
        let mut entries = HashMap::new();
        let mut lines = 0;
        let mut torn = false;
        if let Some(content) = dir.read(LEDGER_FILE, LEDGER_BYTES_MAX)? {
            torn = content.last().is_some_and(|byte| *byte != b'\n');
            for line in content.split(|byte| *byte == b'\n') {
                lines += 1;
                if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
                    entries.insert(entry.path.clone(), entry);
                }
            }
        }
        if lines > entries.len() + SUPERSEDED_LINES_MAX {
            let all: Vec<u8> = entries.values().flat_map(line).collect();
            dir.replace(LEDGER_FILE, &all, &dir, Modes::default(), Durability::Power)?;
            torn = false;
        }
        let file = dir.open_append(LEDGER_FILE, Modes::default())?;
        Ok(Self { file, path: state.join(LEDGER_FILE), entries, torn })
    }

    /// The digest of what was last routed of a path, read without opening the ledger for writing:
    /// `None` if there is no ledger, `Some(None)` if nothing of that path was routed.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn last_routed(state: &Path, path: &str) -> Result<Option<Option<Digest>>> {
        let Some(content) = Dir::open(state)?.read(LEDGER_FILE, LEDGER_BYTES_MAX)? else {
            return Ok(None);
        };
        let lines = content.rsplit(|byte| *byte == b'\n');
        let mut entries = lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
        Ok(Some(entries.find(|entry| entry.path == path).map(|entry| entry.sha256)))
    }

    /// What was last routed of a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Whether this very state of the file was routed.
    #[must_use]
    pub fn is_routed(&self, path: &str, stat: &FileStat) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.stamp == Stamp::from(stat))
    }

    /// The entry for the next version of a path; `None` if this content was the last one routed.
    ///
    /// An `ack/` file says that something happened, so each one that lands is a version of its own.
    /// It may be another file, or the same one written again, with any content.
    #[must_use]
    pub fn next_version(&self, path: &str, stat: &FileStat, content: &[u8]) -> Option<Entry> {
        let sha256 = Digest::of(content);
        let last = self.entries.get(path);
        let is_event = path.starts_with(ACK_PREFIX);
        let is_same = |entry: &Entry| {
            entry.sha256 == sha256 && (!is_event || entry.stamp.is_same_writing(&Stamp::from(stat)))
        };
        if last.is_some_and(is_same) {
            return None;
        }
        let version = last.map_or(0, |entry| entry.version) + 1;
        Some(Entry { path: path.to_owned(), version, sha256, stamp: stat.into(), lease: None })
    }

    /// Whether a routed file was written again, with the content of then. The entry to append says so.
    #[must_use]
    pub fn put_again(&self, path: &str, stat: &FileStat) -> Option<Entry> {
        let stamp = Stamp::from(stat);
        let last = self.entries.get(path).filter(|last| !last.stamp.is_same_writing(&stamp))?;
        Some(Entry { stamp, ..last.clone() })
    }

    /// Notes that a file was touched but not changed, so that it is not read again.
    pub fn refresh(&mut self, path: &str, stat: &FileStat) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.stamp = stat.into();
        }
    }

    /// Writes down that these versions were routed.
    ///
    /// # Errors
    /// The disk failed; they will be routed again, under the same ids.
    pub fn append(&mut self, routed: Vec<Entry>) -> Result<()> {
        if routed.is_empty() {
            return Ok(());
        }
        let begin: &[u8] = if self.torn { b"\n" } else { b"" };
        let lines: Vec<u8> = begin.iter().copied().chain(routed.iter().flat_map(line)).collect();
        let written = self.file.write_all(&lines);
        self.torn = written.is_err();
        written.map_err(|e| Error::io("append to", &self.path, e))?;
        for entry in routed {
            self.entries.insert(entry.path.clone(), entry);
        }
        Ok(())
    }
}

impl Entry {
    /// The id of the message for one recipient: the same file, version and content give the same.
    #[must_use]
    pub fn message_id(&self, recipient: &Name) -> MessageId {
        let version = self.version.to_le_bytes();
        let sha256 = self.sha256.to_string();
        let digest = Digest::of_parts(&[
            self.path.as_bytes(),
            &version,
            sha256.as_bytes(),
            recipient.as_str().as_bytes(),
        ]);
        let id = format!("r-{}", digest.short(ID_DIGITS));
        MessageId::new(id).unwrap_or_else(|_| MessageId::generate())
    }
}

fn line(entry: &Entry) -> Vec<u8> {
    let mut line = serde_json::to_vec(entry).unwrap_or_default();
    line.push(b'\n');
    line
}
