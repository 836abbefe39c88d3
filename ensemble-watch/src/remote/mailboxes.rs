//! The mailboxes of this host and of the servers have the same names.

use ensemble_core::broker::Broker as _;
use ensemble_core::message::Name;
use ensemble_core::spool::Settings;
use ensemble_core::{Error, Result};
use ensemble_nats::NatsTransport;

use super::ServerFollower;

impl ServerFollower {
    pub(super) fn add(&self, queue: &NatsTransport, mailbox: &Name) -> Result<()> {
        let settings = self.spool.settings(mailbox).unwrap_or_else(|_| Settings::default());
        match queue.add_mailbox(mailbox, &settings) {
            Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Every mailbox is known here too, so that files on this host can be routed to it.
    pub(super) fn compare_names(&self, queue: &NatsTransport) -> Result<()> {
        let here = self.spool.mailboxes()?;
        let there = queue.all_mailboxes()?;
        for mailbox in here.iter().filter(|name| !there.contains(name)) {
            self.add(queue, mailbox)?;
        }
        for mailbox in there.iter().filter(|name| !here.contains(name)) {
            match self.spool.add_mailbox(mailbox, &queue.settings(mailbox)?) {
                Ok(()) | Err(Error::MailboxExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
