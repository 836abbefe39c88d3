//! Finding complete files in the drop boxes.
//!
//! ```text
//! how it was found                     it counts as complete once
//! renamed into place                   at once
//! its last line is the YAML end mark   at once
//! written in place, event says closed  unchanged for IN_PLACE_QUIET
//! linked into place                    unchanged for FOUND_QUIET
//! written, and not closed yet          unchanged for INCOMPLETE_PATIENCE, and not open any more
//! found by a listing                   unchanged for FOUND_QUIET (its own stamps, then our clock)
//! ```
//!
//! A file that does not parse or breaks its contract may still be completed, unless it was renamed into place or has the
//! end mark: it stays, so that what is appended later belongs to it. Its author is notified once it was unchanged for
//! INCOMPLETE_PATIENCE and is not open, for at most WRITER_PATIENCE. One that is valid waits for as long as a process has
//! it open for writing (`writers`), and after WRITER_PATIENCE it is a need.
//!
//! A file in the ledger with the same stamps is not opened again. A file that cannot be read, is too large, is a link
//! or a pipe, or is complete and not valid YAML is moved to `rejected/` with its reason.
//!
//! An event or a listing names a file, and `examine` returns a verdict on it. Everything that the loop must act on is
//! returned as a [`BoxFinding`]. `pending` keeps the files that are examined again later, `reject` puts a file aside.

mod examine;
mod listed;
mod pending;
mod reject;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::durable::{Dir, FileId, FileStat};
use crate::env::{Clock as _, Monotonic, SystemClock};
use crate::message::Name;
use crate::watch::Landing;
use crate::{Error, Result};

use super::file_writers::{FileWriter, WRITER_PATIENCE};
use super::{BoxSpec, DropBox, Ledger, LedgerEntry, STRANGE_NAME};
use listed::ListedFiles;
use pending::{FileVersion, PendingFile};
pub use reject::RejectedFile;

/// How long a file that was written in place must be unchanged after its writer closed it.
pub const IN_PLACE_QUIET: Duration = Duration::from_millis(50);
/// How long a file that was found by a listing must be unchanged.
pub const FOUND_QUIET: Duration = Duration::from_secs(2);
/// How long a file that is not complete may still be completed by its writer.
pub const INCOMPLETE_PATIENCE: Duration = Duration::from_secs(10);

/// How old the list of files that are open may be.
const WRITERS_AGE_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(IN_PLACE_QUIET.as_millis() < FOUND_QUIET.as_millis());
const _: () = assert!(FOUND_QUIET.as_millis() < INCOMPLETE_PATIENCE.as_millis());
const _: () = assert!(INCOMPLETE_PATIENCE.as_millis() < WRITER_PATIENCE.as_millis());

/// Why no file of such a queue is routed.
const OPEN_TO_ALL: &str =
    "every user may write to the queue and could forge messages: `chmod o-w` it";

/// Whether there is a directory to which not every user may write. The queue may be behind a link, its boxes may not.
fn is_private(queue: &Path, path: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    let found = if path == queue { path.metadata() } else { path.symlink_metadata() };
    found.is_ok_and(|it| it.is_dir() && it.mode() & OTHERS_WRITE == 0)
}

#[derive(Clone, Debug)]
pub struct CompleteFile {
    pub box_name: Arc<str>,
    pub file: String,
    pub stat: FileStat,
    pub content: Vec<u8>,
    /// Its fields; `null` for files that are not YAML.
    pub fields: serde_json::Value,
    /// The type that its route gives to its messages; nothing before it is routed.
    pub kind: Option<Name>,
    /// The mailbox of its author, once that is known.
    pub signer: Option<Name>,
    /// Whether it is too early to say that its writer adds nothing to it.
    pub may_grow: bool,
    /// Whether it was renamed into place, or has the end mark.
    pub is_final: bool,
}

impl CompleteFile {
    /// The same file as one that cannot be routed.
    pub fn into_unfit(self, error: String) -> UnfitFile {
        let Self { box_name, file, stat, content, is_final, .. } = self;
        UnfitFile { box_name, file, stat, content, error, is_final }
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.box_name, self.file)
    }
}

