//! Keeps the lease of an instruction while Dispatch works on it.
//!
//! | the lease | what happens to it |
//! |---|---|
//! | a quarter of it has passed | it is extended |
//! | it has ended, and the message waits again | the message is received again, after a pause of the team |
//! | it has ended, and the message is a dead letter | the batch continues without a message |
//! | it has ended, and Dispatch holds the message again | it continues with that lease: the answer to a receive was lost |
//! | it has ended, and the message is settled or another agent's | the batch is left to the other process |
//!
//! A lease can have ended because servers did not answer, the machine slept, or this process was stopped. The batch
//! knows the tasks that were handed out until then, so none begins twice. On one host the batch's lock keeps a second
//! Dispatch away.

use std::time::{Duration, Instant};

use ensemble_core::broker::Broker;
use ensemble_core::env::Lease;
use ensemble_core::message::Name;
use ensemble_core::spool::State;
use ensemble_core::{Error, Result};

#[derive(Debug, Default)]
pub(super) struct InstructionHold {
    lease: Option<Lease>,
    extended: Option<(Instant, Duration)>,
}

impl InstructionHold {
    pub(super) const fn under(lease: Lease) -> Self {
        Self { lease: Some(lease), extended: None }
    }

    pub(super) const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Keeps the message by the table of this module; `false` if the batch is another process's.
    pub(super) fn extend_lease(&mut self, queue: &dyn Broker, actor: &Name) -> Result<bool> {
        let Some(lease) = &self.lease else { return Ok(true) };
        if self.extended.is_some_and(|(at, duration)| at.elapsed() < duration / 4) {
            return Ok(true);
        }
        let duration = queue.settings(&lease.mailbox)?.lease_duration();
        match queue.extend(lease, duration) {
            Err(Error::LeaseLost { .. }) => match queue.state(&lease.mailbox, &lease.id)? {
                Some(State::Queued { .. }) => {
                    let again = queue.receive_id(&lease.mailbox, &lease.id, actor)?;
                    let Some(again) = again else { return Ok(true) };
                    self.lease = Some(again.lease);
                }
                Some(State::Acked { holder, epoch }) if holder == *actor => {
                    self.lease = Some(Lease { holder, epoch, ..lease.clone() });
                    return Ok(true);
                }
                Some(State::Dead) => self.lease = None,
                Some(State::Acked { .. } | State::Settled) | None => return Ok(false),
            },
            extended => extended?,
        }
        self.extended = Some((Instant::now(), duration));
        Ok(true)
    }
}
