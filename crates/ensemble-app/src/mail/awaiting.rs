//! Waiting for the answer to a message, as `send --wait-for-reply`, the tool `send` and a call of the API do it.
//!
//! ```text
//! the answer, in the mailbox of the one who asked    what happens to it
//! waits                                              received, returned and settled
//! held or settled by another program of the same     returned as it is
//! none before the deadline                           it comes to the mailbox like all mail
//! the question is a dead letter                      the wait ends with its reason
//! ```
//!
//! *A crash* between receiving and settling leaves the answer held: the next `recv` of the person shows it, and an
//! agent is given it again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ensemble_core::allow_unreadable;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::State;
use ensemble_core::watch::Waiter;
use serde_json::Value;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::interrupt::end_if_cancelled;
use crate::mail::message_view::MessageView;
use crate::mail::settling::settle_lease;
use crate::queue::ProjectQueue;
use crate::receipt::{Receipt, ReceiptTracker};
use crate::text::age;

const LOOKED_AT_MAX: usize = 1_000;
/// How long a wait sleeps at most: a server is asked again, and a caller that gives up is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// A question that was sent, and how long its sender waits for the answer.
pub struct AwaitedReply<'a> {
    pub question: &'a Envelope,
    pub asked_in: &'a ProjectQueue,
    pub mailbox: Name,
    pub patience: Duration,
}

impl AwaitedReply<'_> {
    /// Waits for the answer and settles it; `None` once `is_over` says that its caller has gone.
    pub fn wait(
        &self,
        app: &App,
        queue: &ProjectQueue,
        is_over: impl Fn() -> bool,
    ) -> Outcome<Option<Envelope>> {
        let deadline = Instant::now().checked_add(self.patience);
        let waiter = Waiter::new(&self.directories(queue));
        let mut tracker = self.tracker();
        while !is_over() {
            end_if_cancelled()?;
            if let Some(answer) = self.take_answer(app, queue)? {
                return Ok(Some(answer));
            }
            // Fails with the reason of a dead letter.
            let reached = tracker.wait(Receipt::Stored, None)?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.no_answer(reached));
            }
            waiter.wait(left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX));
        }
        Ok(None)
    }

    /// The answer as it is shown, from the queue in which it was found.
    pub fn show_answer(
        &self,
        app: &App,
        queue: &ProjectQueue,
        answer: &Envelope,
    ) -> Outcome<Value> {
        let state = queue.state(&self.mailbox, &answer.id)?;
        Ok(MessageView::read(app, queue, (&self.mailbox, state), answer)?.to_json())
    }

    fn tracker(&self) -> ReceiptTracker<'_> {
        let (to, id) = (self.question.to.clone(), self.question.id.clone());
        ReceiptTracker::new(self.asked_in, to, id, None)
    }

    fn directories(&self, queue: &ProjectQueue) -> Vec<PathBuf> {
        let place = |queue: &ProjectQueue, mailbox: &Name, below: &str| {
            let root = queue.directory()?.root().join("mailbox");
            Some(root.join(mailbox.as_str()).join(below))
        };
        let mine = ["new", "front"].map(|below| place(queue, &self.mailbox, below));
        let dead = place(self.asked_in, &self.question.to, "dead");
        mine.into_iter().chain([dead]).flatten().collect()
    }

    fn take_answer(&self, app: &App, queue: &ProjectQueue) -> Outcome<Option<Envelope>> {
        for found in queue.unfinished(&self.mailbox, LOOKED_AT_MAX)? {
            // It moved on, or is damaged: a receive deals with that.
            let read = allow_unreadable(queue.peek(&self.mailbox, &found.id))?;
            let Some(envelope) = read else { continue };
            if answers(&envelope, &self.question.id) {
                if matches!(found.state, State::Queued { .. }) {
                    self.settle(app, queue, &found.id)?;
                }
                return Ok(Some(envelope));
            }
        }
        Ok(None)
    }

    /// Another program of the same person may be quicker; the answer is shown anyway.
    fn settle(&self, app: &App, queue: &ProjectQueue, id: &MessageId) -> Outcome {
        let holder = app.actor()?;
        let Some(delivery) = queue.receive_id(&self.mailbox, id, &holder)? else { return Ok(()) };
        settle_lease(app, queue.request_store(), &delivery.lease)
    }

    fn no_answer(&self, reached: Receipt) -> Failure {
        let Envelope { to, id, project, .. } = self.question;
        let after = age(self.patience);
        let how = match reached {
            Receipt::Acked | Receipt::Confirmed => "it has read the message",
            Receipt::Settled => "it has settled the message without an answer",
            Receipt::Stored | Receipt::Notified | Receipt::Submitted => {
                "the message waits in its mailbox"
            }
        };
        Failure::nothing(format!("{to} has not answered within {after}: {how}")).with_hint(
            match project {
                None => format!("a later answer comes to your mailbox; `ensemble why {id}`"),
                // What has happened to it is in the log of the other project.
                Some(_) => "a later answer comes to your mailbox".to_owned(),
            },
        )
    }
}

/// Whether a message answers another one: it names it as its cause, or as its thread.
fn answers(envelope: &Envelope, question: &MessageId) -> bool {
    [&envelope.causation_id, &envelope.correlation_id]
        .into_iter()
        .any(|named| named.as_deref() == Some(question.as_str()))
}
