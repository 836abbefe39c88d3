//! Documents that several programs change: read, change and replace under a lock (seed 002,
//! "exclusive control", its `with_file_lock`).
//!
//! The lock is flock on `<path>.lock` beside the document. That file is only locked, never renamed and never removed.
//! `flock queue/x.yaml.lock command` of util-linux takes the same lock. A document is replaced by renaming a complete
//! file over it. So readers need no lock and see the old or the new content, whole, even after a kill or a power cut.
//!
//! What several hosts change is behind [`SharedFiles`]: compare-and-set takes the place of the lock.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::durable::{Dir, Durability, FileLock, FileModes, parent_of, sync_file, temporary_name};
use crate::{Error, Result};

mod json;
mod shared;

pub use json::{read_json, write_json};
pub use shared::{SharedFile, SharedFiles};

pub const DOCUMENT_BYTES_DEFAULT: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentOptions {
    /// Largest document that is read or written, in bytes.
    pub bytes_max: usize,
    pub durability: Durability,
    /// The permissions of a new document; a replaced one keeps its own.
    pub modes: FileModes,
    /// Directory where the new content is written before the rename, in the same file system.
    /// `None` is beside the document, under a hidden name.
    pub tmp: Option<PathBuf>,
}

impl Default for DocumentOptions {
    fn default() -> Self {
        Self {
            bytes_max: DOCUMENT_BYTES_DEFAULT,
            durability: Durability::default(),
            modes: FileModes::default(),
            tmp: None,
        }
    }
}

/// Reads a document, lets `change` compute the new content, and replaces the document, all under
/// its lock. `change` gets `None` if there is no document, and returns `None` to change nothing.
///
/// Blocks for at most `patience`, not counting `change`. Inside `change`, start no program and take
/// no second lock on the same document: it would wait for the first.
pub fn with_file_lock(
    path: impl AsRef<Path>,
    patience: Duration,
    change: impl FnOnce(Option<Vec<u8>>) -> Result<Option<Vec<u8>>>,
) -> Result<()> {
    let document = LockedDocument::lock(path, patience)?;
    match change(document.read()?)? {
        Some(content) => document.replace(&content),
        None => Ok(()),
    }
}

/// A document that is locked until this is dropped: [`with_file_lock`] in steps, for callers with
/// their own errors and control flow.
#[derive(Debug)]
pub struct LockedDocument {
    dir: Dir,
    name: String,
    options: DocumentOptions,
    _lock: FileLock,
}

impl LockedDocument {
    /// Waits at most `patience` for the document's lock. The document's directory must exist.
    pub fn lock(path: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        Self::lock_with(path, patience, DocumentOptions::default())
    }

