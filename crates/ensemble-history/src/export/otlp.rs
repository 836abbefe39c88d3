//! OTLP/JSON: spans as one `ExportTraceServiceRequest`, which is also a line of the collector's file format.
//!
//! Ids are hexadecimal, 64-bit numbers are strings, and enumerations are numbers, as OTLP's JSON mapping says.

use ensemble_core::message::Timestamp;
use serde_json::{Value, json};

use super::conventions as names;
use super::span::{Event, Span, SpanAttributes, SpanStatus};

/// Most spans of one request. With all events it stays below the 4 MiB that collectors take.
pub const SPANS_MAX: usize = 100;
/// The flag of a recorded span, and the flags for whether its parent is in another program.
const RECORDED: u32 = 0x1;
const REMOTE_IS_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

pub fn request(namespace: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let mut resource = SpanAttributes::default();
    resource.add(names::SERVICE_NAME, names::SYSTEM);
    resource.add(names::SERVICE_NAMESPACE, namespace);
    resource.add(names::SERVICE_VERSION, version);
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(&resource) },
        "scopeSpans": [{
            "scope": { "name": names::SYSTEM, "version": version },
            "spans": spans,
            "schemaUrl": names::SCHEMA_URL,
        }],
        "schemaUrl": names::SCHEMA_URL,
    }] })
}

fn span(span: &Span) -> Value {
    let remote = if span.head.place.is_remote { IS_REMOTE } else { 0 };
    let events: Vec<Value> = span.events.kept.iter().map(event).collect();
    let mut object = json!({
        "traceId": format!("{:032x}", span.head.place.trace_id),
        "spanId": format!("{:016x}", span.head.span_id),
        "flags": RECORDED | REMOTE_IS_KNOWN | remote,
        "name": span.head.name,
        "kind": span.head.kind as u8,
        "startTimeUnixNano": nanos(span.from),
        "endTimeUnixNano": nanos(span.to),
        "attributes": attributes(&span.attributes),
        "events": events,
        "droppedEventsCount": span.events.dropped,
        "status": status(&span.status),
    });
    if let Some(parent) = span.head.place.parent_id {
        object["parentSpanId"] = format!("{parent:016x}").into();
    }
    object
}

fn event(event: &Event) -> Value {
    json!({
        "timeUnixNano": nanos(event.at),
        "name": event.name,
        "attributes": attributes(&event.attributes),
    })
}

fn status(status: &SpanStatus) -> Value {
    match status {
        SpanStatus::Unset => json!({}),
        SpanStatus::Fine => json!({ "code": 1 }),
        SpanStatus::Error(why) => json!({ "code": 2, "message": why }),
    }
}

fn attributes(attributes: &SpanAttributes) -> Vec<Value> {
    let one = |(key, value): &(String, Value)| json!({ "key": key, "value": any(value) });
    attributes.0.iter().map(one).collect()
}

fn any(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    }
}

fn nanos(at: Timestamp) -> String {
    (i128::from(at.unix_millis().max(0)) * 1_000_000).to_string()
}
