//! Finding complete files in the drop boxes.
//!
//! ```text
//! how it was found                     it counts as complete once
//! renamed into place                   at once
//! its last line is the YAML end mark   at once
//! written in place, event says closed  unchanged for IN_PLACE_QUIET
//! found by a listing                   unchanged for FOUND_QUIET (its own stamps, then our clock)
//! none of these, and it does not parse unchanged for INCOMPLETE_PATIENCE: then it is put aside
//! ```
//!
//! A file in the ledger with the same stamps is not opened again. What cannot be read, is too
//! large, is a link or a pipe, or never becomes valid YAML goes to `rejected/` with its reason.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::dropbox::{DROP_BOXES, DropBox, Ledger};
use ensemble_core::durable::FileStat;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::{Error, Result};

/// How long a file that was written in place must be unchanged after its writer closed it.
pub const IN_PLACE_QUIET: Duration = Duration::from_millis(50);
/// How long a file that was found by a listing must be unchanged.
pub const FOUND_QUIET: Duration = Duration::from_secs(2);
/// How long a file that does not parse may still be completed by its writer.
pub const INCOMPLETE_PATIENCE: Duration = Duration::from_secs(10);

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
    pub(crate) rejected: Vec<Rejected>,
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
    /// Files that no route matches; recorded once, shown in `status`.
    unmatched: HashSet<String>,
}

/// The open drop boxes of a queue.
#[derive(Debug)]
pub(crate) struct Boxes {
    queue: PathBuf,
    open: Vec<OpenBox>,
    /// What the last scan has found: box, file, and when it was last modified.
    found: VecDeque<(usize, String, i128)>,
    bytes_max: usize,
}

impl Boxes {
    pub(crate) fn open(queue: &Path, bytes_max: usize) -> Result<Self> {
        let open = DROP_BOXES
            .into_iter()
            .map(|name| {
                let drop_box = DropBox::open(queue, name)?;
                Ok(OpenBox { drop_box, pending: HashMap::new(), unmatched: HashSet::new() })
            })
            .collect::<Result<_>>()?;
        Ok(Self { queue: queue.to_owned(), open, found: VecDeque::new(), bytes_max })
    }

