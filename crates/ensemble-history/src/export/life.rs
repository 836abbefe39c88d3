//! One life of a message in the log: from its publish, or redrive, until it is settled or dead. It becomes one trace.
//!
//! | span | from | to | kind |
//! |---|---|---|---|
//! | `publish MAILBOX`, `redrive MAILBOX` | the message is in the mailbox | it is settled or dead | producer |
//! | `process MAILBOX`, one for each delivery | ack | settle, release, expiry, dead letter | consumer |
//! | `attempt WORKER` | a ladder began, or the task was delivered | the task's end, or the message's | internal |
//!
//! The first is the parent of the others. Records arrive in the order of the log, which is nearly that of the moves:
//! a fast holder's settle may be before its sender's publish. So each record only adds what it says.

use std::collections::BTreeMap;

use ensemble_core::event_log::Record;
use ensemble_core::message::{Timestamp, TraceParent};
use serde_json::Value;

use super::conventions as names;
use super::span::{
    Span, SpanAttributes, SpanEvents, SpanHead, SpanKind, SpanPlace, SpanStatus, trace_id,
};

/// The parts of a message's identity of which its trace id is made.
#[derive(Clone, Debug)]
pub(super) struct TraceOrigin {
    pub(super) mailbox: String,
    pub(super) id: String,
    /// When it was stored. It distinguishes messages with the same chosen id: those of other projects, and later
    /// ones.
    stored: Option<Timestamp>,
    /// The trace of its sender, and the sender's span.
    sender: Option<(u128, u64)>,
}

impl TraceOrigin {
    pub(super) const fn new(mailbox: String, id: String) -> Self {
        Self { mailbox, id, stored: None, sender: None }
    }

    fn trace_id(&self) -> u128 {
        let stored = self.stored.map_or_else(String::new, |at| at.unix_millis().to_string());
        let own = || trace_id(&["message", &self.mailbox, &self.id, &stored]);
        self.sender.map_or_else(own, |(trace_id, _)| trace_id)
    }

    fn root(&self, epoch: u64) -> u64 {
        let trace = SpanPlace { trace_id: self.trace_id(), parent_id: None, is_remote: false };
        trace.child(&["message", &self.mailbox, &self.id, &epoch.to_string()])
    }

    /// The place of that span: below the sender's, or below the message's first life.
    fn place(&self, epoch: u64) -> SpanPlace {
        let parent_id = match (epoch, self.sender) {
            (0, sender) => sender.map(|(_, span_id)| span_id),
            (_, _) => Some(self.root(0)),
        };
        let is_remote = epoch == 0 && parent_id.is_some();
        SpanPlace { trace_id: self.trace_id(), parent_id, is_remote }
    }
}

fn trace_of(text: &str) -> Option<(u128, u64)> {
    let valid: TraceParent = text.parse().ok()?;
    let mut fields = valid.as_str().split('-').skip(1);
    let trace_id = u128::from_str_radix(fields.next()?, 16).ok()?;
    Some((trace_id, u64::from_str_radix(fields.next()?, 16).ok()?))
}

#[derive(Clone, Debug)]
struct SpanEnd {
    at: Timestamp,
    outcome: &'static str,
    failure: Option<String>,
}

#[derive(Debug)]
struct DeliverySpan {
    holder: String,
    from: Timestamp,
    end: Option<SpanEnd>,
    events: SpanEvents,
}

#[derive(Debug)]
struct AttemptSpan {
    task: String,
    worker: String,
    number: Option<u64>,
    from: Timestamp,
    end: Option<SpanEnd>,
    is_escalated: bool,
    events: SpanEvents,
}

#[derive(Debug)]
pub(super) struct MessageLife {
    pub(super) origin: TraceOrigin,
    /// 0 for a published message, otherwise that of the redrive.
    epoch: u64,
    from: Timestamp,
    last: Timestamp,
    sender: Option<String>,
    about: SpanAttributes,
    deliveries: BTreeMap<u64, DeliverySpan>,
    attempt: Option<AttemptSpan>,
    events: SpanEvents,
    end: Option<SpanEnd>,
}

impl MessageLife {
    pub(super) fn begin(origin: TraceOrigin, epoch: u64, at: Timestamp) -> Self {
        Self {
            origin,
            epoch,
            from: at,
            last: at,
            sender: None,
            about: SpanAttributes::default(),
            deliveries: BTreeMap::new(),
            attempt: None,
            events: SpanEvents::default(),
            end: None,
        }
    }

