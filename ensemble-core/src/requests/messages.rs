//! The messages of a request. Their ids and texts follow from its files alone, so that a message
//! that is sent again is the same message.

use serde_json::{Map, Value};

use super::{ACTOR, AskedRequest, ESCALATED_TO, Requests};
use crate::message::{Envelope, HEADER_BYTES_MAX, MessageId, Name, Timestamp, yaml};
use crate::proto::request::{Decision, Outcome};

/// Received before everyday mail: the requester waits for the answer.
const PRIORITY: u8 = 1;
const EXPIRED_TYPE: &str = "request.expired";
const REJECTED_TYPE: &str = "request.rejected";

pub(super) fn message_id(asked: &AskedRequest, end: &str) -> MessageId {
    id_with_end(asked.request_id.as_str(), end)
}

/// The message that brought the question: Ensemble's, or the one that has become a request.
pub(super) fn question_id(asked: &AskedRequest) -> MessageId {
    let other = asked.asked_by_message.as_ref().and_then(|id| MessageId::new(id.as_str()).ok());
    other.unwrap_or_else(|| message_id(asked, "request"))
}

/// An id that follows from another one.
pub(super) fn id_with_end(id: &str, end: &str) -> MessageId {
    MessageId::new(format!("{id}.{end}")).unwrap_or_else(|_| {
        // Only an id that was made by hand is too long for that.
        let digest = crate::message::Digest::of(id.as_bytes()).short(32);
        MessageId::new(format!("q-{digest}.{end}"))
            .unwrap_or_else(|_| unreachable!("digits and a short end are a name"))
    })
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|_| unreachable!("`{text}` is a name"))
}

/// A body: a comment for the reader, then fields.
pub(super) fn body(advice: Option<String>, fields: Map<String, Value>) -> String {
    let fields = yaml::render(&fields);
    advice.map_or_else(|| fields.clone(), |advice| format!("# {advice}\n{fields}"))
}

impl AskedRequest {
    /// Id of the message that brings its answer.
    pub fn answer_id(&self) -> MessageId {
        message_id(self, "response")
    }
}

