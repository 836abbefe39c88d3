//! The projects of this user, by name: so that `NAME@PROJECT` is an address on this machine.
//!
//! One file for each queue in `$XDG_STATE_HOME/ensemble/projects` (`~/.local/state/ensemble/projects`), named after the
//! device and inode of the queue's directory. A queue that is reached by two paths, as on a bind mount, is one project.
//! *Owner.* Each command that makes a queue or starts an agent replaces the file as a whole; the last one counts. It
//! also removes the files of queues that are gone. *A crash* leaves the file as it was. It is a list of addresses and no
//! permission: who may write there, the queue's directory says.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ensemble_core::durable::{Durability, read_file, write_document};
use ensemble_core::message::{NAME_BYTES_MAX, Name};
use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::project::Project;

const FILE_BYTES_MAX: usize = 16 * 1024;
const FILE_END: &str = ".json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownProject {
    pub name: Name,
    /// The queue's directory, by the path that was used last.
    pub queue: PathBuf,
}

/// Notes a project. It is only an address, so callers may ignore that the list cannot be written.
pub fn note_project(project: &Project) -> Result<()> {
    let (Some(directory), Some(key)) = (directory(), key_of(&project.queue)) else {
        return Ok(());
    };
    let Ok(name) = project_name(project) else { return Ok(()) };
    let known = KnownProject { name, queue: project.queue.clone() };
    let path = directory.join(format!("{key}{FILE_END}"));
    if read_entry(&path).as_ref() != Some(&known) {
        std::fs::create_dir_all(&directory)
            .map_err(|error| Error::io("create directory", &directory, error))?;
        let text = serde_json::to_string(&known).unwrap_or_default();
        write_document(&path, text.as_bytes(), Durability::Process)?;
    }
    let is_gone = |path: &PathBuf| read_entry(path).is_none();
    let of_ours = |path: &PathBuf| path.to_string_lossy().ends_with(FILE_END);
    for path in entries(&directory).filter(of_ours).filter(is_gone) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The projects whose queue still exists, by name.
pub fn known_projects() -> Vec<KnownProject> {
    let paths = directory().into_iter().flat_map(|directory| entries(&directory));
    let mut known: Vec<KnownProject> = paths.filter_map(|path| read_entry(&path)).collect();
    known.sort_by(|a, b| (&a.name, &a.queue).cmp(&(&b.name, &b.queue)));
    known
}

pub fn project_name(project: &Project) -> Result<Name> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = project.display_name().chars().map(plain).take(NAME_BYTES_MAX).collect();
    Ok(Name::new(name.trim_start_matches(['.', '-']))?)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = std::fs::read_dir(directory).into_iter().flatten();
    files.filter_map(|file| Some(file.ok()?.path()))
}

/// The project of a file, if its queue still exists.
#[doc(hidden)]
pub fn read_entry(path: &Path) -> Option<KnownProject> {
    let key = path.file_name()?.to_str()?.strip_suffix(FILE_END)?;
    let content = read_file(path, FILE_BYTES_MAX).ok()??;
    let known: KnownProject = serde_json::from_slice(&content).ok()?;
    // Another directory may be at its path by now.
    (key_of(&known.queue)? == key).then_some(known)
}

fn key_of(queue: &Path) -> Option<String> {
    std::fs::metadata(queue).ok().map(|it| format!("{:x}-{:x}", it.dev(), it.ino()))
}

fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    state.map(|state| state.join("ensemble/projects"))
}
