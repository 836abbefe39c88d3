//! Messages of hosts and agents with limited credentials: stored in their mailboxes by each host that may.

use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_nats::NatsTransport;

use super::ServerFollower;

/// The source of these messages, in the log and among the troubles.
const SOURCE: &str = "handed in";

impl ServerFollower {
    /// Stores what was handed in. A full mailbox is tried again later, and holds up no other.
    pub(super) fn store_handed_in(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let waiting = queue.handed_in_mailboxes();
        let carry = |mailbox: &Name| queue.carry_handed_in(mailbox);
        let carried = self.carrier.carry(now, SOURCE, &waiting, carry, &mut self.troubles)?;
        self.note_carried(SOURCE, &carried);
        Ok(())
    }
}
