//! Lists directories with as few system calls as possible.

use std::ffi::{CStr, OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::Dir;
use crate::{Error, Result, sys};

/// Ends a listing once it `is_done`.
pub(crate) const fn stop_if(is_done: bool) -> ControlFlow<()> {
    if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

impl Dir {
    /// Passes every entry (except `.` and `..`) to `visit` until it breaks. Names that are not
    /// UTF-8 are skipped: Ensemble creates none, and [`Dir::strange_names`] has them.
    pub fn for_each(&self, mut visit: impl FnMut(&str) -> ControlFlow<()>) -> Result<()> {
        self.for_each_entry(|name, _| name.to_str().map_or(ControlFlow::Continue(()), &mut visit))
    }

    /// As [`Dir::for_each`], from this descriptor itself: for a directory that was opened to be listed once.
    pub(crate) fn read_once(&self, mut visit: impl FnMut(&str) -> ControlFlow<()>) -> Result<()> {
        self.read_entries(&self.fd, |name, _| {
            name.to_str().map_or(ControlFlow::Continue(()), &mut visit)
        })
    }

    /// As [`Dir::for_each`], until the first error.
    pub(crate) fn try_for_each(
        &self,
        mut visit: impl FnMut(&str) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut failed = None;
        self.for_each(|name| {
            visit(name).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        })?;
        failed.map_or(Ok(()), Err)
    }

    pub fn names(&self) -> Result<Vec<String>> {
        self.list(|name| Some(name.to_owned()))
    }

    /// What `read` makes of the names, of which it leaves some out.
    pub(crate) fn list<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
        let mut listed = Vec::new();
        self.for_each(|name| {
            listed.extend(read(name));
            ControlFlow::Continue(())
        })?;
        Ok(listed)
    }

    /// All names that are not UTF-8.
    pub fn strange_names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        self.for_each_entry(|name, _| {
            if name.to_str().is_err() {
                names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// Names of the directories in this one, unordered. On most file systems, the listing includes the kinds of
    /// entries.
    pub(crate) fn directories(&self) -> Result<Vec<String>> {
        let (mut names, mut unknown) = (Vec::new(), Vec::new());
        self.for_each_entry(|name, kind| {
            if let Ok(name) = name.to_str() {
                match kind {
                    FileType::Directory => names.push(name.to_owned()),
                    FileType::Unknown => unknown.push(name.to_owned()),
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        })?;
        for name in unknown {
            if self.stat(&name)?.is_some_and(|stat| stat.is_directory) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn for_each_entry(&self, visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>) -> Result<()> {
        // Another descriptor has its own reading position.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| fs::openat(&self.fd, ".", flags, Mode::empty()));
        self.read_entries(&fd.map_err(|e| Error::io("list", &self.path, e))?, visit)
    }

    fn read_entries(
        &self,
        fd: &OwnedFd,
        mut visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
    ) -> Result<()> {
        let listed = sys::list(fd, |name, kind| match name.to_bytes() {
            b"." | b".." => ControlFlow::Continue(()),
            _ => visit(name, kind),
        });
        listed.map_err(|e| Error::io("list", &self.path, e))
    }
}
