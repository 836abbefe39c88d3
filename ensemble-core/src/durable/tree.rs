//! Whole directories: built elsewhere, moved into place at once, and removed the same way; and what is removed of one.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{Dir, Durability, FileModes, FileStat, MoveOutcome, stop_if};
use crate::error::allow_missing;
use crate::{Error, Result, sys};

/// How many files [`remove_where`] removes at most, so that it stays short.
const REMOVALS_MAX: usize = 10_000;

/// Makes a directory and the one that it is in, both private to their owner, if they are missing. Where that one would be
/// must exist: what still runs after a project was moved must not begin it again at its old path.
pub fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    for directory in parent.into_iter().chain([path]) {
        let made =
            std::fs::DirBuilder::new().mode(FileModes::default().directory).create(directory);
        if let Err(error) = made
            && !directory.is_dir()
        {
            return Err(Error::io("create directory", path, error));
        }
    }
    Ok(())
}

/// Removes the files of a directory, and the directories in it without subdirectories, for which `goes` says so: at
/// most 10,000. Returns their number, which is 0 if there is no such directory.
pub fn remove_where(path: &Path, goes: &mut dyn FnMut(&str, &FileStat) -> bool) -> Result<usize> {
    let Some(dir) = allow_missing(Dir::open(path))? else { return Ok(0) };
    let mut going = Vec::new();
    dir.for_each(|name| {
        if let Ok(Some(stat)) = dir.stat(name)
            && goes(name, &stat)
        {
            going.push((name.to_owned(), stat.is_directory));
        }
        stop_if(going.len() >= REMOVALS_MAX)
    })?;
    for (name, is_directory) in &going {
        match is_directory {
            true => dir.remove_tree(name)?,
            false => dir.remove(name)?,
        }
    }
    Ok(going.len())
}

impl Dir {
    /// Creates a directory below this one, which must not exist.
    pub(crate) fn make_child(&self, name: &str, modes: FileModes) -> Result<Self> {
        fs::mkdirat(&self.fd, name, sys::mode(modes.directory))
            .map_err(|e| Error::io("create directory", self.path.join(name), e))?;
        self.open_child(name)
    }

    /// As [`Dir::ensure_child`]; the name of a new directory survives what `durability` promises.
    pub fn ensure_child_safe(
        &self,
        name: &str,
        modes: FileModes,
        durability: Durability,
    ) -> Result<Self> {
        if let Some(child) = allow_missing(self.open_child(name))? {
            return Ok(child);
        }
        let child = self.ensure_child(name, modes)?;
        if durability == Durability::Power {
            self.sync()?;
        }
        Ok(child)
    }

    /// Renames a non-empty directory into another one, never over an existing entry.
    pub fn move_tree_new(&self, name: &str, to: &Self, new_name: &str) -> Result<MoveOutcome> {
        let moved = match sys::rename_new(&self.fd, name.as_ref(), &to.fd, new_name) {
            // A plain rename of a directory replaces only an empty one.
            Err(Errno::INVAL | Errno::NOSYS) => fs::renameat(&self.fd, name, &to.fd, new_name),
            other => other,
        };
        to.move_outcome(moved, new_name)
    }

    /// Removes a directory with its files. If it has subdirectories, they and the directory stay.
    pub(crate) fn remove_tree(&self, name: &str) -> Result<()> {
        let Some(child) = allow_missing(self.open_child(name))? else { return Ok(()) };
        for file in child.names()? {
            child.remove(&file)?;
        }
        self.remove_empty(name).map(drop)
    }

    /// Removes a directory if it is empty; returns whether it is gone.
    pub(crate) fn remove_empty(&self, name: &str) -> Result<bool> {
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(e) => Err(Error::io("remove", self.path.join(name), e)),
        }
    }
}
