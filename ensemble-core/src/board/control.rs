//! The files beside the board by which a person stops the team: PAUSE, CHECKPOINT, ABORT (seed 001's
//! siblings).
//!
//! A file that is there counts, whatever it says. Its first line may be a time and the rest a reason;
//! without a time (`touch PAUSE`) the file's own counts. A file that waits too long for its person is
//! *stale*: after 30 minutes and 2 hours, a checkpoint also after 8 hours.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::durable::{Dir, Durability, write_document};
use crate::message::Timestamp;
use crate::{Error, Result};

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ControlFile {
    /// Nobody gets anything new to do until it is removed.
    Pause,
    /// As PAUSE; and a person must look at the sprint.
    Checkpoint,
    /// Everybody stops.
    Abort,
}

/// How long it has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Staleness {
    /// Not long.
    Fresh,
    /// Half an hour.
    Reminder,
    /// Two hours.
    Overdue,
    /// Eight hours; a checkpoint only.
    Forgotten,
}

/// When a file becomes stale, in seconds, and more so.
const STALE_SECONDS: [(u64, Staleness); 3] = [
    (30 * 60, Staleness::Reminder),
    (2 * 3_600, Staleness::Overdue),
    (8 * 3_600, Staleness::Forgotten),
];
/// The longest such file, in bytes.
const BYTES_MAX: usize = 64 * 1024;

impl ControlFile {
    /// All, the strongest last.
    pub const ALL: [Self; 3] = [Self::Pause, Self::Checkpoint, Self::Abort];

    /// The file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "PAUSE",
            Self::Checkpoint => "CHECKPOINT",
            Self::Abort => "ABORT",
        }
    }
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Which.
    pub file: ControlFile,
    /// Since when.
    pub since: Timestamp,
    /// Why, if it says so.
    pub reason: String,
}

impl Control {
    /// The files in the board's directory, the strongest last. One that cannot be read counts, too:
    /// when in doubt, nobody begins anything.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        let dir = Dir::open(directory)?;
        let mut found = Vec::new();
        for file in ControlFile::ALL {
            if let Some(stat) = dir.stat(file.name())? {
                let millis = i64::try_from(stat.modified_ns / 1_000_000).unwrap_or(i64::MAX);
                let content = dir.read(file.name(), BYTES_MAX).ok().flatten().unwrap_or_default();
                let text = String::from_utf8_lossy(&content);
                found.push(Self::parse(file, &text, Timestamp::from_unix_millis(millis)));
            }
        }
        Ok(found)
    }

    /// What a file says that was changed last at `modified`.
    #[must_use]
    pub fn parse(file: ControlFile, text: &str, modified: Timestamp) -> Self {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        match first.trim().parse::<Timestamp>() {
            Ok(since) => Self { file, since, reason: rest.trim().to_owned() },
            Err(_) => Self { file, since: modified, reason: text.trim().to_owned() },
        }
    }

    /// How long it has waited at `now`. A time in the future has not.
    #[must_use]
    pub fn staleness(&self, now: Timestamp) -> Staleness {
        let age = now.since(self.since);
        let levels = STALE_SECONDS.iter().filter(|(seconds, level)| {
            age >= Duration::from_secs(*seconds)
                && (*level < Staleness::Forgotten || self.file == ControlFile::Checkpoint)
        });
        levels.map(|(_, level)| *level).max().unwrap_or(Staleness::Fresh)
    }

    /// Puts a file down, unless one is there: whoever came first has given the reason.
    ///
    /// # Errors
    /// The disk failed.
    pub fn put(directory: &Path, file: ControlFile, now: Timestamp, reason: &str) -> Result<bool> {
        if Dir::open(directory)?.stat(file.name())?.is_some() {
            return Ok(false);
        }
        let text = format!("{now}\n{}\n", reason.trim());
        if text.len() > BYTES_MAX {
            let (what, limit) = (file.name().to_owned(), BYTES_MAX as u64);
            return Err(Error::TooLarge { what, bytes: text.len() as u64, limit });
        }
        write_document(&directory.join(file.name()), text.as_bytes(), Durability::Process)?;
        Ok(true)
    }

    /// Removes a file: a person has seen it.
    ///
    /// # Errors
    /// The disk failed.
    pub fn remove(directory: &Path, file: ControlFile) -> Result<()> {
        Dir::open(directory)?.remove(file.name())
    }

    /// What stops anybody from beginning something, if anything does.
    #[must_use]
    pub fn gate(found: &[Self]) -> Option<&Self> {
        found.last()
    }
}
