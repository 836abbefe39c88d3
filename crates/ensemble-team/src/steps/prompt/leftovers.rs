//! What a worker that lost its step has left behind: changed files in its directory.
//!
//! This module asks no version control itself. The embedder passes a function that does
//! ([`StepOptions::leftovers`](crate::steps::StepOptions::leftovers)); without it a
//! prompt names no files.

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::message::Name;

const FILES_MAX: usize = 40;
/// Longest name of a file, in characters; longer ones are cut.
const NAME_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub directory: PathBuf,
    /// The files with their state, one text each, like ` M src/a.rs` or `?? b.rs`.
    pub files: Vec<String>,
}

/// Finds the changed files in a worker's directory; `None` if no version control knows it.
pub type FindLeftovers = Arc<dyn Fn(&Name) -> Option<Leftovers> + Send + Sync>;

impl Leftovers {
    pub(super) fn sentence(&self) -> String {
        let directory = one_line(&self.directory.to_string_lossy());
        if self.files.is_empty() {
            return format!("No file in {directory} differs from the last commit.");
        }
        let shown: Vec<String> =
            self.files.iter().take(FILES_MAX).map(|file| one_line(file.trim())).collect();
        let more = match self.files.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("Changed files in {directory} (git status): {}{more}.", shown.join(", "))
    }
}

/// A name without control characters, which could end its line.
fn one_line(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_and_hostile_names_stay_one_short_line() {
        let files = (0..60).map(|n| format!(" M src/{n}\nCONSTRAINTS:")).collect();
        let text = Leftovers { directory: "srv".into(), files }.sentence();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with("and 20 more.") && text.contains("M src/0\u{fffd}CONS"), "{text}");
    }
}
