//! Finding complete files in the drop boxes.
//!
//! ```text
//! how it was found                     it counts as complete once
//! renamed into place                   at once
//! its last line is the YAML end mark   at once
//! written in place, event says closed  unchanged for IN_PLACE_QUIET
//! linked into place, or not closed yet unchanged for FOUND_QUIET
//! found by a listing                   unchanged for FOUND_QUIET (its own stamps, then our clock)
//! none of these, and it does not parse unchanged for INCOMPLETE_PATIENCE: then it is put aside
//! ```
//!
//! A file in the ledger with the same stamps is not opened again. What cannot be read, is too
//! large, is a link or a pipe, or never becomes valid YAML goes to `rejected/` with its reason.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::dropbox::{DROP_BOXES, DropBox, Ledger};
use ensemble_core::durable::{Dir, FileId, FileStat};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::{Error, Result};

use ensemble_core::watch::Landing;

/// How long a file that was written in place must be unchanged after its writer closed it.
pub const IN_PLACE_QUIET: Duration = Duration::from_millis(50);
/// How long a file that was found by a listing must be unchanged.
pub const FOUND_QUIET: Duration = Duration::from_secs(2);
/// How long a file that does not parse may still be completed by its writer.
pub const INCOMPLETE_PATIENCE: Duration = Duration::from_secs(10);

/// How soon a file is put aside again if that failed, for instance because the disk is full.
const REJECT_RETRY: Duration = Duration::from_secs(2);

const _: () = assert!(IN_PLACE_QUIET.as_millis() < FOUND_QUIET.as_millis());
const _: () = assert!(FOUND_QUIET.as_millis() < INCOMPLETE_PATIENCE.as_millis());

/// A complete file that was not routed yet.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) box_name: &'static str,
    pub(crate) file: String,
    pub(crate) stat: FileStat,
    pub(crate) content: Vec<u8>,
    /// Its fields; `null` for files that are not YAML.
    pub(crate) fields: serde_json::Value,
}

impl Complete {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.box_name, self.file)
    }
}

/// A file that cannot be routed. It is set aside once its author or its recipients were notified.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) box_name: &'static str,
    pub(crate) file: String,
    /// The version that was judged.
    pub(crate) stat: FileStat,
    /// What stands in it, as far as it could be read.
    pub(crate) content: Vec<u8>,
    pub(crate) error: String,
}

impl Unfit {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.box_name, self.file)
    }
}

/// A file that was put aside.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) path: String,
    pub(crate) kept_as: Option<String>,
    pub(crate) error: String,
}

/// What a look has found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) complete: Vec<Complete>,
    pub(crate) unfit: Vec<Unfit>,
}

/// A file that may still be written.
#[derive(Clone, Copy, Debug)]
struct Pending {
    bytes: u64,
    modified_ns: i128,
    unchanged_since: Monotonic,
    due: Monotonic,
}

#[derive(Debug)]
struct OpenBox {
    drop_box: DropBox,
    pending: HashMap<String, Pending>,
    /// Files that no route matches, and directories: recorded once, shown in `status`.
    unmatched: HashMap<String, FileId>,
}

impl OpenBox {
    /// Does not look at an entry again until there is another one in its place; true the first
    /// time.
    fn pass_over(&mut self, file: &str) -> bool {
        let Ok(Some(stat)) = self.drop_box.dir().stat(file) else { return false };
        self.unmatched.insert(file.to_owned(), stat.id).is_none()
    }
}

/// The open drop boxes of a queue.
#[derive(Debug)]
pub(crate) struct Boxes {
    queue: PathBuf,
    open: Vec<OpenBox>,
    /// Drop boxes that could not be opened, and why.
    refused: Vec<(PathBuf, String)>,
    /// What the last scan has found: box, file, and when it was last modified.
    found: VecDeque<(usize, String, i128)>,
    bytes_max: usize,
}

