//! The mailboxes of this host and of the servers have the same names.

use std::collections::BTreeSet;

use ensemble_core::broker::Broker as _;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::Name;
use ensemble_core::spool::Settings;
use ensemble_core::{Error, Result};
use ensemble_nats::NatsTransport;

use super::ServerFollower;

impl ServerFollower {
    pub(super) fn add(&self, queue: &NatsTransport, mailbox: &Name) -> Result<()> {
        let settings = self.context.spool.settings(mailbox).unwrap_or_else(|_| Settings::default());
        match queue.add_mailbox(mailbox, &settings) {
            Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Every mailbox is known here too, so that files on this host can be routed to it. Those of this host come last,
    /// because limited credentials may add none to the servers.
    pub(super) fn compare_names(&self, queue: &NatsTransport) -> Result<()> {
        let here = BTreeSet::from_iter(self.context.spool.mailboxes()?);
        let there = BTreeSet::from_iter(queue.all_mailboxes()?);
        let known = visit_all_mailboxes(&there - &here, |mailbox| {
            match self.context.spool.add_mailbox(mailbox, &queue.settings(mailbox)?) {
                Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        });
        visit_all_mailboxes(&here - &there, |mailbox| self.add(queue, mailbox)).and(known)
    }
}
