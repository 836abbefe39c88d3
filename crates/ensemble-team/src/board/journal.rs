//! `state.yaml.last`: digest of the content that Ensemble wrote last, and whether the log has a
//! record of it.
//!
//! ```text
//! .last says              the board is     the lock holder
//! unlogged, this digest   this             records it (the writer died before that)
//! unlogged, this digest   the previous one drops it: it was never written
//! unlogged, this digest   another          records board.edited
//! logged, this digest     this             does nothing
//! logged, this digest     another          records board.edited: another program wrote it
//! nothing                 any              starts from the current content
//! ```
//!
//! A writer may die after it records a revision and before it marks the record here. The next
//! writer then records the same revision again, and readers of the log keep one of the records.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::BoardOptions;
use ensemble_core::durable::{Dir, Durability, FileModes};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Digest;
use ensemble_core::{Error, Result};

const ENDING: &str = ".last";
const BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    pub(super) revision: u64,
    pub(super) sha256: String,
    /// Digest of the board before the write.
    before: String,
    is_logged: bool,
    actor: String,
    data: Value,
}

impl JournalEntry {
    pub(super) fn new(
        revision: u64,
        (before, content): (&str, &str),
        actor: &str,
        mut data: Value,
    ) -> Self {
        let (before, sha256) = (digest(before), digest(content));
        data["revision"] = revision.into();
        data["sha256"] = sha256.clone().into();
        data["bytes"] = content.len().into();
        Self { revision, sha256, before, is_logged: false, actor: actor.to_owned(), data }
    }

    fn read(board: &Path) -> Result<Option<Self>> {
        let (dir, name) = place(board)?;
        let bytes = dir.read(&name, BYTES_MAX)?;
        // Treat an unreadable file as missing: the board is the source of truth.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(super) fn write(&self, board: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::malformed(board, "last", error.to_string()))?;
        let (dir, name) = place(board)?;
        // Only the holder of the board's lock writes this file, so a temporary file left by a dead
        // writer is overwritten.
        let tmp = format!(".{name}.tmp");
        dir.remove(&tmp)?;
        // A power cut may lose this file, but not the board.
        dir.replace_by(&name, &text, &dir, &tmp, FileModes::default(), Durability::Process)
    }

    pub(super) fn record(&self, recorder: &dyn Recorder) {
        recorder.record(types::BOARD_WRITTEN, &self.actor, self.data.clone());
    }

    pub(super) fn log(&mut self, board: &Path, options: &BoardOptions) -> Result<()> {
        self.record(&*options.recorder);
        self.is_logged = true;
        self.write(board)
    }

    /// Records what a dead writer could not, and detects edits by other programs.
    pub(super) fn recover(board: &Path, content: &str, options: &BoardOptions) -> Result<()> {
        let now = digest(content);
        match Self::read(board)? {
            Some(last) if last.sha256 == now && last.is_logged => Ok(()),
            Some(mut last) if last.sha256 == now => last.log(board, options),
            Some(last) if !last.is_logged && last.before == now => {
                Self::known(last.revision.saturating_sub(1), now, options).write(board)
            }
            Some(Self { revision, sha256: before, .. }) => {
                let data = json!({ "revision": revision, "sha256": now, "before": before });
                options.recorder.record(types::BOARD_EDITED, &options.actor, data);
                Self::known(revision, now, options).write(board)
            }
            None => Self::known(0, now, options).write(board),
        }
    }

    /// Whether the log lacks a record of this content: because its writer died (true), or because
    /// another program wrote it (false). `None` if the log has a record, or if there is no journal.
    pub(super) fn unknown_to_log(board: &Path, content: &str) -> Result<Option<bool>> {
        let now = digest(content);
        Ok(match Self::read(board)? {
            Some(last) if last.sha256 == now => (!last.is_logged).then_some(true),
            Some(last) if !last.is_logged && last.before == now => None,
            Some(_) => Some(false),
            None => None,
        })
    }

    /// An entry for content that is already in the log.
    fn known(revision: u64, sha256: String, options: &BoardOptions) -> Self {
        let (before, actor) = (sha256.clone(), options.actor.clone());
        Self { revision, sha256, before, is_logged: true, actor, data: json!({}) }
    }
}

fn place(board: &Path) -> Result<(Dir, String)> {
    let parent = board.parent().unwrap_or_else(|| Path::new("."));
    Ok((Dir::open(parent)?, format!("{}{ENDING}", super::file_name(board))))
}

pub(super) fn digest(content: &str) -> String {
    Digest::of(content.as_bytes()).to_string()
}
