//! The blackboard and what stops the team, for a team on servers: this host's copy of both.

use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_nats::NatsTransport;
use ensemble_team::board::SharedCopy;

use super::SCAN_INTERVAL;
use crate::project::Project;

/// What this host knows of the shared blackboard.
pub(super) struct SharedBoard {
    /// When the copy is made new without news.
    next_copy: Monotonic,
}

impl SharedBoard {
    pub(super) const fn new(now: Monotonic) -> Self {
        Self { next_copy: now }
    }

    /// Makes the copy new, if something has changed or it was not made for long.
    pub(super) fn look(
        &mut self,
        now: Monotonic,
        project: &Project,
        queue: &NatsTransport,
    ) -> Result<()> {
        let Some(copy) = project.shared_copy() else { return Ok(()) };
        if !queue.shared_has_changed() && now < self.next_copy {
            return Ok(());
        }
        // One that fails is tried again in the next round.
        self.next_copy = now;
        SharedCopy::new(copy, queue).pull()?;
        self.next_copy = now + SCAN_INTERVAL;
        Ok(())
    }
}
