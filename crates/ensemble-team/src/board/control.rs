//! Control files beside the board with which a person stops the team: PAUSE, CHECKPOINT, ABORT
//! (seed 001's siblings).
//!
//! Only the existence of a control file counts. Its first line may be a time and the rest a reason. Without a time
//! (`touch PAUSE`) the file's modification time counts. A file that waits too long for a person is *stale*: after 30
//! minutes and 2 hours, and a checkpoint again after 8 hours.
//!
//! The sprint follows the files, whichever program made them ([`LockedBoard::follow`]):
//!
//! | file | a sprint that is | becomes |
//! |---|---|---|
//! | CHECKPOINT exists | IN_PROGRESS | CHECKPOINT |
//! | neither CHECKPOINT nor ABORT exists | CHECKPOINT | IN_PROGRESS |
//! | ABORT exists | IN_PROGRESS, CHECKPOINT | ABORTED, for good |
//!
//! PAUSE changes no sprint: the work that has begun continues.
//!
//! A team on servers has these files there, for all hosts ([`SharedFiles`], `control/PAUSE`). A file beside the board of
//! one host stops that host only. Each host keeps a copy ([`super::SharedCopy`]) for readers without a connection.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::locked::LockedBoard;
use super::shared_lock::{is_missing, put_shared};
use super::state::State;
use crate::proto::goal::{SprintEvent, SprintState, next_sprint};
use ensemble_core::document::SharedFiles;
use ensemble_core::durable::{Dir, Durability, write_document};
use ensemble_core::message::Timestamp;
use ensemble_core::{Error, Result, allow_misplaced};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ControlFile {
    /// No agent gets new work until the file is removed.
    Pause,
    /// As PAUSE; in addition, a person must review the sprint.
    Checkpoint,
    /// All agents stop.
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Staleness {
    Fresh,
    Reminder,
    Overdue,
    /// At least eight hours; a checkpoint only.
    Forgotten,
}

/// Ages in seconds at which a file reaches each stage.
const STALE_SECONDS: [(u64, Staleness); 3] = [
    (30 * 60, Staleness::Reminder),
    (2 * 3_600, Staleness::Overdue),
    (8 * 3_600, Staleness::Forgotten),
];
const BYTES_MAX: usize = 64 * 1024;
/// Directory of the control files that the hosts of a team share.
pub const CONTROLS: &str = "control";

impl ControlFile {
    /// All kinds, the strongest last.
    pub const ALL: [Self; 3] = [Self::Pause, Self::Checkpoint, Self::Abort];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "PAUSE",
            Self::Checkpoint => "CHECKPOINT",
            Self::Abort => "ABORT",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveControl {
    pub file: ControlFile,
    pub since: Timestamp,
    /// The reason that the file states, or empty.
    pub reason: String,
}

impl ActiveControl {
    /// Its name, and since when it counts: `PAUSE since 2026-01-15 09:30 UTC`.
    #[must_use]
    pub fn title(&self) -> String {
        let since = self.since.to_string();
        format!("{} since {} {} UTC", self.file.name(), &since[..10], &since[11..16])
    }

    /// The control files in the board's directory, the strongest last. A file that cannot be read
    /// counts, too: in doubt, no agent starts new work. A directory that does not exist has none.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        let Some(dir) = allow_misplaced(Dir::open(directory))? else { return Ok(Vec::new()) };
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

    /// Parses a control file that was last changed at `modified`.
    pub fn parse(file: ControlFile, text: &str, modified: Timestamp) -> Self {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        match first.trim().parse::<Timestamp>() {
            Ok(since) => Self { file, since, reason: rest.trim().to_owned() },
            Err(_) => Self { file, since: modified, reason: text.trim().to_owned() },
        }
    }

    /// The file's stage at `now`. A file with a time in the future is fresh.
    pub fn staleness(&self, now: Timestamp) -> Staleness {
        let age = now.since(self.since);
        let levels = STALE_SECONDS.iter().filter(|(seconds, level)| {
            age >= Duration::from_secs(*seconds)
                && (*level < Staleness::Forgotten || self.file == ControlFile::Checkpoint)
        });
        levels.map(|(_, level)| *level).max().unwrap_or(Staleness::Fresh)
    }

    /// Writes a control file unless it exists: the first writer gives the reason.
    pub fn put(directory: &Path, file: ControlFile, now: Timestamp, reason: &str) -> Result<bool> {
        if Dir::open(directory)?.stat(file.name())?.is_some() {
            return Ok(false);
        }
        let (path, text) = (directory.join(file.name()), written(file, now, reason)?);
        match write_document(&path, text.as_bytes(), Durability::Process) {
            // A full disk still has room for an empty file, which stops the team as well.
            Err(error) if error.io_kind() == Some(ErrorKind::StorageFull) => {
                Dir::open(directory)?.begin_file(file.name()).map_err(|_| error)?;
            }
            other => other?,
        }
        Ok(true)
    }

    /// Removes a control file after a person has seen it.
    pub fn remove(directory: &Path, file: ControlFile) -> Result<()> {
        Dir::open(directory)?.remove(file.name())
    }

    /// The control files of all hosts, the strongest last.
    pub fn read_shared(files: &dyn SharedFiles) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for (name, content) in files.list_files(CONTROLS)? {
            if let Some(file) = ControlFile::ALL.into_iter().find(|file| file.name() == name) {
                let text = String::from_utf8_lossy(&content.content);
                let at = content.at.unwrap_or_else(|| Timestamp::from_unix_millis(0));
                found.push(Self::parse(file, &text, at));
            }
        }
        found.sort_by_key(|control| control.file);
        Ok(found)
    }

    /// Writes a control file for all hosts unless it exists: the first writer gives the reason.
    pub fn put_shared(
        files: &dyn SharedFiles,
        file: ControlFile,
        now: Timestamp,
        reason: &str,
    ) -> Result<bool> {
        let (path, text) = (shared_path(file), written(file, now, reason)?);
        let found = files.read_file(&path)?;
        if !is_missing(&found) {
            return Ok(false);
        }
        // Another writer that was quicker has put it.
        Ok(files.write_file(&path, text.as_bytes(), "", found.revision)?.is_some())
    }

    pub fn remove_shared(files: &dyn SharedFiles, file: ControlFile) -> Result<()> {
        put_shared(files, &shared_path(file), &[])
    }

    /// Adds control files of another place, unless the same kind already exists. The strongest stays last.
    pub fn merge(found: &mut Vec<Self>, more: Vec<Self>) {
        for control in more {
            if found.iter().all(|known| known.file != control.file) {
                found.push(control);
            }
        }
        found.sort_by_key(|control| control.file);
    }

    pub fn gate(found: &[Self]) -> Option<&Self> {
        found.last()
    }
}

fn shared_path(file: ControlFile) -> String {
    format!("{CONTROLS}/{}", file.name())
}

fn written(file: ControlFile, now: Timestamp, reason: &str) -> Result<String> {
    let text = format!("{now}\n{}\n", reason.trim());
    if text.len() > BYTES_MAX {
        let (what, limit) = (file.name().to_owned(), BYTES_MAX as u64);
        return Err(Error::TooLarge { what, bytes: text.len() as u64, limit });
    }
    Ok(text)
}

/// The sprint's step that the files ask for, if it is not taken yet.
pub fn sprint_step(state: &State, found: &[ActiveControl]) -> Option<SprintEvent> {
    let status = state.sprint.as_ref()?.status.unwrap_or(SprintState::InProgress);
    let has = |file: ControlFile| found.iter().any(|control| control.file == file);
    match status {
        SprintState::InProgress | SprintState::Checkpoint if has(ControlFile::Abort) => {
            Some(SprintEvent::Abort)
        }
        SprintState::InProgress if has(ControlFile::Checkpoint) => Some(SprintEvent::Checkpoint),
        SprintState::Checkpoint if !has(ControlFile::Checkpoint) => Some(SprintEvent::Resume),
        _ => None,
    }
}

impl LockedBoard<'_> {
    /// Takes the sprint's step that goes with a control file, if the sprint is where it can be taken.
    pub fn step_sprint(&mut self, event: SprintEvent) -> Result<()> {
        let Some(sprint) = &self.state().sprint else { return Ok(()) };
        let status = sprint.status.unwrap_or(SprintState::InProgress);
        if next_sprint(status, event).is_ok() {
            self.sprint_event(event)?;
            self.note_metrics(None)?;
        }
        Ok(())
    }

    pub fn follow(&mut self) -> Result<()> {
        let found = self.board().controls()?;
        match sprint_step(self.state(), &found) {
            Some(event) => self.step_sprint(event),
            None => Ok(()),
        }
    }
}
