//! Settling, as the command and the MCP server do it: a request without an answer is not settled, and the end
//! of a task is recorded.

use ensemble_core::env::Lease;
use ensemble_core::event_log::Recorder;
use ensemble_core::requests::{Kinds, Requests, Undecided};
use ensemble_team::driver::TaskEnds;

use crate::exit::say;
use crate::queue::Queue;

/// What settling needs to know of a project.
pub(crate) struct Settling<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) kinds: Kinds,
    pub(crate) ends: TaskEnds,
    pub(crate) recorder: &'a dyn Recorder,
}

impl Settling<'_> {
    /// Settles a held message.
    ///
    /// # Errors
    /// As for [`Spool::settle`](ensemble_core::spool::Spool::settle). [`Undecided`] also for a request that
    /// another program has sent under an id of its own.
    pub(crate) fn settle(self, lease: &Lease) -> ensemble_core::Result<()> {
        // What cannot be read asks nothing and ends no task; settling tells what has become of it.
        let envelope = self.queue.peek(&lease.mailbox, &lease.id).ok();
        if let Some(envelope) = &envelope {
            let requests = Requests::new(self.queue.request_store()).with_kinds(self.kinds);
            if let Some(entry) = requests.undecided(envelope)? {
                return Err(Undecided { request: entry.request.request_id }.into());
            }
        }
        self.queue.settle(lease)?;
        if let Some(envelope) = &envelope
            && let Err(error) = self.ends.settled(envelope, &lease.holder, self.recorder)
        {
            // It is settled all the same.
            say(&format!("warning: the end of the task is not in the log: {error}"));
        }
        Ok(())
    }
}
