//! `state.yaml.last`: which content Ensemble wrote last, and whether the log knows of it.
//!
//! ```text
//! .last says              the board is     so whoever has the lock
//! unlogged, this digest   this             records it (the writer died before it could)
//! unlogged, this digest   that of before   drops it: it was never written
//! unlogged, this digest   another          records board.edited
//! logged, this digest     this             has nothing to do
//! logged, this digest     another          records board.edited: somebody else wrote it
//! nothing                 any              begins with what is there
//! ```
//!
//! A writer that dies after recording and before saying so makes the next one record the same
//! revision again; readers of the log take one of them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::BoardOptions;
use crate::durable::{Dir, Durability, Modes};
use crate::message::Digest;
use crate::{Error, Result};

/// How the file beside the board is named.
const ENDING: &str = ".last";
/// The largest such file, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// What stands in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) revision: u64,
    sha256: String,
    /// What the board had been before.
    before: String,
    is_logged: bool,
    actor: String,
    data: Value,
}

impl Last {
    /// For content that is about to be written.
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
        // One that cannot be read is as good as none: the board is the truth.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(super) fn write(&self, board: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::malformed(board, "last", error.to_string()))?;
        let (dir, name) = place(board)?;
        // Whoever has the board's lock is the only one who writes it, and what a dead one left goes.
        let tmp = format!(".{name}.tmp");
        dir.remove(&tmp)?;
        // A power cut may lose it; it may not lose the board.
        dir.replace_by(&name, &text, &dir, &tmp, Modes::default(), Durability::Process)
    }

    /// Records it and says so.
    pub(super) fn log(&mut self, board: &Path, options: &BoardOptions) -> Result<()> {
        options.recorder.record("board.written", &self.actor, self.data.clone());
        self.is_logged = true;
        self.write(board)
    }

    /// Makes up for what a writer could not do any more, and notices what others wrote.
    pub(super) fn recover(board: &Path, content: &str, options: &BoardOptions) -> Result<()> {
        let now = digest(content);
        match Self::read(board)? {
            Some(mut last) if last.sha256 == now => {
                if last.is_logged {
                    Ok(())
                } else {
                    last.log(board, options)
                }
            }
            Some(last) if !last.is_logged && last.before == now => {
                Self::known(last.revision.saturating_sub(1), now, options).write(board)
            }
            Some(Self { revision, sha256: before, .. }) => {
                let data = json!({ "revision": revision, "sha256": now, "before": before });
                options.recorder.record("board.edited", &options.actor, data);
                Self::known(revision, now, options).write(board)
            }
            None => Self::known(0, now, options).write(board),
        }
    }

    /// Whether the log does not know of this content: since its writer died (true), or since
    /// somebody else wrote it (false). `None` if it does, or if nothing is known.
    pub(super) fn unknown_to_log(board: &Path, content: &str) -> Result<Option<bool>> {
        let now = digest(content);
        Ok(match Self::read(board)? {
            Some(last) if last.sha256 == now => (!last.is_logged).then_some(true),
            Some(last) if !last.is_logged && last.before == now => None,
            Some(_) => Some(false),
            None => None,
        })
    }

    /// Content of which the log need not be told any more.
    fn known(revision: u64, sha256: String, options: &BoardOptions) -> Self {
        let (before, actor) = (sha256.clone(), options.actor.clone());
        Self { revision, sha256, before, is_logged: true, actor, data: json!({}) }
    }
}

fn place(board: &Path) -> Result<(Dir, String)> {
    let parent = board.parent().unwrap_or_else(|| Path::new("."));
    Ok((Dir::open(parent)?, format!("{}{ENDING}", super::file_name(board))))
}

fn digest(content: &str) -> String {
    Digest::of(content.as_bytes()).to_string()
}
