//! Whether a name is taken, also by one that differs only in case, for a process that adds many mailboxes.
//!
//! The first look lists all names. From the second one on, the process remembers them as long as the directory is as it
//! left it. It then has the same stamps, and as many links as there are directories in it. Otherwise the process lists
//! the names again, always so on file systems that count no such links.

use std::collections::HashSet;

use crate::Result;
use crate::durable::{Dir, FileStat};
use crate::message::Name;

/// Links of an empty directory: its name, and the `.` in it.
const LINKS_EMPTY: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct CaseTwins {
    /// How often a mailbox was added: with one, nothing is remembered.
    added: u64,
    known: Option<KnownNames>,
}

#[derive(Debug)]
struct KnownNames {
    directory: FileStat,
    /// In lower case.
    names: HashSet<Box<str>>,
}

impl CaseTwins {
    /// The mailbox that has this name already, or one that differs only in case.
    pub(super) fn find(&mut self, mailboxes: &Dir, name: &Name) -> Result<Option<Name>> {
        let directory = mailboxes.stat(".")?;
        let is_free = |known: &KnownNames| {
            Some(known.directory) == directory && !known.names.contains(&*folded(name.as_str()))
        };
        if self.known.as_ref().is_some_and(is_free) {
            return Ok(None);
        }
        self.known = None;
        let names = mailboxes.directories()?;
        let twin = names.iter().find(|other| other.eq_ignore_ascii_case(name.as_str()));
        let twin = twin.and_then(|other| Name::new(other).ok());
        if let Some(directory) = directory.filter(|it| it.links == LINKS_EMPTY + names.len() as u64)
            && self.added > 0
        {
            let names = names.iter().map(|name| folded(name)).collect();
            self.known = Some(KnownNames { directory, names });
        }
        Ok(twin)
    }

    /// Remembers that this process has made the directory of a mailbox.
    pub(super) fn note_added(&mut self, mailboxes: &Dir, name: &Name) {
        self.added += 1;
        let Some(mut known) = self.known.take() else { return };
        if let Ok(Some(directory)) = mailboxes.stat(".")
            && directory.links == known.directory.links + 1
        {
            known.directory = directory;
            known.names.insert(folded(name.as_str()));
            self.known = Some(known);
        }
    }
}

fn folded(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::name;

    fn add(twins: &mut CaseTwins, dir: &Dir, text: &str) -> Option<String> {
        let twin = twins.find(dir, &name(text)).unwrap();
        if twin.is_none() {
            std::fs::create_dir(dir.path().join(text)).unwrap();
            twins.note_added(dir, &name(text));
        }
        twin.map(String::from)
    }

    #[test]
    fn a_twin_is_found_also_one_that_another_process_has_made_and_one_that_is_gone_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (dir, mut twins) = (Dir::open(home.path()).unwrap(), CaseTwins::default());
        for text in ["one", "two", "three", "four"] {
            assert_eq!(add(&mut twins, &dir, text), None);
        }
        assert_eq!(add(&mut twins, &dir, "TWO"), Some("two".to_owned()));
        std::fs::create_dir(home.path().join("Five")).unwrap();
        assert_eq!(add(&mut twins, &dir, "five"), Some("Five".to_owned()));
        std::fs::remove_dir(home.path().join("three")).unwrap();
        assert_eq!(add(&mut twins, &dir, "Three"), None);
        std::fs::rename(home.path().join("one"), home.path().join("ONE")).unwrap();
        assert_eq!(add(&mut twins, &dir, "one"), Some("ONE".to_owned()));
    }

    /// Reads no listing again: on a file system that counts the links of directories.
    #[test]
    fn many_are_added_with_two_listings() {
        let home = tempfile::tempdir().unwrap();
        let (dir, mut twins) = (Dir::open(home.path()).unwrap(), CaseTwins::default());
        add(&mut twins, &dir, "mailbox-a");
        if dir.stat(".").unwrap().unwrap().links != LINKS_EMPTY + 1 {
            println!("skipped: the file system counts no links of directories");
            return;
        }
        for number in 0..100 {
            assert_eq!(add(&mut twins, &dir, &format!("mailbox-{number}")), None);
            assert!(twins.known.is_some(), "it would list all names for the next one");
        }
        assert_eq!(twins.known.unwrap().names.len(), 101);
    }
}
