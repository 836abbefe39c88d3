//! Opens a project's queue: the only place that decides whether the mailboxes are in the queue's directory or on servers.

use std::sync::Arc;

use ensemble_core::event_log::NullRecorder;
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_core::transfer::{OUTBOX_CAPACITY_DEFAULT, Outbox};
use ensemble_core::{Error, Result};
use ensemble_team::silence::SilentPeer;

use crate::open_queue::{OpenQueue, QueueAccess};
use crate::project::Project;
use crate::servers::connect;

impl Project {
    /// Opens the queue, wherever `transport` in `ensemble.yaml` says it is.
    pub fn open(&self, access: QueueAccess) -> Result<OpenQueue> {
        match self.servers()? {
            Some(servers) => {
                let opened = connect(self, servers, access);
                match &opened {
                    Ok(_) => SilentPeer::Team.end_silence(&self.state),
                    Err(Error::Server { server, detail, .. }) => {
                        SilentPeer::Team.record_silence(&self.state, server, detail);
                    }
                    Err(_) => {}
                }
                opened
            }
            None => Ok(OpenQueue::in_directory(Spool::open(&self.queue, access.options)?)),
        }
    }

    pub fn open_unrecorded(&self) -> Result<OpenQueue> {
        self.open(QueueAccess::new(self.spool_options(Arc::new(NullRecorder))))
    }

    pub fn open_outbox(&self) -> Result<Outbox> {
        self.ensure_state()?;
        let capacity = self.config.nats.outbox_capacity.unwrap_or(OUTBOX_CAPACITY_DEFAULT);
        let durability = self.config.durability.unwrap_or_default();
        let options = SpoolOptions { durability, ..SpoolOptions::default() };
        Outbox::open(&self.outbox(), capacity.max(1), options)
    }
}
