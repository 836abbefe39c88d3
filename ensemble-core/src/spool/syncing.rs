//! Makes a moved message survive a power cut at `durability: power`.
//!
//! Where names go with files, it is renamed and its file is synced. Elsewhere, its content is synced before and the
//! directory after the rename. `docs/protocol/durability.md` says which file systems these are, and why.

use super::Spool;
use super::mailbox::OpenMailbox;
use crate::durable::{self, Dir, Durability, SyncReach};
use crate::{Error, Result};

/// Messages whose files are synced at the same time. Each needs a descriptor.
pub(super) const SYNCED_AT_ONCE: usize = 32;

impl Spool {
    pub(super) fn is_power(&self) -> bool {
        self.options.durability == Durability::Power
    }

    pub(super) fn sync_power(&self, dir: &Dir) -> Result<()> {
        match self.options.durability {
            Durability::Power => dir.sync(),
            Durability::Process => Ok(()),
        }
    }

    /// Makes messages that were moved to these names of a directory survive a power cut there. One that has moved on
    /// since is not this caller's any more.
    pub(super) fn sync_moved(
        &self,
        mailbox: &OpenMailbox,
        dir: &Dir,
        names: &[String],
    ) -> Result<()> {
        if !self.is_power() || names.is_empty() {
            return Ok(());
        }
        if !mailbox.names_go_with_files() {
            return mailbox.sync_names(dir);
        }
        // The last name has all before it go with it; the last that has not moved on, those before that one.
        let is_one_enough = mailbox.sync_reach() >= SyncReach::EarlierNames;
        let mut files = Vec::new();
        for name in names.iter().rev() {
            match dir.open_file(name) {
                Ok(file) => files.extend(file.map(|file| (file, dir.path().join(name)))),
                // A dead letter may be a link or a directory.
                Err(Error::Malformed { .. }) => dir.sync()?,
                Err(error) => return Err(error),
            }
            if files.len() == if is_one_enough { 1 } else { SYNCED_AT_ONCE } {
                self.syncs.sync_with_names(&files)?;
                files.clear();
                if is_one_enough {
                    return Ok(());
                }
            }
        }
        self.syncs.sync_with_names(&files)
    }

    /// The first process may have been killed before its sync. The sender, which repeats the
    /// publish, is about to learn that the message is stored.
    pub(super) fn make_safe(&self, mailbox: &OpenMailbox, dir: &Dir, file: &str) -> Result<()> {
        if !self.is_power() {
            return Ok(());
        }
        let Some(open) = dir.open_file(file)? else { return Ok(()) };
        let path = dir.path().join(file);
        if mailbox.names_go_with_files() {
            return durable::sync_file_and_name(&open, &path);
        }
        durable::sync_file(&open, &path)?;
        dir.sync()
    }
}
