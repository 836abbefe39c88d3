//! Requests: a question whose first answer is final, such as a shutdown or the approval of a plan.

use std::time::{Duration, Instant};

use super::mailbox::deadline_in;
use super::message::read_content;
use super::{Draft, IntoName, Mailbox, Message, Queue};
use crate::message::Name;
use crate::proto::request::{Decision, Outcome};
use crate::requests::{NewRequest, REQUESTS, RequestEntry, Requests};
use crate::watch::POLL_WITH_EVENTS;
use crate::{Error, Result};

/// A request that this process has made, or looks at; made by [`Mailbox::request`].
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::{Draft, Outcome, Queue};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let (lead, worker) = (queue.mailbox("lead")?, queue.mailbox("worker-1")?);
/// let request = lead.request(&worker, Draft::new("enough for today").kind("shutdown"))?;
/// println!("{} is pending: {:?}", request.id(), request.decision()?); // or `cancel` it
/// let asked = worker.try_recv()?.expect("the request");
/// asked.approve("bye")?; // or `decline`; the first answer is final
/// let decision = request.wait(Duration::from_secs(60))?.expect("a decision");
/// assert_eq!((decision.outcome, decision.comment.as_str()), (Outcome::Approved, "bye"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PendingRequest {
    queue: Queue,
    id: Name,
    requester: Name,
}

impl PendingRequest {
    /// The id of the request, which its messages carry as their correlation.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// The answer, if there is one. A deadline that has passed is one, too.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn decision(&self) -> Result<Option<Decision>> {
        let entry = self.requests().expire(&self.id)?;
        Ok(entry.and_then(|entry| entry.decision))
    }

    /// Waits for the answer, at most this long.
    ///
    /// # Errors
    /// As for [`decision`](Self::decision).
    pub fn wait(&self, longest: Duration) -> Result<Option<Decision>> {
        let deadline = deadline_in(longest);
        let place = self.queue.root().join(REQUESTS).join(self.id.as_str());
        let files = self.queue.spool().wait_for_files([place]);
        loop {
            let decision = self.decision()?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if decision.is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(decision);
            }
            files.sleep(left.map_or(POLL_WITH_EVENTS, |left| left.min(POLL_WITH_EVENTS)), None);
        }
    }

    /// Takes the request back, where there is no [`decision`](Self::decision) yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if it was decided before.
    pub fn cancel(&self, why: impl AsRef<str>) -> Result<()> {
        let cancelled = self.requests().cancel(self.id(), &self.requester, why.as_ref());
        cancelled.map(drop).map_err(Error::without_area)
    }

    fn requests(&self) -> Requests<'_> {
        Requests::new(&**self.queue.spool())
    }
}

impl Mailbox {
    /// Asks for a decision: the draft's kind is `shutdown` or `plan_approval`, its task the one that a plan is for,
    /// its expiry the deadline, at least 1 s, and its id that of the request; its priority and its correlation are
    /// not used. The addressee receives it as a message, which it [approves](Message::approve) or
    /// [declines](Message::decline). Unlike [`ask`](Self::ask), only the addressee may answer, and its first
    /// answer is final. [`PendingRequest`] has an example.
    ///
    /// # Errors
    /// As for [`Queue::send`], or [`Error::Refused`]: the kind is not known, or an earlier plan is pending.
    pub fn request(&self, to: impl IntoName, draft: impl Into<Draft>) -> Result<PendingRequest> {
        let to = to.into_name()?;
        let draft = draft.into().without_delay()?;
        let id = draft.id.clone();
        let envelope = draft.into_envelope(self.queue(), to.clone(), Some(self.name()))?;
        let requester = envelope.from.clone();
        let content = read_content(self.queue(), &envelope)?;
        let mut ask = NewRequest::new(envelope.kind.as_str(), requester.clone(), to, content);
        if let Some(task) = envelope.task_id {
            ask = ask.with_task(task);
        }
        if let Some(deadline) = envelope.expires_at {
            // 0 would not wait for an answer.
            ask = ask.with_deadline_seconds(deadline.since(envelope.created_at).as_secs().max(1));
        }
        if let Some(id) = id {
            ask = ask.with_id(id.as_str());
        }
        let RequestEntry { request, .. } =
            Requests::new(&**self.queue().spool()).ask(ask).map_err(Error::without_area)?;
        Ok(PendingRequest { queue: self.queue().clone(), id: request.request_id, requester })
    }
}

impl Message {
    /// Approves the request that this message asks, and settles the message; [`PendingRequest`] has an example.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a request, or was decided before. Otherwise as for [`Message::settle`].
    pub fn approve(&self, comment: impl AsRef<str>) -> Result<()> {
        self.answer(Outcome::Approved, comment.as_ref())
    }

    /// Declines the request that this message asks, and settles the message; [`PendingRequest`] has an example.
    ///
    /// # Errors
    /// As for [`Message::approve`].
    pub fn decline(&self, comment: impl AsRef<str>) -> Result<()> {
        self.answer(Outcome::Rejected, comment.as_ref())
    }

    fn answer(&self, outcome: Outcome, comment: &str) -> Result<()> {
        let requests = Requests::new(&**self.queue().spool());
        let is_approved = outcome == Outcome::Approved;
        let by = &self.lease().mailbox;
        requests.answer(self.envelope(), by, is_approved, comment).map_err(Error::without_area)?;
        // The answer has settled it.
        self.decide();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
