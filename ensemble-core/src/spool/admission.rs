//! What a holder may begin and finish, decided by a layer above the mailboxes.

use std::fmt;

use crate::durable::Dir;
use crate::message::{Envelope, MessageId, Name};
use crate::{Error, Result};

/// Decides for each message whether a holder may receive and settle it.
///
/// A [`Spool`](super::Spool) asks the admission of its [`Options`](super::Options). Without one, each holder may
/// receive each message. [`PlanGates`](crate::requests::PlanGates) refuses tasks whose plan is not approved.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Whether some message may be refused to this holder. The spool calls [`Admission::refusal`] only then, so
    /// this is the whole cost of an everyday receive: one look into the open directory of the queue.
    ///
    /// # Errors
    /// The disk failed.
    fn concerns(&self, queue: &Dir, holder: &Name) -> Result<bool>;

    /// Why this holder may neither receive nor settle this message; `None` if it may do both.
    ///
    /// # Errors
    /// The disk failed.
    fn refusal(&self, queue: &Dir, holder: &Name, envelope: &Envelope) -> Result<Option<Error>>;

    /// Why this message may not be settled by any holder: it asks for something that is not there yet, such as the
    /// answer to a request. `None` if it may be settled.
    ///
    /// # Errors
    /// The disk failed.
    fn unfinished(&self, queue: &Dir, message: &MessageId) -> Result<Option<Error>> {
        let _ = (queue, message);
        Ok(None)
    }
}
