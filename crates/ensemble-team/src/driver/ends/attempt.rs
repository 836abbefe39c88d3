//! Which attempt at a task an agent reports on.
//!
//! ```text
//! messages of the task in the agent's own mailbox      the report is of
//! received, and not settled                            the latest attempt among them
//! one of another batch that was never received         the task: it may be the end of that one
//! all others settled, or never received                the attempt of the one that ended last
//! none names an attempt                                the task
//! ```
//!
//! A report that is repeated after a kill finds its message settled, and maybe the next attempt unread beside it. It
//! speaks of the first one.

use super::{SEARCH_MAX, TaskEnds};
use ensemble_core::broker::Broker;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Found, State};
use ensemble_core::{Result, allow_no_mailbox};

impl TaskEnds {
    pub fn attempt(&self, queue: &dyn Broker, task: &str, author: &Name) -> Result<Option<u32>> {
        let found = allow_no_mailbox(queue.unfinished(author, SEARCH_MAX))?;
        let Some(found) = found else { return Ok(None) };
        let of_task = |id: &MessageId| {
            let envelope = queue.peek(author, id).ok()?;
            (envelope.handed_over_task() == Some(task)).then_some(envelope)
        };
        let (received, unread): (Vec<Found>, Vec<Found>) =
            found.into_iter().partition(was_received);
        let open = received.iter().filter_map(|found| of_task(&found.id)?.attempt);
        if let Some(latest) = open.max() {
            return Ok(Some(latest));
        }
        let ended = self.record_of(task)?.messages;
        let mut ended = ended.iter().rev().filter_map(|id| MessageId::new(id.as_str()).ok());
        let Some(last) = ended.find_map(|id| of_task(&id)) else { return Ok(None) };
        let is_of_another = |new: Envelope| new.correlation_id != last.correlation_id;
        let has_another = unread.iter().filter_map(|found| of_task(&found.id)).any(is_of_another);
        Ok(last.attempt.filter(|_| !has_another))
    }
}

fn was_received(found: &Found) -> bool {
    match found.state {
        State::Acked { .. } => true,
        State::Queued { epoch, .. } => epoch > 0,
        State::Settled | State::Dead => false,
    }
}
