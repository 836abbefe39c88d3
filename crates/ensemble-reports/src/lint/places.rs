//! Checks whether a place that a report names exists: a regular file below the project's root with
//! that many lines.

use std::collections::HashMap;
use std::io::{BufReader, Read as _};
use std::path::{Component, Path};

use ensemble_core::durable::Dir;

/// Largest file whose lines are counted, in bytes; larger ones are assumed to have the line.
const COUNTED_BYTES_MAX: u64 = 16 * 1024 * 1024;
const FILES_MAX: usize = 200;
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct CheckedFiles {
    lines: HashMap<String, Result<u64, &'static str>>,
}

impl CheckedFiles {
    pub(super) fn wrong(&mut self, root: &Path, path: &str, line: u64) -> Option<String> {
        if !self.lines.contains_key(path) {
            if self.lines.len() == FILES_MAX {
                return None;
            }
            self.lines.insert(path.to_owned(), count_lines(root, path));
        }
        match self.lines.get(path)? {
            Err(why) => Some(format!("`{path}` {why}")),
            Ok(_) if line == 0 => Some(format!("`{path}` has no line 0: lines count from 1")),
            Ok(lines) if line > *lines => Some(format!("`{path}` has {lines} lines, not {line}")),
            Ok(_) => None,
        }
    }
}

/// Links are followed, but only to targets below the root.
fn count_lines(root: &Path, path: &str) -> Result<u64, &'static str> {
    const ABSENT: &str = "does not exist";
    let root = root.canonicalize().map_err(|_| ABSENT)?;
    let relative = Path::new(path);
    if relative.components().any(|c| matches!(c, Component::ParentDir)) {
        return Err("leads out of the project with `..`");
    }
    let found = root.join(relative).canonicalize().map_err(|_| ABSENT)?;
    if !found.starts_with(&root) {
        return Err("is outside the project");
    }
    let (Some(parent), Some(name)) = (found.parent(), found.file_name().and_then(|n| n.to_str()))
    else {
        return Err(ABSENT);
    };
    // Open without blocking on a pipe.
    let opened = Dir::open(parent).and_then(|dir| dir.open_file(name));
    let Ok(Some(file)) = opened else { return Err("is not a file that can be read") };
    let bytes = file.metadata().map_err(|_| "cannot be read")?.len();
    if bytes > COUNTED_BYTES_MAX {
        return Ok(u64::MAX);
    }
    let mut reader = BufReader::new(file.take(COUNTED_BYTES_MAX));
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut lines, mut last) = (0, b'\n');
    loop {
        let read = reader.read(&mut chunk).map_err(|_| "cannot be read")?;
        let Some(&end) = chunk[..read].last() else { break };
        lines += chunk[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
        last = end;
    }
    Ok(lines + u64::from(last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_lines_are_accepted() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("project");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/a.rs"), "one\ntwo\nthree").unwrap();
        std::fs::write(home.path().join("secret.rs"), "x\n").unwrap();
        std::os::unix::fs::symlink("../secret.rs", root.join("link.rs")).unwrap();
        std::os::unix::fs::symlink("src", root.join("same")).unwrap();
        let mut places = CheckedFiles::default();
        let mut wrong = |path: &str, line| places.wrong(&root, path, line).unwrap_or_default();
        assert_eq!(wrong("src/a.rs", 3), "");
        assert_eq!(wrong("./src/a.rs", 1), "");
        assert_eq!(wrong("same/a.rs", 1), "");
        assert_eq!(wrong("src/a.rs", 4), "`src/a.rs` has 3 lines, not 4");
        assert!(wrong("src/a.rs", 0).contains("no line 0"));
        assert!(wrong("src/b.rs", 1).contains("does not exist"));
        assert!(wrong("../secret.rs", 1).contains(".."));
        assert!(wrong("link.rs", 1).contains("outside"));
        assert!(wrong("/etc/passwd", 1).contains("outside"));
        assert!(wrong("src", 1).contains("is not a file"));
    }
}
