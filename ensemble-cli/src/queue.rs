//! The mailboxes, wherever they are: in the queue's directory, or on the servers that `transport` in
//! `ensemble.yaml` names.

use std::ops::Deref;
use std::path::PathBuf;

use ensemble_core::broker::Broker;
use ensemble_core::message::{Attachment, Name};
#[cfg(feature = "nats")]
use ensemble_core::nats::NatsTransport;
use ensemble_core::spool::{Glance, Overflow, Spool};

use crate::context::Context;
use crate::exit::Outcome;

/// An open queue of either kind.
pub(crate) enum Queue {
    Directory(Spool),
    #[cfg(feature = "nats")]
    Servers(Box<NatsTransport>),
}

impl Deref for Queue {
    type Target = dyn Broker;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Directory(spool) => spool,
            #[cfg(feature = "nats")]
            Self::Servers(servers) => &**servers,
        }
    }
}

impl Queue {
    /// The queue of this project.
    pub(crate) fn open(context: &Context) -> Outcome<Self> {
        #[cfg(feature = "nats")]
        if let Some(options) = context.nats_options()? {
            return Ok(Self::Servers(Box::new(NatsTransport::connect(&options)?)));
        }
        Ok(Self::Directory(context.spool()?))
    }

    /// The directory, if it is one.
    pub(crate) const fn directory(&self) -> Option<&Spool> {
        match self {
            Self::Directory(spool) => Some(spool),
            #[cfg(feature = "nats")]
            Self::Servers(_) => None,
        }
    }

    /// A mailbox at a glance; in a directory counted up to `limit`.
    pub(crate) fn glance(&self, mailbox: &Name, limit: u64) -> ensemble_core::Result<Glance> {
        if let Some(spool) = self.directory() {
            return spool.glance(mailbox, limit);
        }
        let counts = self.scan(mailbox)?;
        let mut glance = Glance::default();
        (glance.waiting, glance.delayed) = (counts.queued, counts.delayed);
        (glance.held, glance.dead) = (counts.acked, counts.dead);
        Ok(glance)
    }

    /// How many messages wait; in a directory counted up to `limit`.
    pub(crate) fn waiting(&self, mailbox: &Name, limit: u64) -> ensemble_core::Result<u64> {
        match self.directory() {
            Some(spool) => spool.waiting(mailbox, limit),
            None => Ok(self.scan(mailbox)?.queued),
        }
    }

    /// What a full mailbox had to refuse; known for directories.
    pub(crate) fn overflow(&self, mailbox: &Name) -> ensemble_core::Result<Option<Overflow>> {
        self.directory().map_or(Ok(None), |spool| spool.overflow(mailbox))
    }

    /// Where attached content lies on this host.
    pub(crate) fn attachment_path(&self, attachment: &Attachment) -> Option<PathBuf> {
        self.directory().map(|spool| spool.attachment_path(attachment))
    }
}
