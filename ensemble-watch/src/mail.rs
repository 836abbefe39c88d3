//! The messages that wait for an agent, in a directory or on servers.

use std::collections::BTreeMap;

use ensemble_core::Result;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::Spool;

pub(crate) trait MailSource {
    /// The ids of up to `limit` messages that this agent could receive from a mailbox now.
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>>;
}

impl MailSource for Spool {
    fn due_ids_for(&self, mailbox: &Name, agent: &Name, limit: usize) -> Result<Vec<MessageId>> {
        Self::due_ids_for(self, mailbox, agent, limit)
    }
}

/// The messages that wait on servers, as the thread that follows them reported last.
#[derive(Debug, Default)]
pub(crate) struct RemoteMail(BTreeMap<Name, Vec<MessageId>>);

impl RemoteMail {
    /// Takes the messages that wait in a mailbox now. Returns the new ones.
    pub(crate) fn update_mailbox(&mut self, mailbox: Name, ids: Vec<MessageId>) -> Vec<MessageId> {
        let before = self.0.insert(mailbox.clone(), ids).unwrap_or_default();
        let now = self.0.get(&mailbox).into_iter().flatten();
        now.filter(|id| !before.contains(id)).cloned().collect()
    }
}

impl MailSource for RemoteMail {
    fn due_ids_for(&self, mailbox: &Name, _: &Name, limit: usize) -> Result<Vec<MessageId>> {
        Ok(self.0.get(mailbox).into_iter().flatten().take(limit).cloned().collect())
    }
}
