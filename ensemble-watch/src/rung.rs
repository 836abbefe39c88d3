//! The mailboxes that a step has to look at.

use std::collections::BTreeMap;

use ensemble_core::message::Name;

/// Mailboxes, and how many messages were seen to be taken from each.
#[derive(Debug, Default)]
pub(crate) struct Rung(BTreeMap<Name, u64>);

impl Rung {
    /// Something has landed there.
    pub(crate) fn insert(&mut self, mailbox: Name) {
        self.0.entry(mailbox).or_default();
    }

    /// A message was taken from there.
    pub(crate) fn insert_taken(&mut self, mailbox: Name) {
        *self.0.entry(mailbox).or_default() += 1;
    }

    /// All that have rung since the last call.
    pub(crate) fn take(&mut self) -> BTreeMap<Name, u64> {
        std::mem::take(&mut self.0)
    }
}

impl Extend<Name> for Rung {
    fn extend<T: IntoIterator<Item = Name>>(&mut self, mailboxes: T) {
        mailboxes.into_iter().for_each(|mailbox| self.insert(mailbox));
    }
}
