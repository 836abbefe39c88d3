//! Whole directories: built elsewhere, moved into place at once, and removed the same way.

use std::io;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{Dir, Durability, Modes, Moved};
use crate::{Error, Result, sys};

impl Dir {
    /// Creates a directory below this one, which must not exist.
    pub(crate) fn make_child(&self, name: &str, modes: Modes) -> Result<Self> {
        fs::mkdirat(&self.fd, name, sys::mode(modes.directory))
            .map_err(|e| Error::io("create directory", self.path.join(name), e))?;
        self.open_child(name)
    }

    /// As [`Dir::ensure_child`]; the name of a new directory survives what `durability` promises.
    pub fn ensure_child_safe(
        &self,
        name: &str,
        modes: Modes,
        durability: Durability,
    ) -> Result<Self> {
        match self.open_child(name) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {}
            other => return other,
        }
        let child = self.ensure_child(name, modes)?;
        if durability == Durability::Power {
            self.sync()?;
        }
        Ok(child)
    }

    /// Renames a non-empty directory into another one, never over an existing entry.
    pub fn move_tree_new(&self, name: &str, to: &Self, new_name: &str) -> Result<Moved> {
        let moved = match sys::rename_new(&self.fd, name.as_ref(), &to.fd, new_name) {
            // A plain rename of a directory replaces only an empty one.
            Err(Errno::INVAL | Errno::NOSYS) => fs::renameat(&self.fd, name, &to.fd, new_name),
            other => other,
        };
        match moved {
            Ok(()) => Ok(Moved::Done),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(Moved::Exists),
            Err(Errno::NOENT) => Ok(Moved::Gone),
            Err(e) => Err(Error::io("move to", to.path.join(new_name), e)),
        }
    }

    /// Removes a directory with its files. If it has subdirectories, they and the directory stay.
    pub(crate) fn remove_tree(&self, name: &str) -> Result<()> {
        let child = match self.open_child(name) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => return Ok(()),
            other => other?,
        };
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
