//! Messages that are written again when more of them is known: the last one counts.

use std::collections::HashMap;

use super::UsageEntry;

/// The messages that were read, and where they are among the entries.
#[derive(Debug, Default)]
pub(super) struct ReadMessages(HashMap<String, usize>);

impl ReadMessages {
    pub(super) fn put(&mut self, id: String, entry: UsageEntry, entries: &mut Vec<UsageEntry>) {
        match self.0.get(&id) {
            Some(known) => entries[*known] = entry,
            None => {
                self.0.insert(id, entries.len());
                entries.push(entry);
            }
        }
    }
}
