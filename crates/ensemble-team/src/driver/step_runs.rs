//! Notes of `ensemble step run`, by which others see that one was killed.
//!
//! ```text
//! step-runs/DIGEST        the task, until all of its steps are done or its run ends as it was asked to
//! step-runs/DIGEST.lock   held while it runs
//! ```
//!
//! Both are in the state directory.

use std::path::{Path, PathBuf};

use super::dispatch::LOOKERS_PATIENCE;
use ensemble_core::durable::{Dir, Durability, FileLock, FileModes, write_document};
use ensemble_core::message::Digest;
use ensemble_core::{Error, Result, allow_missing};

const DIRECTORY: &str = "step-runs";
const TASK_BYTES_MAX: usize = 4096;
const DIGITS: usize = 24;

#[derive(Debug)]
pub struct RunNote {
    notes: Dir,
    file: String,
    /// Missing where another run of the task has it, whose note this is.
    lock: Option<FileLock>,
}

impl RunNote {
    pub fn begin_run(state: &Path, task: &str) -> Result<Self> {
        let notes = Dir::open(state)?.ensure_child(DIRECTORY, FileModes::default())?;
        let file = file_name(task);
        let lock = match FileLock::acquire(&lock_path(&notes, &file), LOOKERS_PATIENCE) {
            Err(Error::Locked { .. }) => None,
            taken => Some(taken?),
        };
        write_document(&notes.path().join(&file), task.as_bytes(), Durability::Process)?;
        Ok(Self { notes, file, lock })
    }

    /// No other run is needed, or its caller knows that one is.
    pub fn end_run(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), |_| self.notes.remove(&self.file))
    }
}

/// The tasks whose runs were killed or have failed.
pub fn list_lost_runs(state: &Path) -> Result<Vec<String>> {
    let notes = Dir::open(state).and_then(|dir| dir.open_child(DIRECTORY));
    let Some(notes) = allow_missing(notes)? else { return Ok(Vec::new()) };
    let mut tasks = Vec::new();
    for file in notes.names()? {
        let content = notes.read(&file, TASK_BYTES_MAX)?.unwrap_or_default();
        let task = String::from_utf8_lossy(&content).into_owned();
        if file_name(&task) == file && !FileLock::is_held(&lock_path(&notes, &file))? {
            tasks.push(task);
        }
    }
    Ok(tasks)
}

fn file_name(task: &str) -> String {
    Digest::of(task.as_bytes()).short(DIGITS)
}

fn lock_path(notes: &Dir, file: &str) -> PathBuf {
    notes.path().join(format!("{file}.lock"))
}
