//! A span as OpenTelemetry defines it, and ids that follow from what it is about.

use ensemble_core::event_log::Record;
use ensemble_core::message::{Digest, Timestamp};
use serde_json::Value;

use super::conventions::{ACTOR, DATA};

/// Most events of a span, as in the SDKs' default limits. The rest is counted.
pub(super) const EVENTS_MAX: usize = 128;

/// The kinds of spans that occur here, with their numbers in OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Producer = 4,
    Consumer = 5,
}

/// The verdict on what a span shows, with its number in OTLP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SpanStatus {
    #[default]
    Unset,
    Fine,
    Error(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct SpanAttributes(pub(super) Vec<(String, Value)>);

impl SpanAttributes {
    pub(super) fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    pub(super) fn add_some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) name: String,
    pub(super) attributes: SpanAttributes,
}

impl Event {
    /// The record under its type, with the plain members of its data. The log has no contents of messages.
    pub(super) fn of(record: &Record) -> Self {
        let mut attributes = SpanAttributes::default();
        attributes.add(ACTOR, record.actor.as_str());
        for (member, value) in &record.data {
            if !matches!(member.as_str(), "id" | "ids" | "mailbox") && is_plain(value) {
                attributes.add(format!("{DATA}{member}"), value.clone());
            }
        }
        Self { at: record.timestamp, name: record.kind.to_string(), attributes }
    }
}

const fn is_plain(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

#[derive(Clone, Debug, Default)]
pub(super) struct SpanEvents {
    pub(super) kept: Vec<Event>,
    pub(super) dropped: u32,
}

impl SpanEvents {
    pub(super) fn add(&mut self, record: &Record) {
        match self.kept.len() < EVENTS_MAX {
            true => self.kept.push(Event::of(record)),
            false => self.dropped = self.dropped.saturating_add(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanPlace {
    pub(super) trace_id: u128,
    /// None for the first span of a trace.
    pub(super) parent_id: Option<u64>,
    pub(super) is_remote: bool,
}

impl SpanPlace {
    pub(super) fn child(self, parts: &[&str]) -> u64 {
        let above = format!("{:032x}{:016x}", self.trace_id, self.parent_id.unwrap_or(0));
        let number = number(&[&[above.as_str()], parts].concat());
        u64::try_from(number >> 64).unwrap_or(1).max(1)
    }
}

#[derive(Clone, Debug)]
pub(super) struct SpanHead {
    pub(super) place: SpanPlace,
    pub(super) span_id: u64,
    pub(super) name: String,
    pub(super) kind: SpanKind,
}

#[derive(Clone, Debug)]
pub struct Span {
    pub(super) head: SpanHead,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) attributes: SpanAttributes,
    pub(super) events: SpanEvents,
    pub(super) status: SpanStatus,
}

/// A number that follows from these parts, and from nothing else. Never zero, which is not an id.
fn number(parts: &[&str]) -> u128 {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    let digest = Digest::of_parts(&parts).to_string();
    u128::from_str_radix(&digest[..32], 16).unwrap_or(1).max(1)
}

pub(super) fn trace_id(parts: &[&str]) -> u128 {
    number(parts)
}
