//! The mailboxes that a process has open, which are those it has used last. Each takes up to fifteen descriptors, so
//! their number fits a usual limit of open files (1,024). The knowledge of a backlog is kept when its mailbox is
//! closed to make room. So visiting many deep mailboxes in turn lists each of them only once, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::mailbox::OpenMailbox;
use super::waiting::WaitingBacklog;
use crate::durable::FileId;
use crate::message::Name;

/// How many mailboxes are open at a time, at most.
pub(super) const OPEN_MAX: usize = 48;
/// Descriptors that a process may have for each open mailbox: one takes up to 15, and the program needs some, too.
const DESCRIPTORS_EACH: u64 = 21;

pub(super) type KnownBacklog = Arc<Mutex<WaitingBacklog>>;

#[derive(Debug, Default)]
pub(super) struct MailboxCache {
    open: HashMap<Name, (u64, Arc<OpenMailbox>)>,
    /// By name, and for which directory that holds.
    known: HashMap<Name, (FileId, KnownBacklog)>,
    uses: u64,
}

impl MailboxCache {
    /// An open mailbox, unless its directory was replaced.
    pub(super) fn get(&mut self, name: &Name) -> Option<Arc<OpenMailbox>> {
        self.uses += 1;
        let (used, mailbox) = self.open.get_mut(name)?;
        if mailbox.is_current() {
            *used = self.uses;
            return Some(Arc::clone(mailbox));
        }
        self.open.remove(name);
        None
    }

    /// An open mailbox, whether or not its directory was replaced.
    pub(super) fn get_known(&mut self, name: &Name) -> Option<Arc<OpenMailbox>> {
        self.uses += 1;
        let (used, mailbox) = self.open.get_mut(name)?;
        *used = self.uses;
        Some(Arc::clone(mailbox))
    }

    /// Keeps a mailbox that was just opened; another one may be closed for it once no thread uses it.
    pub(super) fn insert(&mut self, mut mailbox: OpenMailbox) -> Arc<OpenMailbox> {
        if let Some((identity, known)) = self.known.remove(&mailbox.name)
            && identity == mailbox.identity
        {
            mailbox.waiting = known;
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        while self.open.len() >= open_max(limit) {
            let last = self.open.iter().min_by_key(|(_, (used, _))| *used);
            let Some(name) = last.map(|(name, _)| name.clone()) else { break };
            self.close(&name);
        }
        let mailbox = Arc::new(mailbox);
        self.open.insert(mailbox.name.clone(), (self.uses, Arc::clone(&mailbox)));
        mailbox
    }

    /// Forgets a mailbox whose directories are not what they were.
    pub(super) fn remove(&mut self, name: &Name) {
        self.open.remove(name);
        self.known.remove(name);
    }

    pub(super) fn close_all(&mut self) -> bool {
        let names: Vec<Name> = self.open.keys().cloned().collect();
        names.iter().for_each(|name| self.close(name));
        !names.is_empty()
    }

    fn close(&mut self, name: &Name) {
        if let Some((_, mailbox)) = self.open.remove(name) {
            // Does not wait for a thread that uses it, perhaps for a long listing.
            let waiting = &mailbox.waiting;
            let is_used = Arc::strong_count(&mailbox) > 1 || Arc::strong_count(waiting) > 1;
            let knows = || waiting.lock().unwrap_or_else(PoisonError::into_inner).knows_something();
            if is_used || knows() {
                let known = (mailbox.identity, Arc::clone(&mailbox.waiting));
                self.known.insert(name.clone(), known);
            }
        }
    }
}

fn open_max(descriptors: Option<u64>) -> usize {
    let of_limit = descriptors.map_or(OPEN_MAX as u64, |limit| limit / DESCRIPTORS_EACH);
    usize::try_from(of_limit).unwrap_or(OPEN_MAX).clamp(1, OPEN_MAX)
}

#[cfg(test)]
mod tests {
    use crate::durable::Durability;
    use crate::message::{Envelope, Name};
    use crate::spool::{Spool, SpoolOptions};

    use super::*;

    fn spool(home: &std::path::Path, mailboxes: &[Name]) -> Spool {
        let options = SpoolOptions::default().with_durability(Durability::Process);
        let spool = Spool::create(&home.join("queue"), options).unwrap();
        for mailbox in mailboxes {
            std::fs::create_dir(spool.root().join("mailbox").join(mailbox.as_str())).unwrap();
        }
        spool
    }

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(|number| Name::new(format!("worker-{number}")).unwrap()).collect()
    }

    /// Counts this process's open descriptors below the queue.
    fn descriptors(spool: &Spool) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        paths.filter(|path| path.starts_with(spool.root())).count()
    }

    #[test]
    fn many_mailboxes_take_few_descriptors() {
        let home = tempfile::tempdir().unwrap();
        let names = names(3 * OPEN_MAX);
        let spool = spool(home.path(), &names);
        for name in &names {
            spool.publish(&Envelope::new(name.clone(), "x")).unwrap();
        }
        let most = descriptors(&spool);
        assert!(most > OPEN_MAX && most <= 15 * OPEN_MAX, "{most}");
        for name in &names {
            let delivery = spool.receive(name, name).unwrap().unwrap();
            spool.settle(&delivery.lease).unwrap();
        }
        assert!(descriptors(&spool) <= most);
        // With the limit of macOS, and with none.
        assert_eq!(
            [Some(256), Some(1_024), None, Some(0)].map(open_max),
            [12, OPEN_MAX, OPEN_MAX, 1]
        );
    }

    #[test]
    fn what_is_known_of_a_backlog_outlives_a_close_and_not_another_directory() {
        let home = tempfile::tempdir().unwrap();
        let names = names(OPEN_MAX + 1);
        let spool = spool(home.path(), &names);
        let (deep, others) = names.split_first().unwrap();
        for number in 0..3 {
            spool.publish(&Envelope::new(deep.clone(), format!("{number}"))).unwrap();
        }
        let body = || spool.receive(deep, deep).unwrap().unwrap().envelope.body;
        let known = || {
            let mailbox = spool.mailbox(deep).unwrap();
            mailbox.waiting.lock().unwrap().knows_something()
        };
        let close = || others.iter().for_each(|name| drop(spool.mailbox(name).unwrap()));
        assert_eq!(body(), "0");
        close();
        assert!(known(), "its listing was made again");
        assert_eq!(body(), "1");
        close();
        let new = spool.root().join("mailbox").join(deep.as_str()).join("new");
        std::fs::rename(&new, home.path().join("away")).unwrap();
        assert!(!known(), "a listing of a directory that is not there any more");
    }
}