/// A file that cannot be routed as it is. Its author is notified, then it is set aside.
#[derive(Debug)]
pub struct UnfitFile {
    pub box_name: Arc<str>,
    pub file: String,
    /// The version that was judged.
    pub stat: FileStat,
    /// The part of the content that could be read.
    pub content: Vec<u8>,
    pub error: String,
    /// Whether it is set aside. One that its writer may still complete stays.
    pub is_final: bool,
}

impl UnfitFile {
    pub fn path(&self) -> String {
        format!("{}/{}", self.box_name, self.file)
    }
}

/// Frees the memory that a map which was full once does not need now.
fn shrink_map<T>(map: &mut HashMap<String, T>) {
    if map.capacity() > 4 * map.len() {
        map.shrink_to_fit();
    }
}

/// A file on which the loop must act.
#[derive(Debug)]
pub enum BoxFinding {
    Complete(CompleteFile),
    /// Notify its author and put it aside.
    Unfit(UnfitFile),
    /// It was routed before with this content, and has landed again.
    Again(CompleteFile, LedgerEntry),
}

#[derive(Debug)]
struct OpenBox {
    drop_box: DropBox,
    /// The largest file that is read, in bytes.
    bytes_max: usize,
    pending: HashMap<String, PendingFile>,
    /// Files that no route matches, and directories: recorded once, shown in `status`.
    unmatched: HashMap<String, FileId>,
    /// Versions of files that are not complete, and are left to their writers.
    left: HashMap<String, FileVersion>,
    /// CompleteFile files that were found by a listing, and whose events may still come.
    found: HashSet<String>,
    /// How many versions of a file landed that were not read, because the next one took their place.
    overwritten: HashMap<String, u64>,
    /// Files that, according to events, were written and not closed yet.
    being_written: HashSet<String>,
    /// Files that were closed, as the last event of each says.
    closed: HashSet<String>,
    /// Reads and moves that failed: they are tried again.
    failures: Vec<Error>,
    /// The files that processes have open for writing, with the time of the look; `None` if that is not shown.
    writers: Option<(Monotonic, Option<HashMap<String, FileWriter>>)>,
}

/// The open drop boxes of a queue.
#[derive(Debug)]
pub struct OpenBoxes {
    queue: PathBuf,
    open: Vec<OpenBox>,
    /// Drop boxes that could not be opened, and why.
    refused: Vec<(PathBuf, String)>,
    listed: ListedFiles,
    /// No event waited at the last step.
    is_drained: bool,
}

