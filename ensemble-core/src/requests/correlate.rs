//! Messages that other programs have published by themselves: what seed 004's agents send to each
//! other's inboxes, late, twice or out of order.
//!
//! ```text
//! a message of a response type                                    its sender is   and so
//! is being sent by a program that knows its agent (pass, pane)    Proven          decides, if that agent may
//! was received, and its file belongs to its sender's own user     Proven          decides, if that agent may
//! was received otherwise: any program could have written it       Stated          decides nothing; it is kept
//! ```
//!
//! Otherwise a file in the requester's own mailbox could approve what its owner has asked for.

use serde_json::{Map, Value, json};

use super::ask::REQUEST_ID_BYTES_MAX;
use super::file::UNREAD_APPROVAL;
use super::messages::message_id;
use super::{NewRequest, RequestEntry, Requests, UndecidedRequest};
use crate::Result;
use crate::event_log::types;
use crate::message::fields::{field_text, read_flag};
use crate::message::written::document;
use crate::message::{Digest, Envelope, Name, yaml};
use crate::proto::request::{DecisionRefusal, Outcome, RequestKind};

/// How the sender of a message is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvidence {
    /// By a pass, a process tree or the owner of a file: the caller has checked it.
    Proven,
    /// By the message alone.
    Stated,
}

/// The effect of a message on requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorrelationOutcome {
    /// Nothing: it is of another type, or Ensemble's own message of a request.
    Unrelated,
    /// It asked something that was not known yet.
    Asked(RequestEntry),
    Decided(RequestEntry),
    /// It would decide this request, but its sender is only stated; recorded.
    Unproven(RequestEntry),
    /// It says what is known already.
    Known(RequestEntry),
    /// It may not do what it tries; recorded.
    Refused(DecisionRefusal),
}

