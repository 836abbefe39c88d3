//! Drop boxes: `reports/`, `tasks/`, `ack/` and those of the configuration, where any program puts files.
//!
//! [`BoxSpec`] is one box, [`Routes`] decides which file goes to whom, and [`Ledger`] has what was routed already.
//! [`DropBox`] reads a file of an unknown writer, and [`OpenBoxes`] says when it is complete. The face's
//! [`Watcher`](crate::Watcher) and `ensemble-watch` put them together.

mod file_message;
pub mod file_writers;
mod index;
mod ledger;
mod open_boxes;
mod route;
mod spec;

use std::path::Path;

use crate::aside::{AsideFile, put_aside};
use crate::durable::{self, Dir, FileModes, FileStat, MoveOutcome};
use crate::message::{is_temporary_file, written, yaml};
use crate::spool::mailbox::refuse_open_to_all;
use crate::{Error, Result};

pub use crate::aside::REJECTED;
pub use file_message::message_source;
pub use ledger::{Ledger, LedgerEntry, RoutedStamp};
pub use open_boxes::{
    BoxFinding, CompleteFile, FOUND_QUIET, IN_PLACE_QUIET, INCOMPLETE_PATIENCE, OpenBoxes,
    RejectedFile, UnfitFile,
};
pub use route::{PathPattern, RouteDestination, RouteRule, Routes, filled};
pub use spec::{BoxSpec, DROP_BOXES};

pub const STATE_DIRECTORY: &str = ".ensemble";
/// The lock file in the state directory that the only watcher of a queue holds.
pub const WATCH_LOCK: &str = "watch.lock";
/// Why a file with such a name is set aside.
pub const STRANGE_NAME: &str = "its name is not UTF-8: rename the file";
/// The line that ends a complete YAML file.
const END_MARK: &[u8] = b"\n...";
#[derive(Debug)]
pub struct DropBox {
    pub spec: BoxSpec,
    dir: Dir,
}

impl DropBox {
    /// Opens a drop box of a queue and creates it if needed. A link in its place is refused.
    pub fn open(queue: &Path, spec: &BoxSpec) -> Result<Self> {
        let queue = Dir::open(queue)?;
        let dir = match spec.directory() {
            Some(directory) => queue.ensure_child(directory, FileModes::default())?,
            None => queue,
        };
        if let Some(stat) = durable::stat_path(dir.path())? {
            refuse_open_to_all(dir.path(), stat.mode, FileModes::default())?;
        }
        Ok(Self { spec: spec.clone(), dir })
    }

    pub const fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The path of a file in routes, messages and records: the box, then the file.
    pub fn path_of(&self, file: &str) -> String {
        format!("{}/{file}", self.spec.name())
    }

    /// Whether a file is examined: it belongs to the box, and is not a temporary one.
    pub fn takes(&self, file: &str) -> bool {
        self.spec.takes(file) && !is_temporary_file(file)
    }

    pub fn read(&self, file: &str, bytes_max: usize) -> Result<Option<(FileStat, Vec<u8>)>> {
        self.dir.read_with_stat(file, bytes_max)
    }

    /// Whether a file says itself that it is complete: its last line is the YAML end mark.
    pub fn has_end_mark(content: &[u8]) -> bool {
        content.trim_ascii_end().ends_with(END_MARK)
    }

    /// Reads content as YAML, only to see whether it can be.
    pub fn parse(&self, file: &str, content: &[u8]) -> Result<serde_json::Value> {
        let path = self.path_of(file);
        let text = yaml::decode_text(content, path.as_ref())?;
        let value: serde_json::Value = yaml::parse(&written::document(text), path.as_ref())?;
        let wrong = match &value {
            serde_json::Value::Object(_) => return Ok(value),
            serde_json::Value::Null => "is empty",
            _ => "is not a mapping of fields: write a line `name: value` for each",
        };
        Err(Error::malformed(&path, "file", wrong))
    }

    /// Puts aside all files whose names are not UTF-8, which no route can match. Returns the old path of each, in
    /// printable form, and the new one. A directory is left where it is, and so is everything where the box takes
    /// some files only.
    pub fn reject_strange(&self, queue: &Path) -> Result<Vec<(String, String)>> {
        if !self.spec.files().is_any() {
            return Ok(Vec::new());
        }
        let names = self.dir.strange_names()?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let queue = Dir::open(queue)?;
        let mut rejected = Vec::new();
        for name in names {
            if self.dir.path().join(&name).symlink_metadata().is_ok_and(|it| it.is_dir()) {
                continue;
            }
            let shown = name.to_string_lossy();
            let path = self.path_of(&shown);
            let aside =
                AsideFile { path: path.clone(), stem: format!("{}.{shown}", self.spec.name()) };
            let kept_as = put_aside(&queue, &self.dir, &name, &aside, STRANGE_NAME)?;
            rejected.push((path, kept_as));
        }
        Ok(rejected)
    }

    /// Puts a file aside with the reason beside it: `rejected/<box>.<file>`. Returns its new path below the queue. Only
    /// the version that was judged is meant: another one that lands in the meantime stays where it is, or is put back.
    /// `None` if it is not there any more.
    pub fn reject_version(
        &self,
        queue: &Path,
        file: &str,
        judged: &FileStat,
        error: &str,
    ) -> Result<Option<String>> {
        let is_it =
            |stat: &FileStat| (stat.id, stat.modified_ns) == (judged.id, judged.modified_ns);
        if !self.dir.stat(file)?.as_ref().is_some_and(is_it) {
            return Ok(None);
        }
        let queue = Dir::open(queue)?;
        let aside =
            AsideFile { path: self.path_of(file), stem: format!("{}.{file}", self.spec.name()) };
        let kept_as = put_aside(&queue, &self.dir, file, &aside, error)?;
        let rejected = queue.open_child(REJECTED)?;
        let kept = kept_as.rsplit('/').next().unwrap_or_default();
        let moved = rejected.stat(kept)?;
        // A writer may have replaced it within the last moment. If there is a third one by now, the
        // second stays here.
        if moved.as_ref().is_some_and(|stat| !is_it(stat))
            && rejected.move_new(kept, &self.dir, file)? == MoveOutcome::Done
        {
            rejected.remove(&format!("{kept}@reason.yaml"))?;
            return Ok(None);
        }
        Ok(Some(kept_as))
    }
}