    pub(super) const fn is_stored(&self) -> bool {
        self.origin.stored.is_some()
    }

    pub(super) const fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.outcome == "dead")
    }

    pub(super) fn tried(&self) -> Option<(String, String)> {
        self.attempt.as_ref().map(|attempt| (attempt.task.clone(), attempt.worker.clone()))
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.is_over() && self.deliveries.values().all(|delivery| delivery.end.is_some())
    }

    /// When it ended, or the time of its last record.
    pub(super) fn until(&self) -> Timestamp {
        self.end.as_ref().map_or(self.last, |end| end.at)
    }

    pub(super) fn below(&self) -> SpanPlace {
        let parent_id = Some(self.origin.root(self.epoch));
        SpanPlace { trace_id: self.origin.trace_id(), parent_id, is_remote: false }
    }

    pub(super) fn store(&mut self, record: &Record) {
        let data = &record.data;
        let text = |member: &str| data.get(member).and_then(Value::as_str);
        self.from = self.from.min(record.timestamp);
        self.origin.stored = Some(record.timestamp);
        self.origin.sender = text("traceparent").and_then(trace_of);
        self.sender = Some(record.actor.clone());
        self.about.add_some(names::MESSAGING_MESSAGE_BODY_SIZE, data.get("bytes").cloned());
        self.about.add_some(names::MESSAGE_TYPE, text("type"));
        self.about.add_some(names::TASK_ID, text("task_id"));
        self.about.add_some(names::MESSAGING_MESSAGE_CONVERSATION_ID, text("correlation_id"));
        self.about.add_some(names::MESSAGE_SOURCE, text("source"));
    }

    pub(super) fn ack(&mut self, record: &Record, epoch: u64) {
        self.add_event(record);
        let begun = DeliverySpan {
            holder: record.actor.clone(),
            from: record.timestamp,
            end: None,
            events: SpanEvents::default(),
        };
        self.deliveries.entry(epoch).or_insert(begun);
        // The release of an earlier delivery may be missing: its observer was killed.
        for (_, earlier) in self.deliveries.range_mut(..epoch) {
            let end = || SpanEnd { at: record.timestamp, outcome: "lost", failure: None };
            earlier.end.get_or_insert_with(end);
        }
    }

    pub(super) fn add_event(&mut self, record: &Record) {
        self.last = self.last.max(record.timestamp);
        self.events.add(record);
    }

    pub(super) fn note_delivery(&mut self, record: &Record, epoch: u64) {
        self.last = self.last.max(record.timestamp);
        match self.deliveries.get_mut(&epoch) {
            Some(delivery) => delivery.events.add(record),
            None => self.events.add(record),
        }
    }

    pub(super) fn end_delivery(
        &mut self,
        record: &Record,
        epoch: u64,
        outcome: &'static str,
        failure: Option<String>,
    ) {
        self.add_event(record);
        let end = SpanEnd { at: record.timestamp, outcome, failure };
        if let Some(delivery) = self.deliveries.get_mut(&epoch) {
            delivery.end.get_or_insert(end);
        }
    }

    /// The end of this life; only the first counts. Returns whether it is this one.
    pub(super) fn end(
        &mut self,
        at: Timestamp,
        outcome: &'static str,
        failure: Option<String>,
    ) -> bool {
        let is_first = self.end.is_none();
        self.end.get_or_insert(SpanEnd { at, outcome, failure });
        is_first
    }

    /// A ladder began for it, or it was delivered as a task: `ladder.begun`, `worker_assign`.
    pub(super) fn begin_attempt(&mut self, record: &Record, task: &str, worker: &str) {
        let attempt = self.attempt.get_or_insert_with(|| AttemptSpan {
            task: task.to_owned(),
            worker: worker.to_owned(),
            number: record.data.get("attempt").and_then(Value::as_u64),
            from: record.timestamp,
            end: None,
            is_escalated: false,
            events: SpanEvents::default(),
        });
        attempt.events.add(record);
        self.last = self.last.max(record.timestamp);
    }

    pub(super) fn note_attempt(&mut self, record: &Record) {
        self.last = self.last.max(record.timestamp);
        match &mut self.attempt {
            Some(attempt) => attempt.events.add(record),
            None => self.events.add(record),
        }
    }

    pub(super) fn escalate(&mut self, record: &Record) {
        self.note_attempt(record);
        if let Some(attempt) = &mut self.attempt {
            attempt.is_escalated = true;
        }
    }

    /// The end of its task: `task_complete`, `task_failed`.
    pub(super) fn end_attempt(&mut self, record: &Record, failure: Option<String>) {
        self.note_attempt(record);
        let outcome = if failure.is_none() { "completed" } else { "failed" };
        if let Some(attempt) = &mut self.attempt {
            attempt.end.get_or_insert(SpanEnd { at: record.timestamp, outcome, failure });
        }
    }

    /// Its spans, its own first. A span that has not ended lasts until its last record, with the outcome `open`.
    pub(super) fn spans(self) -> Vec<Span> {
        let below = self.below();
        let end =
            self.end.clone().unwrap_or(SpanEnd { at: self.last, outcome: "open", failure: None });
        let mut shared = SpanAttributes::default();
        shared.add(names::MESSAGING_DESTINATION_NAME, self.origin.mailbox.as_str());
        shared.add(names::MESSAGING_MESSAGE_ID, self.origin.id.as_str());
        let Self { origin, epoch, from, sender, about, deliveries, attempt, events, .. } = self;
        let operation = if epoch == 0 { names::PUBLISH } else { names::REDRIVE };
        let mut attributes = named(operation, Some(names::SEND), shared.clone());
        attributes.add_some(names::MESSAGING_CLIENT_ID, sender);
        attributes.0.extend(about.0);
        let root = SpanHead {
            place: origin.place(epoch),
            span_id: origin.root(epoch),
            name: format!("{operation} {}", origin.mailbox),
            kind: SpanKind::Producer,
        };
        let mut spans = vec![closed(root, from, &end, attributes, events)];
        for (epoch, delivery) in deliveries {
            let mut attributes = named(names::PROCESS, Some(names::PROCESS), shared.clone());
            attributes.add(names::MESSAGING_CLIENT_ID, delivery.holder);
            attributes.add(names::EPOCH, epoch);
            let head = SpanHead {
                place: below,
                span_id: below.child(&[names::PROCESS, &epoch.to_string()]),
                name: format!("{} {}", names::PROCESS, origin.mailbox),
                kind: SpanKind::Consumer,
            };
            let ended = delivery.end.unwrap_or_else(|| end.clone());
            spans.push(closed(head, delivery.from, &ended, attributes, delivery.events));
        }
        spans.extend(attempt.map(|attempt| attempt.span(below, end, shared)));
        spans
    }
}