impl Requests<'_> {
    pub(super) fn question(&self, asked: &AskedRequest) -> Envelope {
        self.ask_by(asked, "request", None)
    }

    pub(super) fn reminder(&self, asked: &AskedRequest, nth: u32) -> Envelope {
        self.ask_by(asked, &format!("remind-{nth}"), Some(nth))
    }

    fn ask_by(&self, asked: &AskedRequest, end: &str, nth: Option<u32>) -> Envelope {
        let mut fields = Map::new();
        fields.insert("request_id".to_owned(), asked.request_id.as_str().into());
        fields.insert("from".to_owned(), asked.from.as_str().into());
        fields.insert("deadline_at".to_owned(), asked.deadline_at().to_string().into());
        let optional: [(&str, Value); 5] = [
            ("reminder", nth.into()),
            ("task_id", asked.task_id.clone().into()),
            ("round", asked.round.into()),
            ("previous", asked.previous.as_ref().map(Name::as_str).into()),
            ("source", asked.source.clone().into()),
        ];
        for (key, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
            fields.insert(key.to_owned(), value);
        }
        // The last one, since it may be long; and never in the place of another.
        fields.entry(asked.content_field.clone()).or_insert_with(|| asked.content.clone().into());
        let id = &asked.request_id;
        let answer = format!("ensemble request answer {id} --approve|--reject --reason TEXT");
        let body = body(Some(format!("Answer with: {answer}")), fields);
        let envelope = Envelope::new(asked.question_mailbox().clone(), body)
            .with_kind(name(&asked.kind().request_type))
            .from(asked.from.clone());
        let mut envelope = correlated(envelope, asked, end, asked.created_at)
            // A question that cannot be answered any more only disturbs.
            .with_expiry(asked.deadline_at());
        envelope.attachment.clone_from(&asked.attachment);
        envelope
    }

    pub(super) fn response(&self, asked: &AskedRequest, decision: &Decision) -> Envelope {
        let to = asked.mailbox_of(&asked.from).clone();
        let body = body(None, outcome_fields(asked, decision));
        let envelope = Envelope::new(to, body).with_kind(name(&asked.kind().response_type));
        let from = match decision.outcome {
            Outcome::Approved | Outcome::Rejected | Outcome::Cancelled => decision.by.clone(),
            Outcome::Expired => name(ACTOR),
        };
        correlated(envelope.from(from), asked, "response", decision.at)
    }

    /// The notice that a question was withdrawn, for an addressee that has read it.
    pub(super) fn withdrawal(&self, asked: &AskedRequest, decision: &Decision) -> Envelope {
        let body = body(None, outcome_fields(asked, decision));
        let envelope = Envelope::new(asked.question_mailbox().clone(), body)
            .with_kind(name(&asked.kind().response_type))
            .from(asked.from.clone());
        correlated(envelope, asked, "cancelled", decision.at)
    }

    /// The notice that a decision does not count; `mark` tells it from others of this request.
    pub(super) fn rejection(
        &self,
        asked: &AskedRequest,
        to: &Name,
        mark: &str,
        why: &str,
    ) -> Envelope {
        let id = &asked.request_id;
        let body = format!(
            "Your decision on request {id} does not count: {}\nThe request is still open. {} answers with:\n\
             ensemble request answer {id} --approve|--reject --reason TEXT\n",
            super::file::clip(why),
            asked.to,
        );
        let at = self.store.now();
        let envelope = Envelope::new(to.clone(), body).with_kind(name(REJECTED_TYPE));
        // It is about no answer that its recipient waits for.
        let end = format!("aside-{mark}");
        correlated(envelope.from(name(ACTOR)), asked, &end, at).with_priority(0)
    }

    /// The notice to the conductor of a missing answer.
    pub(super) fn escalation(&self, asked: &AskedRequest, decision: &Decision) -> Envelope {
        let mut fields = outcome_fields(asked, decision);
        fields.insert("kind".to_owned(), asked.kind.as_str().into());
        fields.insert("from".to_owned(), asked.from.as_str().into());
        fields.insert("to".to_owned(), asked.to.as_str().into());
        fields.insert("action".to_owned(), "manual_intervention".into());
        let to = self.store.broker().mailbox_of(&name(ESCALATED_TO));
        let envelope = Envelope::new(to, body(None, fields));
        correlated(
            envelope.with_kind(name(EXPIRED_TYPE)).from(name(ACTOR)),
            asked,
            "expired",
            decision.at,
        )
    }
}

fn correlated(envelope: Envelope, asked: &AskedRequest, end: &str, at: Timestamp) -> Envelope {
    let mut envelope = envelope
        .with_id(message_id(asked, end))
        .with_correlation(asked.request_id.as_str())
        .with_priority(PRIORITY);
    // Of a request that was made by hand it may be a text that no envelope carries.
    let can_travel = |task: &String| {
        (1..=HEADER_BYTES_MAX).contains(&task.len()) && !task.contains(char::is_control)
    };
    envelope.task_id = asked.task_id.clone().filter(can_travel);
    envelope.created_at = at;
    envelope
}

/// Seed 004's fields of a response, and who, what and when.
fn outcome_fields(asked: &AskedRequest, decision: &Decision) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("request_id".to_owned(), asked.request_id.as_str().into());
    fields.insert("approve".to_owned(), (decision.outcome == Outcome::Approved).into());
    fields.insert("outcome".to_owned(), decision.outcome.word().into());
    fields.insert("by".to_owned(), decision.by.as_str().into());
    fields.insert("at".to_owned(), decision.at.to_string().into());
    fields
        .entry(asked.comment_field.clone())
        .or_insert_with(|| super::file::clip(&decision.comment).into());
    fields
}
