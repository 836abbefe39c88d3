//! An open queue. Callers ask what it has (a directory, a team link) and not where it is.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::requests::RequestStore;
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::team_link::TeamLink;

#[derive(Clone)]
pub struct QueueAccess {
    /// The options of a directory. Servers take its recorder and its quota.
    pub options: SpoolOptions,
    /// Whether a team that the servers do not know begins.
    pub creates: bool,
    /// How long a call to servers may take, if that is less than configured.
    pub patience_max: Option<Duration>,
    /// Whether all calls together have that time.
    pub shares_patience: bool,
}

impl QueueAccess {
    /// Access to a team that exists, with the configured patience for each call.
    pub const fn new(options: SpoolOptions) -> Self {
        Self { options, creates: false, patience_max: None, shares_patience: false }
    }
}

/// An open queue. It is used as the [`Broker`] that it is.
pub struct OpenQueue {
    mail: Arc<dyn Broker>,
    store: Arc<dyn RequestStore + Send + Sync>,
    directory: Option<Arc<Spool>>,
    link: Option<Arc<dyn TeamLink>>,
}

impl Deref for OpenQueue {
    type Target = dyn Broker;

    fn deref(&self) -> &Self::Target {
        &*self.mail
    }
}

impl OpenQueue {
    pub fn in_directory(spool: Spool) -> Self {
        let spool = Arc::new(spool);
        let (mail, store) = (Arc::<Spool>::clone(&spool), Arc::<Spool>::clone(&spool));
        Self { mail, store, directory: Some(spool), link: None }
    }

    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no servers are connected to"))]
    pub(crate) fn of_team<T: Broker + RequestStore + TeamLink + 'static>(servers: Arc<T>) -> Self {
        let (mail, store) = (Arc::<T>::clone(&servers), Arc::<T>::clone(&servers));
        Self { mail, store, directory: None, link: Some(servers) }
    }

    pub fn request_store(&self) -> &dyn RequestStore {
        &*self.store
    }

    /// The requests, for a driver that keeps them.
    pub fn into_store(self) -> Arc<dyn RequestStore + Send + Sync> {
        self.store
    }

    pub fn directory(&self) -> Option<&Spool> {
        self.directory.as_deref()
    }

    /// What the hosts of a team share; `None` for a queue of one host.
    pub const fn team_link(&self) -> Option<&Arc<dyn TeamLink>> {
        self.link.as_ref()
    }
}
