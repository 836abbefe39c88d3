//! Carries out what follows from a request and from its decision: messages, gates, records. Any
//! process may repeat a step; its result is stored once.

use serde_json::json;

use super::file::StoredRequest;
use super::messages::{message_id, question_id};
use super::store::{RequestFile, RequestLock};
use super::{ACTOR, ESCALATED_TO, RequestEntry, Requests};
use crate::env::Lease;
use crate::error::allow_no_mailbox;
use crate::event_log::types;
use crate::message::Name;
use crate::proto::request::{AtExpiry, Decision, DecisionRefusal, Outcome};
use crate::spool::State;
use crate::{Error, Result};

/// More reminders than a kind of request sends.
const REMINDERS_MAX: u32 = 100;

impl Requests<'_> {
    /// Continues after a crash, or after a client that had only `ln`. It announces a request that its addressee has
    /// not received, and does everything that follows from a decision. Returns the request as it is then; `None` if
    /// there is no such request. Without an interrupted request it changes nothing.
    ///
    /// # Errors
    /// A mailbox is full or gone, or the disk failed: it may be tried again.
    pub fn resume(&self, id: &str) -> Result<Option<RequestEntry>> {
        let Some(entry) = self.find(id)? else { return Ok(None) };
        if entry.decision.is_some() {
            return self.carry_on(entry).map(Some);
        }
        let lock = self.store.lock()?;
        self.announce(&lock, &entry.request, false)?;
        Ok(Some(entry))
    }

    /// Sends the `nth` reminder to the addressee. The same reminder is stored once, however many processes send it.
    pub fn remind(&self, id: &str, nth: u32) -> Result<()> {
        let Some(entry) = self.find(id)?.filter(|entry| entry.decision.is_none()) else {
            return Ok(());
        };
        let asked = &entry.request;
        let lock = self.store.lock()?;
        let reminder = self.reminder(asked, nth);
        if self.store.broker().state(&reminder.to, &reminder.id)?.is_none() {
            self.publish_recorded(&lock, reminder, || {
                self.record(types::REQUEST_REMINDED, ACTOR, asked, json!({ "nth": nth }));
            })?;
        }
        Ok(())
    }

    /// Marks a request as closed. To be called by the process that has carried out its decision. One whose requester
    /// has no room for the answer stays open, and is carried out again once it has.
    ///
    /// # Errors
    /// [`DecisionRefusal::Unknown`], or the disk failed. It may be said again.
    pub fn close(&self, id: &str) -> Result<()> {
        let lock = self.store.lock()?;
        match self.peek(id)? {
            Some((home, Some(decision))) => {
                let is_told = home.is_told || home.is_closed;
                if is_told || self.notify_unless_full(&lock, &home, &decision)?.is_none() {
                    self.mark(&home, RequestFile::Closed, &decision)?;
                }
                Ok(())
            }
            Some((_, None)) | None => {
                Err(DecisionRefusal::Unknown { id: super::printable(id) }.into())
            }
        }
    }

    /// Everything that follows from the decision of this request but what is to be carried out.
    pub(super) fn carry_on(&self, mut entry: RequestEntry) -> Result<RequestEntry> {
        let Some(decision) = entry.decision.clone() else { return Ok(entry) };
        let lock = self.store.lock()?;
        let id = entry.request.request_id.clone();
        let Some(home) = StoredRequest::read(self.store, &id)? else { return Ok(entry) };
        if home.is_closed {
            entry.is_closed = true;
            return Ok(entry);
        }
        if !home.is_told {
            // The decider may have been killed before the decision was safe.
            self.store.make_safe(Some(&id))?;
            if let Some(note) = &self.note {
                note(&entry)?;
            }
            if let Some(untold) = self.notify_unless_full(&lock, &home, &decision)? {
                return Ok(RequestEntry { untold: Some(untold), ..entry });
            }
        }
        self.open_gate(&home.asked, &decision)?;
        entry.is_closed = !home.asked.kind().carries_out(&decision);
        let page = if entry.is_closed { RequestFile::Closed } else { RequestFile::Told };
        self.mark(&home, page, &decision)?;
        Ok(entry)
    }

    /// As [`Requests::notify_recipients`]. Returns why that is still to be done, if a decision may be carried out before:
    /// its effect does not wait for room in a mailbox.
    fn notify_unless_full(
        &self,
        lock: &RequestLock,
        home: &StoredRequest,
        decision: &Decision,
    ) -> Result<Option<String>> {
        match self.notify_recipients(lock, home, decision) {
            Err(error) if error.is_undeliverable() && home.asked.kind().carries_out(decision) => {
                Ok(Some(error.to_string()))
            }
            notified => notified.map(|()| None),
        }
    }

    /// Notifies all recipients, the requester last: the response is the sign that all of this was done.
    fn notify_recipients(
        &self,
        lock: &RequestLock,
        home: &StoredRequest,
        decision: &Decision,
    ) -> Result<()> {
        let asked = &home.asked;
        let response = self.response(asked, decision);
        let is_told = match self.store.broker().state(&response.to, &response.id) {
            Ok(state) => state.is_some(),
            // A requester without a mailbox reads the decision itself.
            Err(Error::NoMailbox { .. }) => false,
            Err(error) => return Err(error),
        };
        if is_told {
            return Ok(());
        }
        let kind = match decision.outcome {
            Outcome::Approved | Outcome::Rejected => types::REQUEST_DECIDED,
            Outcome::Expired => types::REQUEST_EXPIRED,
            Outcome::Cancelled => types::REQUEST_CANCELLED,
        };
        let actor = if decision.outcome == Outcome::Expired { ACTOR } else { decision.by.as_str() };
        let at_expiry = (decision.outcome == Outcome::Expired).then_some(asked.at_expiry);
        let record = || {
            self.record(
                kind,
                actor,
                asked,
                json!({
                    "outcome": decision.outcome, "by": decision.by, "at": decision.at,
                    "at_expiry": at_expiry, "comment_bytes": decision.comment.len(),
                }),
            );
        };
        if lock.is_alone() {
            record();
        }
        match decision.outcome {
            Outcome::Approved | Outcome::Rejected => self.settle_question(home, decision)?,
            Outcome::Expired => self.escalate(home, decision)?,
            Outcome::Cancelled => self.withdraw(home, decision)?,
        }
        if lock.is_alone() {
            return unless_absent(self.publish(response));
        }
        match self.publish(response) {
            // Another host has sent the response and recorded it.
            Ok(false) => Ok(()),
            // There is no mailbox to notify: the process that closes the request records it.
            Ok(true) | Err(Error::NoMailbox { .. }) => {
                record();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the question and its reminders out of the mailbox of the agent that has answered.
    fn settle_question(&self, home: &StoredRequest, decision: &Decision) -> Result<()> {
        let asked = &home.asked;
        let (broker, mailbox) = (self.store.broker(), asked.question_mailbox());
        let reminders = (1..=REMINDERS_MAX).map(|nth| message_id(asked, &format!("remind-{nth}")));
        for id in std::iter::once(question_id(asked)).chain(reminders) {
            let state = match broker.state(mailbox, &id) {
                Err(Error::NoMailbox { .. }) => return Ok(()),
                other => other?,
            };
            let lease = match state {
                Some(State::Queued { .. }) => {
                    let received = broker.receive_id(mailbox, &id, &decision.by);
                    received.ok().flatten().map(|delivery| delivery.lease)
                }
                Some(State::Acked { holder, epoch }) => {
                    Some(Lease { mailbox: mailbox.clone(), id: id.clone(), holder, epoch })
                }
                Some(State::Settled | State::Dead) => continue,
                None => break,
            };
            let settled = match lease {
                Some(lease) => broker.settle(&lease),
                // An agent that may not receive now does not see the question again either.
                None => {
                    let reason = format!("{} by {}", decision.outcome.word(), decision.by);
                    broker.set_aside(mailbox, &id, &reason)
                }
            };
            match settled {
                // It has moved on at this moment.
                Err(Error::LeaseLost { .. } | Error::NoMessage { .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn escalate(&self, home: &StoredRequest, decision: &Decision) -> Result<()> {
        let asked = &home.asked;
        if asked.at_expiry != AtExpiry::Escalate || asked.from.as_str() == ESCALATED_TO {
            return Ok(());
        }
        unless_absent(self.publish(self.escalation(asked, decision)))
    }

    /// Removes the question from its addressee's mailbox, or sends a notice that it was withdrawn.
    fn withdraw(&self, home: &StoredRequest, decision: &Decision) -> Result<()> {
        let asked = &home.asked;
        let (id, mailbox) = (question_id(asked), asked.question_mailbox());
        let reason = format!("cancelled by {}", decision.by);
        match self.store.broker().state(mailbox, &id) {
            Ok(Some(State::Queued { .. })) => {
                match self.store.broker().set_aside(mailbox, &id, &reason) {
                    // It was received at this moment.
                    Err(Error::NoMessage { .. }) => {}
                    other => return other,
                }
            }
            Ok(Some(State::Acked { .. } | State::Settled)) => {}
            // No agent has read it.
            Ok(Some(State::Dead) | None) | Err(Error::NoMailbox { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        unless_absent(self.publish(self.withdrawal(asked, decision)))
    }

    /// Writes down how far everything is done.
    fn mark(&self, home: &StoredRequest, page: RequestFile, decision: &Decision) -> Result<()> {
        let text = home.render_mark(decision.outcome, self.store.now());
        self.store.write_once(&home.asked.request_id, page, &text).map(drop)
    }

    /// The decision that closes a request after its deadline, for a waiting process where no watcher runs.
    pub fn expire(&self, id: &Name) -> Result<Option<RequestEntry>> {
        let Some(entry) = self.find(id.as_str())? else { return Ok(None) };
        if entry.decision.is_some() || self.store.now() < entry.request.deadline_at() {
            return Ok(Some(entry));
        }
        let (by, at) = (entry.request.to.clone(), entry.request.deadline_at());
        self.propose(id.as_str(), &Decision::new(Outcome::Expired, by, at))?;
        self.resume(id.as_str())
    }
}

/// A mailbox that is not there does not keep a request from ending.
fn unless_absent(published: Result<bool>) -> Result<()> {
    allow_no_mailbox(published).map(drop)
}
