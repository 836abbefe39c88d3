//! Messages on their way from one queue to another: between a directory and servers, and out of the outbox of a host.

mod bridge;
mod outbox;

pub use bridge::{Bridge, BridgeReport, UnknownMailbox};
pub use outbox::{OUTBOX_CAPACITY_DEFAULT, Outbox, PostOutcome};

use crate::broker::Broker;
use crate::message::Envelope;
use crate::{Error, Result};

pub fn carry_attachment(from: &dyn Broker, to: &dyn Broker, envelope: &Envelope) -> Result<()> {
    match &envelope.attachment {
        Some(attachment) => to.attach(&from.attached(attachment)?).map(drop),
        None => Ok(()),
    }
}

/// Whether an error is about this message and not about the queue, and trying again does not help.
pub const fn concerns_message(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict { .. }
            | Error::NoMailbox { .. }
            | Error::TooLarge { .. }
            | Error::Malformed { .. }
    )
}
