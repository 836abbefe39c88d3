//! The ladders of mailboxes on servers: this host claims a mailbox before it runs them.

use std::ops::Deref;

use ensemble_core::Result;
use ensemble_core::message::Name;
use ensemble_nats::{ClaimReason, LadderClaims, NatsTransport};
use ensemble_project::Project;

use crate::ForegroundHost;
use crate::ladders::Claims;

/// The claims of this host on these servers.
pub(crate) struct ServerClaims<Q> {
    queue: Q,
    claims: LadderClaims,
}

impl<Q> ServerClaims<Q> {
    pub(crate) fn new(project: &Project, queue: Q) -> Self {
        Self { queue, claims: LadderClaims::new(&project.state) }
    }
}

impl<Q: Deref<Target = NatsTransport> + Send + Sync> Claims for ServerClaims<Q> {
    fn hold(&self, mailbox: &Name, has_reader: bool, is_handing_out: bool) -> Result<bool> {
        let reason = match (has_reader, is_handing_out) {
            (true, _) => ClaimReason::Reads,
            (false, true) => ClaimReason::HandsOut,
            (false, false) => ClaimReason::Sees,
        };
        self.claims.hold(&self.queue, mailbox, reason)
    }

    fn may_have_task(&self, mailbox: &Name) -> bool {
        // If that is not known, a look will tell.
        self.queue.may_have_task(mailbox).unwrap_or(true)
    }
}

impl<'q> ForegroundHost<'q> {
    /// The agents of this project, whose mailboxes are on these servers.
    ///
    /// # Errors
    /// The configured profiles cannot be used.
    pub fn over_servers(project: &Project, queue: &'q NatsTransport) -> Result<Self> {
        Ok(ForegroundHost::new(project)?.with_claims(Box::new(ServerClaims::new(project, queue))))
    }
}
