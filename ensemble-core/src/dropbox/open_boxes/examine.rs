//! The verdict on one file, and what follows from it.
//!
//! ```text
//! the file                                verdict      what follows
//! is gone                                 Absent       nothing
//! cannot be read now                      Unreadable   the next scan tries again
//! is larger, or of another kind           Unfit        the loop puts it aside
//! may still change                        Unquiet      examined again after IN_PLACE_QUIET
//! is in the ledger with this content      Routed       the loop decides whether it counts again
//! parses, a process has it open           Incomplete   examined again after INCOMPLETE_PATIENCE
//! parses                                  Complete     the loop routes it
//! does not parse, may still be completed  Incomplete   examined again after INCOMPLETE_PATIENCE
//! does not parse                          Unfit        the loop puts it aside, or leaves it to its writer
//! ```

use crate::dropbox::{DropBox, Ledger};
use crate::durable::FileStat;
use crate::env::Monotonic;
use crate::{Error, Result};

use super::pending::FileVersion;
use super::{
    BoxFinding, CompleteFile, FOUND_QUIET, IN_PLACE_QUIET, INCOMPLETE_PATIENCE, OpenBox, UnfitFile,
};

/// The files that are parsed.
const YAML_SUFFIXES: [&str; 3] = [".yaml", ".yml", ".json"];

/// See the table at the top of this page.
enum FileVerdict {
    Absent,
    Unreadable(Error),
    Unquiet,
    Routed(CompleteFile),
    Incomplete(FileVersion),
    Complete(CompleteFile),
    Unfit(UnfitFile),
}

impl OpenBox {
    /// Examines a file that seems complete. `is_whole` if its writer cannot be writing any more.
    pub(super) fn examine(
        &mut self,
        now: Monotonic,
        file: &str,
        is_whole: bool,
        ledger: &mut Ledger,
    ) -> Option<BoxFinding> {
        let is_open = !is_whole && self.is_open(now, file);
        let verdict = match self.verdict(now, file, is_whole, ledger) {
            FileVerdict::Complete(read) if is_open && !DropBox::has_end_mark(&read.content) => {
                FileVerdict::Incomplete(FileVersion::from(&read.stat))
            }
            verdict => verdict,
        };
        if !matches!(verdict, FileVerdict::Unquiet | FileVerdict::Incomplete(_)) {
            self.pending.remove(file);
        }
        match verdict {
            FileVerdict::Absent => {}
            FileVerdict::Unreadable(error) => self.failures.push(error),
            FileVerdict::Unquiet => self.await_quiet(now, file, IN_PLACE_QUIET),
            FileVerdict::Routed(file) => {
                let path = file.path();
                let again = ledger.put_again(&path, &file.stat);
                ledger.refresh(&path, &file.stat);
                return again.map(|entry| BoxFinding::Again(file, entry));
            }
            FileVerdict::Incomplete(version) => self.await_writer(now, file, version),
            FileVerdict::Complete(complete) => {
                // Of a file that was renamed into place, an event is raised as well.
                if !is_whole {
                    self.found.insert(complete.file.clone());
                }
                return Some(BoxFinding::Complete(complete));
            }
            FileVerdict::Unfit(unfit) => return Some(BoxFinding::Unfit(unfit)),
        }
        None
    }

    /// Examines a file that may still be written: at once if it ends with the YAML end mark, otherwise once it is
    /// quiet.
    pub(super) fn examine_unless_written(
        &mut self,
        now: Monotonic,
        file: &str,
        ledger: &mut Ledger,
    ) -> Option<BoxFinding> {
        let quiet = match self.being_written.contains(file) {
            true => INCOMPLETE_PATIENCE,
            false => FOUND_QUIET,
        };
        self.await_quiet(now, file, quiet);
        match self.drop_box.read(file, self.bytes_max) {
            Ok(Some((_, content))) if DropBox::has_end_mark(&content) => {
                self.examine(now, file, true, ledger)
            }
            _ => None,
        }
    }

    fn verdict(&self, now: Monotonic, file: &str, is_whole: bool, ledger: &Ledger) -> FileVerdict {
        let (stat, content) = match self.drop_box.read(file, self.bytes_max) {
            Ok(Some(read)) => read,
            Ok(None) => return FileVerdict::Absent,
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
                let stat = self.drop_box.dir().stat(file).ok().flatten();
                return stat.map_or(FileVerdict::Absent, |stat| {
                    FileVerdict::Unfit(self.unfit(file, stat, Vec::new(), &error))
                });
            }
            // The disk or a permission: the next scan tries again.
            Err(error) => return FileVerdict::Unreadable(error),
        };
        if !is_whole && !self.is_still(file, FileVersion::from(&stat)) {
            return FileVerdict::Unquiet;
        }
        let is_final = is_whole || DropBox::has_end_mark(&content);
        let may_grow = !is_final && self.may_grow(now, file);
        let is_known = ledger.next_version(&self.drop_box.path_of(file), &stat, &content).is_none();
        match self.parse(file, &content) {
            Ok(fields) => {
                let (box_name, file) = (self.drop_box.spec.name().clone(), file.to_owned());
                let read = CompleteFile {
                    box_name,
                    file,
                    stat,
                    content,
                    fields,
                    kind: None,
                    signer: None,
                    may_grow,
                    is_final,
                };
                if is_known { FileVerdict::Routed(read) } else { FileVerdict::Complete(read) }
            }
            Err(_) if may_grow => FileVerdict::Incomplete(FileVersion::from(&stat)),
            Err(error) => {
                let unfit = self.unfit(file, stat, content, &error);
                FileVerdict::Unfit(UnfitFile { is_final, ..unfit })
            }
        }
    }

    /// The fields of a file; `null` for one that is not YAML.
    fn parse(&self, file: &str, content: &[u8]) -> Result<serde_json::Value> {
        let is_yaml = YAML_SUFFIXES.iter().any(|suffix| file.ends_with(suffix));
        if is_yaml { self.drop_box.parse(file, content) } else { Ok(serde_json::Value::Null) }
    }

    fn unfit(&self, file: &str, stat: FileStat, content: Vec<u8>, error: &Error) -> UnfitFile {
        let (box_name, file, error) =
            (self.drop_box.spec.name().clone(), file.to_owned(), error.to_string());
        UnfitFile { box_name, file, stat, content, error, is_final: true }
    }
}
