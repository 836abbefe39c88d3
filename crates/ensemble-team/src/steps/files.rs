//! Files that steps work on, and their locks. Each file has exactly one name.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use ensemble_core::message::Name;
use serde::{Deserialize, Serialize};

use super::WriteTransaction;
use super::db::{DbResult, DbTransaction, values};
use super::rows::StepKey;

pub const PATH_BYTES_MAX: usize = 1024;

/// A path below the project's directory in its shortest form: `src/lib.rs`, never `./src//lib.rs`.
/// It is never absolute and never leaves the project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(String);

impl FilePath {
    pub fn new(path: &str) -> Result<Self, String> {
        if path.len() > PATH_BYTES_MAX {
            return Err(format!("has {} bytes, the limit is {PATH_BYTES_MAX}", path.len()));
        }
        if path.chars().any(char::is_control) {
            return Err("has control characters".to_owned());
        }
        let mut parts: Vec<&str> = Vec::new();
        for component in Path::new(path).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => parts.extend(part.to_str()),
                Component::ParentDir if parts.pop().is_some() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(format!(
                        "`{path}` leaves the project: name it relative to the project's directory"
                    ));
                }
            }
        }
        match parts.is_empty() {
            true => Err(format!("`{path}` is not a file below the project's directory")),
            false => Ok(Self(parts.join("/"))),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which the file is locked. Links are resolved as far as the path exists, so
    /// that two names of one file exclude each other. It is relative to the project, which has
    /// another directory on each host.
    pub(super) fn lock_name(&self, root: &Path) -> String {
        let path = root.join(&self.0);
        let real = Self::real(&path);
        let below = root
            .canonicalize()
            .ok()
            .and_then(|root| real.strip_prefix(root).ok().map(Path::to_owned));
        below.unwrap_or(real).to_string_lossy().into_owned()
    }

    fn real(path: &Path) -> PathBuf {
        let existing = path.ancestors().find_map(|it| Some((it, it.canonicalize().ok()?)));
        let Some((existing, real)) = existing else { return path.to_owned() };
        match path.strip_prefix(existing) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            Ok(_) | Err(_) => real,
        }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for FilePath {
    type Error = String;
    fn try_from(path: String) -> Result<Self, String> {
        Self::new(&path)
    }
}

impl From<FilePath> for String {
    fn from(path: FilePath) -> Self {
        path.0
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for FilePath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FilePath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A path below the project's directory.",
            "type": "string",
            "minLength": 1,
            "maxLength": PATH_BYTES_MAX,
        })
    }
}

pub(super) fn of_step(tx: &DbTransaction<'_>, key: &StepKey) -> DbResult<Vec<String>> {
    tx.all(
        "SELECT path FROM task_resources
         WHERE task_id = ?1 AND step_index = ?2 AND access = 'write' ORDER BY number",
        values![key.task_id, key.step_index],
    )
}

/// A lock that conflicts with one of these files, as file and holder. A lock on a directory above
/// or a file below conflicts, too.
pub(super) fn conflict(
    tx: &DbTransaction<'_>,
    names: &[String],
) -> DbResult<Option<(String, String)>> {
    for name in names {
        let found = tx.first(
            "SELECT path, holder FROM file_locks
         WHERE path = ?1 OR substr(path, 1, length(?1) + 1) = ?1 || '/'
            OR substr(?1, 1, length(path) + 1) = path || '/' LIMIT 1",
            values![name],
        )?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) fn lock(
    tx: &WriteTransaction<'_, '_>,
    names: &[String],
    key: &StepKey,
    epoch: u64,
    holder: &Name,
) -> DbResult<()> {
    for name in names {
        tx.execute("INSERT INTO file_locks (path, task_id, step_index, epoch, holder) VALUES (?1, ?2, ?3, ?4, ?5)", values![name, key.task_id, key.step_index, epoch, holder])?;
    }
    Ok(())
}

pub(super) fn free(tx: &WriteTransaction<'_, '_>, key: &StepKey) -> DbResult<()> {
    tx.execute(
        "DELETE FROM file_locks WHERE task_id = ?1 AND step_index = ?2",
        values![key.task_id, key.step_index],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        for path in ["src/a.rs", "./src/a.rs", "src//a.rs", "src/x/../a.rs", "src/./a.rs/"] {
            assert_eq!(FilePath::new(path).unwrap().as_str(), "src/a.rs");
        }
        for path in ["", ".", "/etc/passwd", "../x", "src/../../x", "a\nb"] {
            assert!(FilePath::new(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn links_to_one_file_share_its_lock() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("src")).unwrap();
        std::os::unix::fs::symlink("src", home.path().join("link")).unwrap();
        let name = |path| FilePath::new(path).unwrap().lock_name(home.path());
        assert_eq!(name("link/new.rs"), name("src/new.rs"));
        assert_ne!(name("src/new.rs"), name("src/old.rs"));
    }
}