impl Boxes {
    /// Opens the drop boxes that can be opened; the others are [`Boxes::refused`].
    pub(crate) fn open(queue: &Path, bytes_max: usize) -> Result<Self> {
        Dir::open(queue)?;
        let mut boxes = Self {
            queue: queue.to_owned(),
            open: Vec::new(),
            refused: Vec::new(),
            found: VecDeque::new(),
            bytes_max,
        };
        for name in DROP_BOXES {
            match DropBox::open(queue, name) {
                Ok(drop_box) => boxes.open.push(OpenBox {
                    drop_box,
                    pending: HashMap::new(),
                    unmatched: HashMap::new(),
                }),
                Err(error) => boxes.refused.push((queue.join(name), error.to_string())),
            }
        }
        Ok(boxes)
    }

    /// Why a drop box could not be opened, for instance because there is a link in its place.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.first().map(|(_, why)| why.as_str())
    }

    /// The directories to watch.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.open.iter().map(|b| b.drop_box.dir().path())
    }

    /// Whether the paths still lead to the directories that are open.
    pub(crate) fn are_current(&self) -> bool {
        let can_be_opened = |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_dir());
        self.open.iter().all(|b| b.drop_box.dir().is_at_its_path())
            && !self.refused.iter().any(|(path, _)| can_be_opened(path))
    }

    /// When the next pending file is due.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.open.iter().flat_map(|b| b.pending.values()).map(|p| p.due).min()
    }

    /// How many files are still to be looked at and how many are unmatched, by box, for `status`.
    pub(crate) fn summary(&self) -> Vec<serde_json::Value> {
        let row = |(index, b): (usize, &OpenBox)| {
            let found = self.found.iter().filter(|(of, ..)| *of == index).count();
            serde_json::json!({ "box": b.drop_box.name, "pending": b.pending.len() + found, "unmatched": b.unmatched.len() })
        };
        self.open.iter().enumerate().map(row).collect()
    }

    /// Remembers that no route matches a file; true the first time.
    pub(crate) fn note_unmatched(&mut self, box_name: &str, file: &str) -> bool {
        self.open
            .iter_mut()
            .find(|b| b.drop_box.name == box_name)
            .is_some_and(|b| b.pass_over(file))
    }

    /// Tries a file again later, for instance because its recipient has no mailbox yet.
    pub(crate) fn retry(&mut self, now: Monotonic, box_name: &str, file: &str, after: Duration) {
        if let Some(index) = self.open.iter().position(|b| b.drop_box.name == box_name) {
            self.retry_at(now, index, file, after);
        }
    }

    fn retry_at(&mut self, now: Monotonic, index: usize, file: &str, after: Duration) {
        let pending =
            Pending { bytes: u64::MAX, modified_ns: 0, unchanged_since: now, due: now + after };
        self.open[index].pending.insert(file.to_owned(), pending);
    }

    /// An event said that a file has landed.
    pub(crate) fn landed(
        &mut self,
        now: Monotonic,
        dir: &Path,
        file: &str,
        how: Landing,
        ledger: &mut Ledger,
        look: &mut Look,
    ) {
        let Some(index) = self.open.iter().position(|b| b.drop_box.dir().path() == dir) else {
            return;
        };
        if DropBox::is_temporary(file) {
            return;
        }
        match how {
            Landing::Renamed => self.examine(now, index, file, true, ledger, look),
            Landing::Closed => self.await_quiet(now, index, file, IN_PLACE_QUIET),
            Landing::Created | Landing::Written => {
                self.await_quiet(now, index, file, FOUND_QUIET);
                self.examine_marked(now, index, file, ledger, look);
            }
        }
    }

    /// Lists all boxes; what no event has told of is found here and worked off by
    /// [`Boxes::look_at_found`].
    pub(crate) fn scan(&mut self, ledger: &Ledger) -> Result<()> {
        self.found.clear();
        for (index, open) in self.open.iter().enumerate() {
            let found = &mut self.found;
            open.drop_box.dir().for_each(|file| {
                let is_known = DropBox::is_temporary(file) || open.pending.contains_key(file);
                if !is_known
                    && let Ok(Some(stat)) = open.drop_box.dir().stat(file)
                    && open.unmatched.get(file) != Some(&stat.id)
                    && !ledger.is_routed(&open.drop_box.path_of(file), &stat)
                {
                    found.push_back((index, file.to_owned(), stat.modified_ns));
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// Looks at up to `count` of the files that the last scan has found; true if more are left.
    pub(crate) fn look_at_found(
        &mut self,
        now: Monotonic,
        count: usize,
        ledger: &mut Ledger,
        look: &mut Look,
    ) -> bool {
        let quiet_before =
            SystemClock.wall().unix_millis() - i64::try_from(FOUND_QUIET.as_millis()).unwrap_or(0);
        for _ in 0..count {
            let Some((index, file, modified_ns)) = self.found.pop_front() else { return false };
            if modified_ns < i128::from(quiet_before) * 1_000_000 {
                self.examine(now, index, &file, false, ledger, look);
            } else {
                self.await_quiet(now, index, &file, FOUND_QUIET);
                self.examine_marked(now, index, &file, ledger, look);
            }
        }
        !self.found.is_empty()
    }

    /// Looks at up to `count` of each box's pending files that are due; the others stay due.
    pub(crate) fn look_at_due(
        &mut self,
        now: Monotonic,
        count: usize,
        ledger: &mut Ledger,
        look: &mut Look,
    ) {
        for index in 0..self.open.len() {
            let due: Vec<String> = self.open[index]
                .pending
                .iter()
                .filter(|(_, p)| p.due <= now)
                .map(|(file, _)| file.clone())
                .take(count)
                .collect();
            for file in due {
                let quiet = self.is_unchanged(now, index, &file);
                if quiet {
                    self.examine(now, index, &file, false, ledger, look);
                }
            }
        }
    }

    /// Whether a pending file is as it was; if not, its quiet begins anew.
    fn is_unchanged(&mut self, now: Monotonic, index: usize, file: &str) -> bool {
        let open = &mut self.open[index];
        let Ok(Some(stat)) = open.drop_box.dir().stat(file) else {
            open.pending.remove(file);
            return false;
        };
        let Some(pending) = open.pending.get_mut(file) else { return false };
        let same = pending.bytes == u64::MAX
            || (pending.bytes, pending.modified_ns) == (stat.bytes, stat.modified_ns);
        if !same {
            let quiet =
                pending.due.since(pending.unchanged_since).clamp(IN_PLACE_QUIET, FOUND_QUIET);
            *pending = Pending {
                bytes: stat.bytes,
                modified_ns: stat.modified_ns,
                unchanged_since: now,
                due: now + quiet,
            };
        }
        same
    }

    fn await_quiet(&mut self, now: Monotonic, index: usize, file: &str, quiet: Duration) {
        let open = &mut self.open[index];
        let Ok(Some(stat)) = open.drop_box.dir().stat(file) else { return };
        let known = open
            .pending
            .get(file)
            .filter(|p| (p.bytes, p.modified_ns) == (stat.bytes, stat.modified_ns));
        let unchanged_since = known.map_or(now, |p| p.unchanged_since);
        let pending = Pending {
            bytes: stat.bytes,
            modified_ns: stat.modified_ns,
            unchanged_since,
            due: now + quiet,
        };
        open.pending.insert(file.to_owned(), pending);
    }

    /// Takes a file that was just found if it says itself that it is complete.
    fn examine_marked(
        &mut self,
        now: Monotonic,
        index: usize,
        file: &str,
        ledger: &mut Ledger,
        look: &mut Look,
    ) {
        if let Ok(Some((_, content))) = self.open[index].drop_box.read(file, self.bytes_max)
            && DropBox::has_end_mark(&content)
        {
            self.examine(now, index, file, true, ledger, look);
        }
    }

    /// Reads a file that seems complete.
    fn examine(
        &mut self,
        now: Monotonic,
        index: usize,
        file: &str,
        whole: bool,
        ledger: &mut Ledger,
        look: &mut Look,
    ) {
        let open = &self.open[index];
        let (stat, content) = match open.drop_box.read(file, self.bytes_max) {
            Ok(Some(read)) => read,
            Ok(None) => {
                self.open[index].pending.remove(file);
                return;
            }
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
                return self.unfit(index, file, None, Vec::new(), &error, look);
            }
            // The disk or a permission: try again at the next scan.
            Err(error) => {
                tracing::warn!(%error, "cannot read a drop-box file");
                self.open[index].pending.remove(file);
                return;
            }
        };
        if !whole && !self.is_still(index, file, &stat) {
            return self.await_quiet(now, index, file, IN_PLACE_QUIET);
        }
        let path = open.drop_box.path_of(file);
        if ledger.next_version(&path, &stat, &content).is_none() {
            ledger.refresh(&path, &stat);
            self.open[index].pending.remove(file);
            return;
        }
        let nothing = Ok(serde_json::Value::Null);
        match if is_yaml(file) { open.drop_box.parse(file, &content) } else { nothing } {
            Ok(fields) => {
                self.open[index].pending.remove(file);
                let (box_name, file) = (self.open[index].drop_box.name, file.to_owned());
                look.complete.push(Complete { box_name, file, stat, content, fields });
            }
            Err(error) => {
                let whole = whole || DropBox::has_end_mark(&content);
                self.invalid(now, index, file, &stat, whole, content, &error, look);
            }
        }
    }

    /// A file that does not parse is put aside, unless its writer may still complete it.
    #[expect(clippy::too_many_arguments, reason = "all that is known of one file")]
    fn invalid(
        &mut self,
        now: Monotonic,
        index: usize,
        file: &str,
        stat: &FileStat,
        whole: bool,
        content: Vec<u8>,
        error: &Error,
        look: &mut Look,
    ) {
        let unchanged_since = self.open[index].pending.get(file).map_or(now, |p| p.unchanged_since);
        if whole || now.since(unchanged_since) >= INCOMPLETE_PATIENCE {
            return self.unfit(index, file, Some(*stat), content, error, look);
        }
        let due = unchanged_since + INCOMPLETE_PATIENCE;
        let (bytes, modified_ns) = (stat.bytes, stat.modified_ns);
        let pending = Pending { bytes, modified_ns, unchanged_since, due };
        self.open[index].pending.insert(file.to_owned(), pending);
    }

    /// Whether the read version is the quiet one, and no writer changed it during the read.
    fn is_still(&self, index: usize, file: &str, read: &FileStat) -> bool {
        let open = &self.open[index];
        let version = (read.bytes, read.modified_ns);
        let was_quiet = open
            .pending
            .get(file)
            .is_none_or(|p| p.bytes == u64::MAX || (p.bytes, p.modified_ns) == version);
        let after = open.drop_box.dir().stat(file);
        was_quiet && matches!(after, Ok(Some(now)) if (now.bytes, now.modified_ns) == version)
    }

    /// Hands a file on that is to be put aside.
    fn unfit(
        &mut self,
        index: usize,
        file: &str,
        stat: Option<FileStat>,
        content: Vec<u8>,
        error: &Error,
        look: &mut Look,
    ) {
        let open = &mut self.open[index];
        open.pending.remove(file);
        let Some(stat) = stat.or_else(|| open.drop_box.dir().stat(file).ok().flatten()) else {
            return;
        };
        let (box_name, file, error) = (open.drop_box.name, file.to_owned(), error.to_string());
        look.unfit.push(Unfit { box_name, file, stat, content, error });
    }

    /// Puts the judged version of a file aside; `None` if there is nothing to tell of.
    pub(crate) fn set_aside(&mut self, now: Monotonic, unfit: &Unfit) -> Option<Rejected> {
        let index = self.open.iter().position(|b| b.drop_box.name == unfit.box_name)?;
        let open = &mut self.open[index];
        let rejected = match unfit.stat.is_directory {
            true => Ok(None),
            false => {
                open.drop_box.reject_version(&self.queue, &unfit.file, &unfit.stat, &unfit.error)
            }
        };
        let kept_as = match rejected {
            Ok(Some(kept_as)) => Some(kept_as),
            // A directory, which stays where it is.
            Ok(None) if unfit.stat.is_directory && open.pass_over(&unfit.file) => None,
            // It is gone, or another version has landed, which is looked at by itself.
            Ok(None) => {
                if open.drop_box.dir().stat(&unfit.file).is_ok_and(|stat| stat.is_some())
                    && !unfit.stat.is_directory
                {
                    self.retry_at(now, index, &unfit.file, Duration::ZERO);
                }
                return None;
            }
            Err(failure) => {
                tracing::warn!(%failure, "cannot put a file aside: it is tried again");
                self.retry_at(now, index, &unfit.file, REJECT_RETRY);
                return None;
            }
        };
        Some(Rejected { path: unfit.path(), kept_as, error: unfit.error.clone() })
    }
}

fn is_yaml(file: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|end| file.ends_with(end))
}
