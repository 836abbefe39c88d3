//! The worktrees that git knows.

use std::path::{Path, PathBuf};

use super::Worktrees;
use ensemble_core::Result;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorktreeEntry {
    pub(super) path: PathBuf,
    pub(super) head: Option<String>,
    /// Its branch, as a full ref, unless its HEAD is detached.
    pub(super) branch: Option<String>,
    /// Whether git was killed while it made the worktree.
    pub(super) is_half_made: bool,
}

impl Worktrees {
    /// All worktrees, the main one first.
    pub(super) fn entries(&self) -> Result<Vec<WorktreeEntry>> {
        let bytes = self.repository().bytes(&["worktree", "list", "--porcelain", "-z"])?;
        Ok(parse(&bytes))
    }

    pub(super) fn entry_at(&self, path: &Path) -> Result<Option<WorktreeEntry>> {
        Ok(self.entries()?.into_iter().find(|entry| entry.path == path))
    }
}

/// The path of a worktree as git shows it: without links on the way to it.
pub(super) fn shown_path(path: &Path) -> PathBuf {
    let around = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    around().unwrap_or_else(|| path.to_owned())
}

/// Lines and entries end with a null character, entries with an empty line.
fn parse(bytes: &[u8]) -> Vec<WorktreeEntry> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut entries: Vec<WorktreeEntry> = Vec::new();
    for line in bytes.split(|byte| *byte == 0) {
        let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        if word == b"worktree" {
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(rest));
            entries.push(WorktreeEntry { path, ..WorktreeEntry::default() });
            continue;
        }
        let Some(entry) = entries.last_mut() else { continue };
        let text = || String::from_utf8_lossy(rest).into_owned();
        match word {
            b"HEAD" if rest.iter().any(|digit| *digit != b'0') => entry.head = Some(text()),
            b"branch" => entry.branch = Some(text()),
            b"locked" => entry.is_half_made = rest == b"initializing",
            _ => {}
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_worktree_list_is_parsed() {
        let text = "worktree /a b\0HEAD 12ab\0branch refs/heads/main\0\0\
                    worktree /c\0HEAD 0000\0detached\0locked initializing\0\0\
                    worktree /d\0bare\0locked for a reason\0prunable gone\0\0";
        let entries = parse(text.as_bytes());
        let names: Vec<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
        assert_eq!(names, [Path::new("/a b"), Path::new("/c"), Path::new("/d")]);
        assert_eq!(entries[0].head.as_deref(), Some("12ab"));
        assert_eq!(entries[0].branch.as_deref(), Some("refs/heads/main"));
        assert_eq!((entries[1].head.clone(), entries[1].is_half_made), (None, true));
        assert!(!entries[2].is_half_made);
    }
}