impl OpenBoxes {
    /// Opens the drop boxes that can be opened; the others are [`OpenBoxes::refused`].
    pub fn open<'a>(
        queue: &Path,
        specs: impl IntoIterator<Item = &'a BoxSpec>,
        bytes_max: usize,
    ) -> Result<Self> {
        let is_open_to_all = !is_private(queue, Dir::open(queue)?.path());
        let mut boxes = Self {
            queue: queue.to_owned(),
            open: Vec::new(),
            refused: Vec::new(),
            listed: ListedFiles::default(),
            is_drained: true,
        };
        if is_open_to_all {
            boxes.refused.push((queue.to_owned(), OPEN_TO_ALL.to_owned()));
            return Ok(boxes);
        }
        for spec in specs {
            match DropBox::open(queue, spec) {
                Ok(drop_box) => boxes.open.push(OpenBox {
                    drop_box,
                    bytes_max,
                    pending: HashMap::new(),
                    unmatched: HashMap::new(),
                    left: HashMap::new(),
                    found: HashSet::new(),
                    overwritten: HashMap::new(),
                    being_written: HashSet::new(),
                    closed: HashSet::new(),
                    failures: Vec::new(),
                    writers: None,
                }),
                Err(error) => {
                    let path =
                        spec.directory().map_or_else(|| queue.to_owned(), |dir| queue.join(dir));
                    boxes.refused.push((path, error.to_string()));
                }
            }
        }
        Ok(boxes)
    }

    /// Why a drop box could not be opened, for instance because there is a link in its place.
    pub fn refused(&self) -> Option<&str> {
        self.refused.first().map(|(_, why)| why.as_str())
    }

    /// The directories to watch, with the names of their boxes.
    pub fn directories(&self) -> impl Iterator<Item = (&Path, &Arc<str>)> {
        self.open.iter().map(|open| (open.drop_box.dir().path(), open.drop_box.spec.name()))
    }

    /// Whether the paths still lead to the directories that are open, and only their owners may write there.
    pub fn are_current(&self) -> bool {
        let is_current = |open: &OpenBox| {
            let directory = open.drop_box.dir();
            directory.is_at_its_path() && is_private(&self.queue, directory.path())
        };
        let is_refused = self.refused.iter().any(|(path, _)| path == &self.queue);
        self.open.iter().all(is_current)
            && (is_refused || is_private(&self.queue, &self.queue))
            && !self.refused.iter().any(|(path, _)| is_private(&self.queue, path))
    }

    /// When the next pending file is due.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.open.iter().flat_map(|open| open.pending.values()).map(|pending| pending.due).min()
    }

    /// How many files are still to be examined and how many are unmatched, by box, for `status`.
    pub fn summary(&self) -> Vec<serde_json::Value> {
        let row = |(place, open): (usize, &OpenBox)| {
            let name = open.drop_box.spec.name();
            let pending = open.pending.len() + self.listed.count(place);
            serde_json::json!({ "box": **name, "pending": pending, "unmatched": open.unmatched.len() })
        };
        self.open.iter().enumerate().map(row).collect()
    }

    fn get_mut(&mut self, box_name: &str) -> Option<&mut OpenBox> {
        self.open.iter_mut().find(|open| &**open.drop_box.spec.name() == box_name)
    }

    /// Remembers that no route matches a file; true the first time.
    pub fn note_unmatched(&mut self, box_name: &str, file: &str) -> bool {
        self.get_mut(box_name).is_some_and(|open| open.pass_over(file))
    }

    /// Examines a file again later, for instance because its recipient has no mailbox yet.
    pub fn retry(&mut self, now: Monotonic, box_name: &str, file: &str, after: Duration) {
        if let Some(open) = self.get_mut(box_name) {
            open.retry(now, file, after);
        }
    }

    /// Leaves a file to its writer, who may still complete it.
    pub fn await_writer(&mut self, now: Monotonic, unfit: &UnfitFile) {
        if let Some(open) = self.get_mut(&unfit.box_name) {
            open.await_writer(now, &unfit.file, (&unfit.stat).into());
        }
    }

    /// An event said that a file has landed.
    pub fn landed(
        &mut self,
        now: Monotonic,
        box_name: &str,
        file: &str,
        how: Landing,
        ledger: &mut Ledger,
    ) -> Option<BoxFinding> {
        let open = self.get_mut(box_name).filter(|open| open.drop_box.takes(file))?;
        // Elsewhere no event says that a file was closed.
        if how == Landing::Written && cfg!(target_os = "linux") {
            open.being_written.insert(file.to_owned());
        } else if how != Landing::Created {
            open.being_written.remove(file);
        }
        match how {
            Landing::Closed => drop(open.closed.insert(file.to_owned())),
            _ => drop(open.closed.remove(file)),
        }
        match how {
            Landing::Renamed => {
                let stat = open.drop_box.dir().stat(file).ok().flatten();
                if stat.is_some_and(|it| ledger.is_routed(&open.drop_box.path_of(file), &it)) {
                    open.note_overwritten(file);
                    return None;
                }
                open.examine(now, file, true, ledger)
            }
            Landing::Closed => {
                open.await_quiet(now, file, IN_PLACE_QUIET);
                None
            }
            Landing::Created | Landing::Written => open.examine_unless_written(now, file, ledger),
        }
    }

    /// Lists all boxes. [`OpenBoxes::examine_listed`] works off the files that no event has named.
    pub fn scan(&mut self, now: Monotonic, ledger: &mut Ledger) -> Result<()> {
        self.listed.begin(now);
        for open in &mut self.open {
            if self.is_drained {
                open.found = HashSet::new();
            }
            let dir = open.drop_box.dir();
            open.unmatched.retain(|file, _| matches!(dir.stat(file), Ok(Some(_))));
            open.left.retain(|file, _| matches!(dir.stat(file), Ok(Some(_))));
            shrink_map(&mut open.unmatched);
            shrink_map(&mut open.pending);
            let OpenBox { being_written, closed, pending, .. } = open;
            being_written.retain(|file| pending.contains_key(file));
            closed.retain(|file| pending.contains_key(file));
        }
        ledger.begin_listing();
        for (place, open) in self.open.iter().enumerate() {
            let listed = &mut self.listed;
            open.drop_box.dir().for_each(|file| {
                let is_passed = !open.drop_box.takes(file) || open.pending.contains_key(file);
                if !is_passed
                    && let Ok(Some(stat)) = open.drop_box.dir().stat(file)
                    && open.unmatched.get(file) != Some(&stat.id)
                    && open.left.get(file) != Some(&FileVersion::from(&stat))
                    && !ledger.is_listed_routed(&open.drop_box.path_of(file), &stat)
                {
                    listed.push(place, file, stat.modified_ns);
                }
                ControlFlow::Continue(())
            })?;
        }
        ledger.end_listing();
        Ok(())
    }

    /// Puts aside the files whose names are not UTF-8.
    pub fn reject_strange(&mut self) -> Vec<RejectedFile> {
        let mut rejected = Vec::new();
        for open in &mut self.open {
            match open.drop_box.reject_strange(&self.queue) {
                Ok(files) => rejected.extend(files.into_iter().map(|(path, kept_as)| {
                    RejectedFile { path, kept_as: Some(kept_as), error: STRANGE_NAME.to_owned() }
                })),
                Err(failure) => open.failures.push(failure),
            }
        }
        rejected
    }

    /// An event named a file whose present content was read before.
    pub fn note_overwritten(&mut self, box_name: &str, file: &str) {
        if let Some(open) = self.get_mut(box_name) {
            open.note_overwritten(file);
        }
    }

    /// The files of which versions landed that were not read, since the last call.
    pub fn take_overwritten(&mut self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for open in &mut self.open {
            let files = std::mem::take(&mut open.overwritten).into_iter();
            all.extend(files.map(|(file, count)| (open.drop_box.path_of(&file), count)));
        }
        all
    }

    /// Returns the failures since the last call. All of it is tried again.
    pub fn take_failures(&mut self) -> Vec<Error> {
        self.open.iter_mut().flat_map(|open| std::mem::take(&mut open.failures)).collect()
    }

    /// Whether files of the last scan are still to be examined.
    pub const fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Whether files of a scan are to be examined now. They wait while there are events, but not for too long.
    pub fn may_examine_listed(&mut self, now: Monotonic, has_events: bool) -> bool {
        self.is_drained = !has_events;
        self.is_drained || self.listed.is_overdue(now)
    }

    /// Examines up to `count` of the files of the last scan.
    pub fn examine_listed(
        &mut self,
        now: Monotonic,
        count: usize,
        ledger: &mut Ledger,
    ) -> Vec<BoxFinding> {
        let quiet_before =
            SystemClock.wall().unix_millis() - i64::try_from(FOUND_QUIET.as_millis()).unwrap_or(0);
        let mut findings = Vec::new();
        for _ in 0..count {
            let Some((place, file, modified_ms)) = self.listed.pop() else { break };
            let Some(open) = self.open.get_mut(place) else { continue };
            findings.extend(if modified_ms < quiet_before {
                open.examine(now, &file, false, ledger)
            } else {
                open.examine_unless_written(now, &file, ledger)
            });
        }
        findings
    }

    /// Examines up to `count` of each box's pending files that are due; the others stay due.
    pub fn examine_due(
        &mut self,
        now: Monotonic,
        count: usize,
        ledger: &mut Ledger,
    ) -> Vec<BoxFinding> {
        let mut findings = Vec::new();
        for open in &mut self.open {
            for file in open.due(now, count) {
                if open.is_unchanged(now, &file) {
                    findings.extend(open.examine(now, &file, false, ledger));
                }
            }
        }
        findings
    }

    /// Puts the judged version of a file aside; `None` if there is nothing to record.
    pub fn set_aside(&mut self, now: Monotonic, unfit: &UnfitFile) -> Option<RejectedFile> {
        let queue = self.queue.clone();
        self.get_mut(&unfit.box_name)?.set_aside(now, unfit, &queue)
    }
}