impl Requests<'_> {
    /// Applies a message to the request that it asks or answers. A message of a kind's response
    /// type decides the request in its sender's name, if the sender is proven and may decide. A
    /// message of a kind's request type whose id is unknown becomes a request. Call this for every
    /// message that is sent or received; unrelated ones are ignored.
    pub fn correlate(
        &self,
        envelope: &Envelope,
        sender: SenderEvidence,
    ) -> Result<CorrelationOutcome> {
        let correlated =
            match (self.kinds.asked_by(&envelope.kind), self.kinds.answered_by(&envelope.kind)) {
                (Some(kind), _) => self.asked_in(envelope, kind),
                (None, Some(kind)) => self.answered_in(envelope, &kind, sender),
                (None, None) => return Ok(CorrelationOutcome::Unrelated),
            };
        correlated
            .or_else(|error| error.into_area::<DecisionRefusal>().map(CorrelationOutcome::Refused))
    }

    /// The request without an answer that a message asks; `None` for any other message.
    pub fn undecided(&self, envelope: &Envelope) -> Result<Option<RequestEntry>> {
        Ok(self.find_asked(envelope)?.filter(|entry| entry.decision.is_none()))
    }

    /// Refuses to settle a question that has no answer. One that was not known becomes a request, so that its
    /// addressee can answer it.
    ///
    /// # Errors
    /// [`UndecidedRequest`], or why the question cannot become a request.
    pub fn refuse_unanswered(&self, envelope: &Envelope) -> Result<()> {
        if let CorrelationOutcome::Refused(refusal) = self.correlate_question(envelope)? {
            return Err(refusal.into());
        }
        match self.undecided(envelope)? {
            Some(entry) => Err(UndecidedRequest { request: entry.request.request_id }.into()),
            None => Ok(()),
        }
    }

    /// Answers the question that a message asks, in the name of `by`.
    pub(crate) fn answer(
        &self,
        envelope: &Envelope,
        by: &Name,
        is_approved: bool,
        comment: &str,
    ) -> Result<RequestEntry> {
        if let CorrelationOutcome::Refused(refusal) = self.correlate_question(envelope)? {
            return Err(refusal.into());
        }
        self.respond(&asked_id(envelope, &fields(envelope)), by, is_approved, comment)
    }

    fn correlate_question(&self, envelope: &Envelope) -> Result<CorrelationOutcome> {
        match self.kinds.asked_by(&envelope.kind) {
            Some(_) => self.correlate(envelope, SenderEvidence::Stated),
            None => Ok(CorrelationOutcome::Unrelated),
        }
    }

    /// The request that a message asks of its recipient, decided or not; `None` for any other message.
    pub fn find_asked(&self, envelope: &Envelope) -> Result<Option<RequestEntry>> {
        if self.kinds.asked_by(&envelope.kind).is_none() {
            return Ok(None);
        }
        let id = asked_id(envelope, &fields(envelope));
        Ok(self.find(&id)?.filter(|entry| *entry.request.question_mailbox() == envelope.to))
    }

    fn asked_in(&self, envelope: &Envelope, kind: RequestKind) -> Result<CorrelationOutcome> {
        let fields = fields(envelope);
        let id = asked_id(envelope, &fields);
        if let Some(known) = self.find(&id)? {
            let own = message_id(&known.request, "request") == envelope.id
                || envelope.id.as_str().starts_with(&format!("{id}.remind-"));
            return Ok(if own {
                CorrelationOutcome::Unrelated
            } else {
                CorrelationOutcome::Known(known)
            });
        }
        let content = text(&fields, &[kind.content_field.as_ref(), "content", "reason", "plan"]);
        let content = content.unwrap_or_else(|| envelope.body.clone());
        let (from, to) = (envelope.from.clone(), envelope.to.clone());
        let message = Name::new(envelope.id.as_str())?;
        let mut ask =
            NewRequest::new(kind.name.as_ref(), from, to, content).with_id(id).asked_by(message);
        // Only a kind that the team knows closes a gate.
        let task = envelope.task_id.clone().or_else(|| text(&fields, &["task_id"]));
        if let Some(task) = task.filter(|_| self.kinds.find(&kind.name).is_some()) {
            ask = ask.with_task(task);
        }
        let requests = self.clone().with_kinds(self.kinds.clone().with(kind));
        requests.ask(ask).map(CorrelationOutcome::Asked)
    }

    fn answered_in(
        &self,
        envelope: &Envelope,
        kind: &RequestKind,
        sender: SenderEvidence,
    ) -> Result<CorrelationOutcome> {
        let body: Value = yaml::read(&document(&envelope.body)).unwrap_or_default();
        let id = envelope.correlation_id.clone().or_else(|| field_text(&body, &["request_id"]));
        let Some(id) = id else { return Ok(CorrelationOutcome::Unrelated) };
        let known = self.find(&id)?;
        let approve = field_text(&body, &["approve", "approved"]);
        let Some(approve) = approve.and_then(|text| read_flag(&text)) else {
            if let Some(entry) = known.filter(|entry| entry.decision.is_none()) {
                let (by, mark) = (&envelope.from, Digest::of(envelope.id.as_str().as_bytes()));
                self.notify_decider(&entry.request, Some(by), &mark.short(8), UNREAD_APPROVAL)?;
            }
            return Ok(CorrelationOutcome::Unrelated);
        };
        // Other programs may end the types of answers alike.
        if known.is_none() && self.kinds.find(&kind.name).is_none() {
            return Ok(CorrelationOutcome::Unrelated);
        }
        if let Some(entry) = &known
            && let Some(standing) = &entry.decision
        {
            let own = ["response", "cancelled"].map(|end| message_id(&entry.request, end));
            let outcome = if approve { Outcome::Approved } else { Outcome::Rejected };
            if own.contains(&envelope.id) {
                return Ok(CorrelationOutcome::Unrelated);
            }
            if standing.by == envelope.from && standing.outcome == outcome {
                return Ok(CorrelationOutcome::Known(entry.clone()));
            }
        }
        if let (Some(entry), SenderEvidence::Stated) = (&known, sender)
            && entry.decision.is_none()
        {
            let data =
                json!({ "message": envelope.id, "stated": envelope.from, "approve": approve });
            self.record(types::REQUEST_UNPROVEN, envelope.to.as_str(), &entry.request, data);
            return Ok(CorrelationOutcome::Unproven(entry.clone()));
        }
        let names = [kind.comment_field.as_ref(), "reason", "feedback"];
        let comment = body.as_object().and_then(|fields| text(fields, &names)).unwrap_or_default();
        self.respond(&id, &envelope.from, approve, &comment).map(CorrelationOutcome::Decided)
    }
}

/// The fields of a body that is YAML or JSON; none of another, because a plan may quote some in a fenced block.
fn fields(envelope: &Envelope) -> Map<String, Value> {
    yaml::parse(&envelope.body, envelope.id.as_str().as_ref()).unwrap_or_default()
}

/// The id of the request that a question makes. One without an id, or with one that no request can have, takes that of
/// its message.
fn asked_id(envelope: &Envelope, fields: &Map<String, Value>) -> String {
    let is_fit = |id: &String| id.len() <= REQUEST_ID_BYTES_MAX && Name::new(id.as_str()).is_ok();
    let own = || Some(envelope.id.to_string()).filter(is_fit);
    let digest = || format!("q-{}", Digest::of(envelope.id.as_str().as_bytes()).short(32));
    request_id(envelope, fields).filter(is_fit).or_else(own).unwrap_or_else(digest)
}

/// The envelope says it, or the body, in one of the seeds' spellings.
fn request_id(envelope: &Envelope, fields: &Map<String, Value>) -> Option<String> {
    envelope.correlation_id.clone().or_else(|| text(fields, &["request_id", "requestId"]))
}

fn text(fields: &Map<String, Value>, names: &[&str]) -> Option<String> {
    let found = names.iter().find_map(|name| fields.get(*name))?;
    match found {
        Value::String(text) => Some(text.clone()),
        // An id of digits alone is a number in YAML.
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
