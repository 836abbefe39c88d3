//! What the hooks of agents have left behind.

use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::Lease;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, State};
use ensemble_team::session::Carried;

/// Gives back a message that a hook has received and not handed over. A message that the hook has not received, or
/// that has gone on since, stays where it is.
///
/// # Errors
/// The mailbox cannot be read or changed.
pub fn give_back(spool: &Spool, agent: &Name, carried: &Carried) -> Result<bool> {
    let Carried { mailbox, id, epoch, .. } = carried;
    let state = spool.state(mailbox, id)?;
    let is_its = matches!(&state, Some(State::Acked { holder, epoch: at }) if holder == agent && at == epoch);
    if is_its {
        let (mailbox, id, holder) = (mailbox.clone(), id.clone(), agent.clone());
        spool.release(&Lease { mailbox, id, holder, epoch: *epoch }, Duration::ZERO)?;
    }
    Ok(is_its)
}
