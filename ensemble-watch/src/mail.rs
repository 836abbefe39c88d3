//! What waits for an agent, wherever its mailbox is.

use std::collections::BTreeMap;

use ensemble_core::Result;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::Spool;

/// Where notifier learn what waits.
pub(crate) trait Mail {
    /// The ids of up to `limit` messages that this agent could receive from a mailbox now.
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>>;
}

impl Mail for Spool {
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>> {
        Self::due_ids_for(self, mailbox, agent, limit)
    }
}

/// What the thread that follows the servers has told of the mailboxes there.
#[derive(Debug, Default)]
pub(crate) struct RemoteMail(BTreeMap<Name, Vec<MessageId>>);

impl RemoteMail {
    /// What waits in a mailbox now. Returns whether something is there that was not before.
    pub(crate) fn take(&mut self, mailbox: Name, ids: Vec<MessageId>) -> Vec<MessageId> {
        let before = self.0.insert(mailbox.clone(), ids).unwrap_or_default();
        let now = self.0.get(&mailbox).into_iter().flatten();
        now.filter(|id| !before.contains(id)).cloned().collect()
    }
}

impl Mail for RemoteMail {
    fn due_ids_for(&self, mailbox: &Name, _: &Name, limit: usize) -> Result<Vec<MessageId>> {
        Ok(self.0.get(mailbox).into_iter().flatten().take(limit).cloned().collect())
    }
}