    /// The directories to watch.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.open.iter().map(|b| b.drop_box.dir().path())
    }

    /// Whether the paths still lead to the directories that are open.
    pub(crate) fn are_current(&self) -> bool {
        self.open.iter().all(|b| b.drop_box.dir().is_at_its_path())
    }

    /// When the next pending file is due.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.open.iter().flat_map(|b| b.pending.values()).map(|p| p.due).min()
    }

    /// How many files are pending and unmatched, by box, for `status`.
    pub(crate) fn summary(&self) -> Vec<serde_json::Value> {
        let row = |b: &OpenBox| serde_json::json!({ "box": b.drop_box.name, "pending": b.pending.len(), "unmatched": b.unmatched.len() });
        self.open.iter().map(row).collect()
    }

    /// Remembers that no route matches a file; true the first time.
    pub(crate) fn note_unmatched(&mut self, box_name: &str, file: &str) -> bool {
        self.open
            .iter_mut()
            .find(|b| b.drop_box.name == box_name)
            .is_some_and(|b| b.unmatched.insert(file.to_owned()))
    }

    /// Tries a file again later, for instance because its recipient has no mailbox yet.
    pub(crate) fn retry(&mut self, now: Monotonic, box_name: &str, file: &str, after: Duration) {
        if let Some(open) = self.open.iter_mut().find(|b| b.drop_box.name == box_name) {
            let pending =
                Pending { bytes: u64::MAX, modified_ns: 0, unchanged_since: now, due: now + after };
            open.pending.insert(file.to_owned(), pending);
        }
    }

    /// An event said that a file has landed.
    pub(crate) fn landed(
        &mut self,
        now: Monotonic,
        dir: &Path,
        file: &str,
        whole: bool,
        ledger: &mut Ledger,
        look: &mut Look,
    ) {
        let Some(index) = self.open.iter().position(|b| b.drop_box.dir().path() == dir) else {
            return;
        };
        if DropBox::is_temporary(file) {
            return;
        }
        if whole {
            self.examine(now, index, file, true, ledger, look);
        } else {
            self.await_quiet(now, index, file, IN_PLACE_QUIET);
        }
    }

    /// Lists all boxes; what no event has told of is found here and worked off by
    /// [`Boxes::look_at_found`].
    pub(crate) fn scan(&mut self, ledger: &Ledger) -> Result<()> {
        self.found.clear();
        for (index, open) in self.open.iter().enumerate() {
            let found = &mut self.found;
            open.drop_box.dir().for_each(|file| {
                let is_known = DropBox::is_temporary(file)
                    || open.unmatched.contains(file)
                    || open.pending.contains_key(file);
                if !is_known
                    && let Ok(Some(stat)) = open.drop_box.dir().stat(file)
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

    /// Looks at the pending files that are due.
    pub(crate) fn look_at_due(&mut self, now: Monotonic, ledger: &mut Ledger, look: &mut Look) {
        for index in 0..self.open.len() {
            let due: Vec<String> = self.open[index]
                .pending
                .iter()
                .filter(|(_, p)| p.due <= now)
                .map(|(file, _)| file.clone())
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
        let path = open.drop_box.path_of(file);
        let read = open.drop_box.read(file, self.bytes_max);
        let parsed = match &read {
            Ok(Some((stat, content))) => {
                if ledger.next_version(&path, stat, content).is_none() {
                    ledger.refresh(&path, stat);
                    self.open[index].pending.remove(file);
                    return;
                }
                if is_yaml(file) {
                    open.drop_box.parse(file, content)
                } else {
                    Ok(serde_json::Value::Null)
                }
            }
            _ => Ok(serde_json::Value::Null),
        };
        match (read, parsed) {
            (Ok(None), _) => {
                self.open[index].pending.remove(file);
            }
            (Ok(Some((stat, content))), Ok(fields)) => {
                let open = &mut self.open[index];
                open.pending.remove(file);
                look.complete.push(Complete {
                    box_name: open.drop_box.name,
                    file: file.to_owned(),
                    stat,
                    content,
                    fields,
                });
            }
            (Ok(Some((stat, content))), Err(error)) => {
                let since = self.open[index].pending.get(file).map_or(now, |p| p.unchanged_since);
                if whole
                    || DropBox::has_end_mark(&content)
                    || now.since(since) >= INCOMPLETE_PATIENCE
                {
                    self.reject(index, file, &error, look);
                } else {
                    let due = since + INCOMPLETE_PATIENCE;
                    let pending = Pending {
                        bytes: stat.bytes,
                        modified_ns: stat.modified_ns,
                        unchanged_since: since,
                        due,
                    };
                    self.open[index].pending.insert(file.to_owned(), pending);
                }
            }
            (Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })), _) => {
                self.reject(index, file, &error, look)
            }
            // The disk or a permission: try again at the next scan.
            (Err(error), _) => {
                tracing::warn!(%error, "cannot read a drop-box file");
                self.open[index].pending.remove(file);
            }
        }
    }

    fn reject(&mut self, index: usize, file: &str, error: &Error, look: &mut Look) {
        let open = &mut self.open[index];
        open.pending.remove(file);
        let path = open.drop_box.path_of(file);
        let kept_as = match open.drop_box.reject(&self.queue, file, &error.to_string()) {
            Ok(Some(kept_as)) => Some(kept_as),
            Ok(None) => {
                // A directory, or gone: not looked at again.
                open.unmatched.insert(file.to_owned());
                return;
            }
            Err(failure) => {
                tracing::warn!(%failure, "cannot put a file aside");
                open.unmatched.insert(file.to_owned());
                None
            }
        };
        look.rejected.push(Rejected { path, kept_as, error: error.to_string() });
    }
}

fn is_yaml(file: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|end| file.ends_with(end))
}