    /// As [`LockedDocument::lock`], with options.
    pub fn lock_with(
        path: impl AsRef<Path>,
        patience: Duration,
        options: DocumentOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| Error::malformed(path, "path", "does not end in a UTF-8 file name"))?;
        let dir = Dir::open(parent_of(path))?;
        let lock = FileLock::acquire(&dir.path().join(format!("{name}.lock")), patience)?;
        Ok(Self { dir, name: name.to_owned(), options, _lock: lock })
    }

    /// Reads the content; `None` if there is no document.
    pub fn read(&self) -> Result<Option<Vec<u8>>> {
        self.dir.read(&self.name, self.options.bytes_max)
    }

    /// Replaces the whole document, or creates it.
    pub fn replace(&self, content: &[u8]) -> Result<()> {
        let DocumentOptions { bytes_max, durability, .. } = self.options;
        if content.len() > bytes_max {
            let path = self.path().display().to_string();
            return Err(Error::too_large(path, content.len(), bytes_max));
        }
        let modes = self.modes()?;
        match &self.options.tmp {
            Some(tmp) => self.dir.replace(&self.name, content, &Dir::open(tmp)?, modes, durability),
            None => {
                self.sweep()?;
                let tmp_name = temporary_name(&self.temporary_stem()) + TEMPORARY_END;
                self.dir.replace_by(&self.name, content, &self.dir, &tmp_name, modes, durability)
            }
        }
    }

    /// Appends `line` and a newline, creating the document if necessary. If a killed writer left
    /// the last line without its newline, that is added first. `line` must not contain a newline.
    ///
    /// Unlike with [`LockedDocument::replace`], a crash may leave part of the line, so readers must
    /// skip lines that they cannot parse.
    pub fn append_line(&self, line: &[u8]) -> Result<()> {
        let mut file = self.dir.open_append(&self.name, self.options.modes)?;
        let fail = |error| Error::io("append to", self.path(), error);
        let mut content = Vec::with_capacity(line.len() + 2);
        if !ends_with_newline(&mut file).map_err(fail)? {
            content.push(b'\n');
        }
        content.extend_from_slice(line);
        content.push(b'\n');
        file.write_all(&content).map_err(fail)?;
        match self.options.durability {
            Durability::Power => sync_file(&file, &self.path()),
            Durability::Process => Ok(()),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    /// A new document gets the configured permissions; a replaced one keeps its own.
    fn modes(&self) -> Result<FileModes> {
        match self.dir.stat(&self.name)? {
            None => Ok(self.options.modes),
            Some(stat) if stat.is_file => {
                Ok(FileModes { file: stat.mode & PERMISSION_BITS, ..self.options.modes })
            }
            Some(_) => Err(Error::malformed(self.path(), "file", "is not a regular file")),
        }
    }

    /// Removes temporary files of writers that were killed before the rename. Only the lock's holder has a live one.
    fn sweep(&self) -> Result<()> {
        for name in self.dir.names()? {
            if self.is_temporary(&name) {
                self.dir.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Whether a name is exactly `.<name>.<process>.<start>.<count>.tmp`. With one more part it
    /// would belong to another document whose name begins with this one's.
    fn is_temporary(&self, name: &str) -> bool {
        name.strip_prefix(&self.temporary_stem())
            .and_then(|rest| rest.strip_suffix(TEMPORARY_END)?.strip_prefix('.'))
            .is_some_and(|unique| unique.split('.').count() == TEMPORARY_PARTS)
    }

    fn temporary_stem(&self) -> String {
        format!(".{}", self.name)
    }
}

/// Whether a file is empty or ends with a newline.
fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Ending of the hidden name of content that is being written.
const TEMPORARY_END: &str = ".tmp";
/// Number of parts that [`temporary_name`] appends.
const TEMPORARY_PARTS: usize = 3;
/// Read, write and execute for owner, group and others.
const PERMISSION_BITS: u32 = 0o777;

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn only_regular_files_are_documents() {
        let home = tempfile::tempdir().unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let document = LockedDocument::lock(&link, PATIENCE).unwrap();
        assert!(matches!(document.read(), Err(Error::Malformed { .. })));
        assert!(matches!(document.replace(b"x"), Err(Error::Malformed { .. })));
        assert!(link.is_symlink());
        for wrong in ["/", "..", ""] {
            assert!(LockedDocument::lock(wrong, PATIENCE).is_err(), "{wrong:?}");
        }
        let error = LockedDocument::lock(home.path().join("absent/x"), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }

    #[test]
    fn replace_keeps_permissions_and_removes_temporary_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state.yaml");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        // One of a killed writer, and one of another document.
        for stale in [".state.yaml.1.2.3.tmp", ".state.yaml.bak.1.2.3.tmp"] {
            std::fs::write(home.path().join(stale), b"half").unwrap();
        }
        let document = LockedDocument::lock(&path, PATIENCE).unwrap();
        document.replace(b"one").unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        document.replace(b"two").unwrap();
        assert_eq!((mode(), document.read().unwrap().unwrap()), (0o640, b"two".to_vec()));
        let mut names = Dir::open(home.path()).unwrap().names().unwrap();
        names.sort_unstable();
        assert_eq!(names, [".state.yaml.bak.1.2.3.tmp", "state.yaml", "state.yaml.lock"]);
    }

    #[test]
    fn an_appended_line_never_joins_the_part_that_a_killed_writer_left() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lines.ndjson");
        let document = LockedDocument::lock(&path, PATIENCE).unwrap();
        document.append_line(b"one").unwrap();
        std::fs::write(&path, b"one\ntw").unwrap();
        document.append_line(b"three").unwrap();
        document.append_line(b"four").unwrap();
        assert_eq!(document.read().unwrap().unwrap(), b"one\ntw\nthree\nfour\n");
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LockedDocument::lock(&link, PATIENCE).unwrap().append_line(b"x").is_err());
    }

    #[test]
    fn limits_hold_and_errors_of_the_change_leave_the_document() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state.yaml");
        let options = DocumentOptions {
            bytes_max: 3,
            tmp: Some(home.path().to_owned()),
            ..DocumentOptions::default()
        };
        let document = LockedDocument::lock_with(&path, PATIENCE, options).unwrap();
        document.replace(b"abc").unwrap();
        assert!(matches!(document.replace(b"abcd"), Err(Error::TooLarge { bytes: 4, .. })));
        std::fs::write(&path, b"abcd").unwrap();
        assert!(matches!(document.read(), Err(Error::TooLarge { .. })));
        drop(document);
        let refused = with_file_lock(&path, PATIENCE, |_| Err(Error::malformed(&path, "x", "y")));
        assert!(refused.is_err());
        with_file_lock(&path, PATIENCE, |current| {
            assert_eq!(current.as_deref(), Some(&b"abcd"[..]));
            Ok(None)
        })
        .unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcd");
    }
}