impl AttemptSpan {
    fn span(self, below: SpanPlace, message: SpanEnd, shared: SpanAttributes) -> Span {
        let mut attributes = named(names::ATTEMPT_SPAN, None, shared);
        attributes.add(names::TASK_ID, self.task);
        attributes.add(names::WORKER_ID, self.worker.as_str());
        attributes.add_some(names::ATTEMPT, self.number);
        let mut end = self.end.unwrap_or(message);
        if self.is_escalated && end.failure.is_none() && end.outcome != "completed" {
            end = SpanEnd { outcome: "escalated", failure: Some("no ack".to_owned()), ..end };
        }
        let head = SpanHead {
            place: below,
            span_id: below.child(&[names::ATTEMPT_SPAN]),
            name: format!("{} {}", names::ATTEMPT_SPAN, self.worker),
            kind: SpanKind::Internal,
        };
        closed(head, self.from, &end, attributes, self.events)
    }
}

/// The attributes of an operation; `kind` is the conventions' word for it.
fn named(operation: &str, kind: Option<&str>, rest: SpanAttributes) -> SpanAttributes {
    let mut attributes = SpanAttributes::default();
    attributes.add(names::MESSAGING_SYSTEM, names::SYSTEM);
    attributes.add(names::MESSAGING_OPERATION_NAME, operation);
    attributes.add_some(names::MESSAGING_OPERATION_TYPE, kind);
    attributes.0.extend(rest.0);
    attributes
}

fn closed(
    head: SpanHead,
    from: Timestamp,
    end: &SpanEnd,
    mut attributes: SpanAttributes,
    events: SpanEvents,
) -> Span {
    attributes.add(names::OUTCOME, end.outcome);
    let status = match &end.failure {
        Some(failure) => {
            attributes.add(names::ERROR_TYPE, end.outcome);
            SpanStatus::Error(failure.clone())
        }
        None if matches!(end.outcome, "settled" | "completed") => SpanStatus::Fine,
        None => SpanStatus::Unset,
    };
    // A record about it may be written a moment after the one that ended it.
    let last = events.kept.iter().map(|event| event.at).max().unwrap_or(from);
    Span { head, from, to: end.at.max(from).max(last), attributes, events, status }
}
