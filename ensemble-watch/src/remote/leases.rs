//! The leases of messages on servers.

use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::{Lease, Monotonic};
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_nats::NatsTransport;

use super::ServerFollower;
use crate::held_work::keep_mail;
use crate::rate_limit_hold;
use crate::requests::keep_gated;

impl ServerFollower {
    /// Takes back the leases of silent holders, and keeps those of working and parked agents and gated tasks.
    pub(super) fn look_at_leases(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let keeps = self.kept.next_timeout().is_some_and(|at| now >= at);
        if now < self.next_lease_look && !keeps && !self.leases.is_due(now) {
            return Ok(());
        }
        self.next_lease_look = now + LOOK_INTERVAL;
        // Each sight of a parked agent extends its leases once, so one that is not seen any more loses them.
        let (working, parked) =
            self.sighted(|sight| (sight.working.clone(), std::mem::take(&mut sight.parked)));
        let (held, recorder) = (self.leases.held().to_vec(), &*self.context.recorder);
        keep_mail(now, &held, &working, &mut self.kept, queue, recorder);
        let is_parked = |(lease, _): &&(Lease, Duration)| parked.contains(&lease.holder);
        rate_limit_hold::extend(held.iter().filter(is_parked), queue);
        crate::leases::expire_leases(&mut self.leases, queue, recorder)?;
        self.kept.remember(now);
        keep_gated(self.leases.held(), queue);
        Ok(())
    }
}
