//! Which user must own a name's files: if each agent runs as its own user, the file system proves
//! who wrote what.
//!
//! ```text
//! the file's owner                       the name it is written in
//! who owns the queue (the watcher)       any: it writes for others, and has looked itself
//! the user of that name                  this one
//! the user of other names only           refused
//! any user, and the name has a user      refused, unless it is that user
//! a user without a name, and a name without a user    as everywhere
//! ```
//!
//! A file with several hard links may have another author than the user who put it there. So it is
//! refused wherever a name has a user.

use std::collections::BTreeMap;

use super::Spool;
use super::place::HeldFile;
use crate::durable::{self, FileStat};
use crate::env::Lease;
use crate::message::Name;
use crate::{Error, Result};

/// The users of names, as numbers (`id -u`). A name has no user unless one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    users: BTreeMap<Name, u32>,
}

impl Owners {
    pub fn new(users: impl IntoIterator<Item = (Name, u32)>) -> Self {
        Self { users: users.into_iter().collect() }
    }

    pub fn user(&self, name: &Name) -> Option<u32> {
        self.users.get(name).copied()
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Why a file was not written by `name`; `None` if it may have been. `keeper` is the user who owns
    /// the queue.
    pub fn refuse(&self, name: &Name, file: &FileStat, keeper: u32) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        if file.links != 1 {
            return Some(format!("has {} names, so its owner proves nothing", file.links));
        }
        if file.owner == keeper || self.user(name) == Some(file.owner) {
            return None;
        }
        if let Some(user) = self.user(name) {
            return Some(format!(
                "is written as `{name}`, user {user}, and is user {}'s",
                file.owner
            ));
        }
        let (whose, _) = self.users.iter().find(|(_, user)| **user == file.owner)?;
        Some(format!("is written as `{name}`, and is user {}'s, who is `{whose}`", file.owner))
    }
}

/// # Owners of files
impl Spool {
    /// Why a file was not written by `name`; `None` if it may have been, or no name has a user.
    pub fn refuse_owner(&self, name: &Name, file: &FileStat) -> Result<Option<String>> {
        let owners = &self.options().owners;
        if owners.is_empty() {
            return Ok(None);
        }
        let missing = || Error::NoQueue { path: self.root().to_owned() };
        let keeper = durable::stat_path(self.root())?.ok_or_else(missing)?.owner;
        Ok(owners.refuse(name, file, keeper))
    }

    /// Whether the file of a held message belongs to the user that is set for its sender. Another agent can then
    /// have written it only if it runs as that user.
    pub fn proves_sender(&self, lease: &Lease, sender: &Name) -> Result<bool> {
        let Some(user) = self.options().owners.user(sender) else { return Ok(false) };
        let mailbox = self.mailbox(&lease.mailbox)?;
        let file = mailbox.cur.stat(&HeldFile::from(lease).file())?;
        Ok(file.is_some_and(|file| file.owner == user && file.links == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPER: u32 = 1000;

    #[test]
    fn each_row_of_the_table() {
        let name = |name: &str| Name::new(name).unwrap();
        let owners = Owners::new([(name("worker-1"), 1001), (name("worker-2"), 1002)]);
        let home = tempfile::tempdir().unwrap();
        let mut file = durable::stat_path(home.path()).unwrap().unwrap();
        file.links = 1;
        let mut refused = |owner, by: &str| {
            file.owner = owner;
            owners.refuse(&name(by), &file, KEEPER)
        };
        assert_eq!(refused(KEEPER, "worker-1"), None);
        assert_eq!(refused(1001, "worker-1"), None);
        let other = refused(1002, "worker-1").unwrap();
        assert_eq!(other, "is written as `worker-1`, user 1001, and is user 1002's");
        assert!(refused(1003, "worker-1").is_some());
        let to_be_boss = refused(1001, "operator").unwrap();
        assert_eq!(to_be_boss, "is written as `operator`, and is user 1001's, who is `worker-1`");
        assert_eq!(refused(1003, "operator"), None);
        (file.owner, file.links) = (1001, 2);
        assert!(owners.refuse(&name("worker-1"), &file, KEEPER).unwrap().contains("2 names"));
        assert_eq!(Owners::default().refuse(&name("worker-1"), &file, KEEPER), None);
    }
}
