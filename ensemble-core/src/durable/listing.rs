//! Lists directories with as few system calls as possible.

use std::ops::ControlFlow;

use rustix::fs::FileType;

use super::Dir;
use crate::{Error, Result, sys};

impl Dir {
    /// As [`Dir::for_each`], from this descriptor itself: for a directory that was opened to be listed once.
    pub(crate) fn read_once(&self, mut visit: impl FnMut(&str) -> ControlFlow<()>) -> Result<()> {
        let listed = sys::list(&self.fd, |name, _| match name.to_bytes() {
            b"." | b".." => ControlFlow::Continue(()),
            _ => name.to_str().map_or(ControlFlow::Continue(()), &mut visit),
        });
        listed.map_err(|e| Error::io("list", &self.path, e))
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
}
